"""Find settings of a node that the connector in use does not have: they would be ignored without a word.

In: the settings. Out: a sentence for each, with what to use instead. Whether the real broker answers belongs to the
connectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import SplitResult, urlsplit

LEAF, CLIENT, MQTT, AMQP = "the leaf port of a NATS server", "the client port of a NATS server", "MQTT", "RabbitMQ"
KIND_OF_SCHEME = {"nats": LEAF, "tls": LEAF, "mqtt": MQTT, "mqtts": MQTT, "amqp": AMQP, "amqps": AMQP}
SECURE = ("tls", "mqtts", "amqps")
PORT_MAX = 65_535
Settings = Mapping[str, Any]
# For which connectors a setting is, and what to do at the others.
CONNECTORS_OF: dict[str, tuple[Sequence[str], str]] = {
    "connector_filters": ((MQTT, AMQP), "a NATS server reports what its clients want, leave it out"),
    "connector_exchange": ((AMQP,), "leave it out"),
    "connector_log_file": ((MQTT,), "only Mosquitto's log lists subscriptions, leave it out"),
    "connector_session_s": ((MQTT,), "only MQTT clients have sessions, leave it out"),
    "durable_stream": (
        (LEAF,),
        "only a leaf port can read a JetStream stream: name that port without connector_api, or at MQTT and "
        "RabbitMQ set durable_session",
    ),
    "local_streams": ((LEAF, CLIENT), "only a NATS server has streams, leave it out"),
    "connector_credentials_file": ((LEAF, CLIENT), "use connector_user and connector_password_file"),
    "durable_session": ((MQTT, AMQP), "a NATS server keeps messages in streams: name one as durable_stream"),
}
TLS_FILES = ("connector_ca_file", "connector_certificate_file", "connector_key_file")


def connector_faults(settings: Settings, defaults: Settings) -> list[str]:
    """Return what the connector in use would ignore or could not use; nothing if no connector is named."""
    given = {name: value for name, value in settings.items() if value != defaults.get(name)}
    if "connector" not in given:
        return []
    connector = str(given["connector"])
    try:
        scheme = split_connector(connector)[0].scheme
    except ValueError:  # Brackets that hold no IPv6 address.
        return [_no_host(connector)]
    if scheme not in KIND_OF_SCHEME:
        return [
            f"connector is {_named(connector)}: there are nats://HOST:PORT, mqtt://HOST:PORT, amqp://HOST:PORT/VHOST, "
            "and tls, mqtts and amqps with TLS"
        ]
    return [*_ignored(given, scheme), *_login_faults(given, scheme), *_address_faults(given)]


def split_connector(connector: str) -> list[SplitResult]:
    """Return the addresses of a connector, which are separated by commas.

    Raises ValueError for brackets without IPv6.
    """
    return [urlsplit(part.strip()) for part in connector.split(",")]


def listen_faults(listen: str | None) -> list[str]:
    """Return what is wrong with the address to listen on, if one is given."""
    if listen is None or _is_address(listen):
        return []
    return [f"listen is {listen!r}: it must be host:port with a port from 1 to {PORT_MAX}"]


def _ignored(given: Settings, scheme: str) -> Iterator[str]:
    kind = KIND_OF_SCHEME[scheme]
    if kind == LEAF and "connector_api" in given:
        kind = CLIENT
    for name, (kinds, advice) in CONNECTORS_OF.items():
        if kind not in kinds and name in given:
            yield f"{name} is {_shown(given[name])}, but the connector is to {kind}, which ignores it: {advice}"
    for name in TLS_FILES:
        if scheme not in SECURE and name in given:
            secure = {LEAF: "tls", MQTT: "mqtts", AMQP: "amqps"}[KIND_OF_SCHEME[scheme]]
            yield f"{name} is {_shown(given[name])}, but {scheme}:// has no TLS: use {secure}://, or leave it out"


def _login_faults(given: Settings, scheme: str) -> Iterator[str]:
    has_token = KIND_OF_SCHEME[scheme] == LEAF and "connector_api" in given
    if "connector_password_file" in given and "connector_user" not in given and not has_token:
        yield "connector_password_file is given without connector_user: name the user, or leave the password out"
    if "connector_credentials_file" in given and ("connector_user" in given or "connector_password_file" in given):
        yield (
            "connector_credentials_file is given with connector_user or connector_password_file: a server "
            "takes one login"
        )
    if "connector_api_password_file" in given and "connector_api_user" not in given:
        yield (
            "connector_api_password_file is given without connector_api_user: name the user, or leave the password out"
        )
    for name in ("connector_api_user", "connector_api_password_file"):
        if name in given and "connector_api" not in given:
            yield f"{name} is given without connector_api: name the interface, or leave the login out"


def _address_faults(given: Settings) -> Iterator[str]:
    api, connectors = given.get("connector_api"), split_connector(given["connector"])
    if api is not None and any(not _is_web(one.strip()) for one in api.split(",")):
        yield f"connector_api is {_named(api)}: it must be an address such as http://127.0.0.1:15672"
    try:
        is_usable = all(
            bool(connector.hostname) and (connector.port is None or connector.port > 0) for connector in connectors
        )
    except ValueError:  # The port is no number, or none that exists.
        is_usable = False
    if not is_usable:
        yield _no_host(given["connector"])
    if len({(connector.scheme, connector.path) for connector in connectors}) > 1:
        yield f"connector is {_named(given['connector'])}: servers of one cluster have the same scheme and path"
    if api is not None and len([*connectors, *api.split(",")]) > 2 and KIND_OF_SCHEME[connectors[0].scheme] == LEAF:
        yield (
            "connector or connector_api names several servers, but each reports what its own clients want: "
            "use their leaf ports"
        )


def _is_web(address: str) -> bool:
    try:
        return urlsplit(address).scheme in ("http", "https")
    except ValueError:
        return False


def _no_host(connector: str) -> str:
    return f"connector is {_named(connector)}: it must name a host, and a port from 1 to {PORT_MAX}"


def _named(address: str) -> str:
    return "an address with a login" if "@" in address else repr(address)


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isascii() and port.isdigit() and 0 < int(port) <= PORT_MAX


def _shown(value: Any) -> str:
    return ", ".join(value) if isinstance(value, tuple) else "true" if value is True else str(value)
