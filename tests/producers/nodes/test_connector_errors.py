"""A setting that the connector in use would ignore is refused at the start, with what to use instead."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from regraft.producers.node_settings import NodeSettings
from regraft.producers.nodes.connectors.connector_errors import connector_errors
from regraft.producers.nodes.connectors.find_connectors import CONNECTORS, spec_of
from regraft.settings.named_tables import connector_models
from tests.producers.nodes.given_settings import given_settings

PLAIN = NodeSettings("none:1", Path("inventory.json"), Path("status.json"), broker="b01")
# A value for each setting of a connector that is not its default.
GIVEN: dict[str, Any] = {
    "credentials_file": Path("user.creds"), "durable_stream": "ORDERS", "local_streams": ("ORDERS",),
    "filters": ("a/#",), "log_file": Path("log"), "session_s": 5.0, "durable_session": True, "exchange": "other",
}  # fmt: skip


def address_of(kind: str) -> str:
    return f"{CONNECTORS[kind].name}://h:1"


def errors(**given: Any) -> list[str]:
    node = given_settings(Path(), "b01", **given)
    return [*(f"node: {error}" for error in node.errors()), *connector_errors(node)]


@pytest.mark.parametrize("used", CONNECTORS)
@pytest.mark.parametrize("other", CONNECTORS)
def test_a_setting_of_another_connector_is_refused(used: str, other: str) -> None:
    """Each of them, with the connector that it belongs to; those of the connector in use are accepted."""
    for field in fields(CONNECTORS[other].settings):
        own = CONNECTORS[other].settings(**{field.name: GIVEN[field.name]})
        found = connector_errors(replace(PLAIN, connector=address_of(used), connectors={other: own}))
        if used == other:
            assert found == []
        else:
            (error,) = found
            assert error.startswith(f"connectors.{other}.{field.name} is ")
            assert f"it belongs to the connector {other}, and this node's connector is {used}, to " in error


def test_all_settings_of_other_connectors_are_refused_at_once() -> None:
    """After a turn to another broker, the operator sees what is to go, and what takes its place."""
    every = {
        name: spec.settings(**{field.name: GIVEN[field.name] for field in fields(spec.settings)})
        for name, spec in CONNECTORS.items()
    }
    for used, spec in CONNECTORS.items():
        expected = sum(len(fields(other.settings)) for name, other in CONNECTORS.items() if name != used)
        assert len(connector_errors(replace(PLAIN, connector=address_of(used), connectors=every))) == expected
        assert connector_errors(replace(PLAIN, connector=address_of(used), connectors={used: every[used]})) == []
        assert spec_of(address_of(used)) is spec


def test_the_refusal_names_what_to_use_instead() -> None:
    """The nearest setting of the connector in use, if it has one."""
    nats, mqtt = CONNECTORS["nats"].settings, CONNECTORS["mqtt"].settings
    node = replace(PLAIN, connector="mqtt://h:1", connectors={"nats": nats(durable_stream="ORDERS")})
    assert connector_errors(node) == [
        "connectors.nats.durable_stream is ORDERS, but it belongs to the connector nats, and this node's connector is "
        "mqtt, to an MQTT broker: give connectors.mqtt.durable_session instead"
    ]
    node = replace(PLAIN, connector="amqp://h:1", connectors={"mqtt": mqtt(filters=("a",), log_file=Path("log"))})
    ends = [error.rpartition(": ")[2] for error in connector_errors(node)]
    assert ends == ["give connectors.amqp.filters instead", "leave it out"]


def test_every_connector_has_a_table_of_its_own() -> None:
    """Each field is a setting, so that it can be given and refused."""
    assert set(GIVEN) == {field.name for spec in CONNECTORS.values() for field in fields(spec.settings)}
    for name, model in connector_models().items():
        assert set(model.model_fields) == {field.name for field in fields(CONNECTORS[name].settings)}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (
            {"connector": "nats://h:1", "connector_ca_file": Path("ca")},
            "connector_ca_file is ca, but nats:// has no TLS: use tls://",
        ),
        ({"connector": "mqtt://h:1", "connector_ca_file": Path("ca")}, "has no TLS: use mqtts://"),
        ({"connector": "http://h:1"}, "connector is 'http://h:1': there are nats://HOST:PORT, mqtt://HOST:PORT, amqp:"),
        ({"connector": "http://h:1"}, "amqp://HOST:PORT/VHOST, and tls, mqtts and amqps with TLS"),
        ({"connector": "mqtt://h:99999"}, "it must name a host, and a port from 1 to 65535"),
        ({"connector": "mqtt://"}, "it must name a host"),
        ({"connector": "mqtt://h:1,mqtts://h:1"}, "servers of one cluster have the same scheme and path"),
        (
            {"connector": "amqp://h", "connector_api": "http://[h"},
            "connector_api is 'http://[h': it must be an address",
        ),
        (
            {"connector": "amqp://h", "connector_api": "file:///etc/passwd"},
            "connector_api is 'file:///etc/passwd': it must be",
        ),
        (
            {"connector": "mqtt://h", "connector_api": "http://h:18083"},
            "connector_api is given, but what MQTT clients want is in Mosquitto's log, or connectors.mqtt.filters",
        ),
        ({"connector": "amqp://h", "connector_api_user": "me"}, "connector_api_user is given without connector_api"),
        (
            {"connector": "amqp://h", "connector_api": "http://h", "connector_api_password_file": Path("p")},
            "without connector_api_user",
        ),
        (
            {"connector": "mqtt://h", "connector_password_file": Path("p")},
            "connector_password_file is given without connector_user",
        ),
        (
            {"connector": "nats://h:4222", "connector_api": "http://h:8222"},
            "connector_api is given, but a NATS server reports what clients want at its leaf port",
        ),
        (
            {"connector": "nats://h:7422", "credentials_file": Path("c"), "connector_user": "me"},
            "connectors.nats.credentials_file is given with node.connector_user",
        ),
        ({"connector": "nats://h:7422", "durable_stream": "a.b"}, "connectors.nats: durable_stream has 'a.b'"),
        ({"connector": "mqtt://h:1", "session_s": -1.0}, "connectors.mqtt: session_s is -1"),
        ({"listen": "h"}, "listen is 'h': it must be host:port"),
        ({"listen": "h:70000"}, "listen is 'h:70000'"),
    ],
)
def test_what_cannot_work_is_refused(given: dict[str, Any], why: str) -> None:
    """The sentence names the setting, its value and the way out."""
    assert any(why in error for error in errors(**given)), errors(**given)


def test_brackets_that_hold_no_address_are_refused() -> None:
    """Like any other address of no host."""
    (error,) = connector_errors(replace(PLAIN, connector="nats://[::1:4222"))
    assert "connector is 'nats://[::1:4222': it must name a host" in error


def test_without_a_connector_nothing_about_connectors_is_refused() -> None:
    """All stages share the settings, and only a node names its connector."""
    every = {"nats": CONNECTORS["nats"].settings(durable_stream="ORDERS"), "mqtt": CONNECTORS["mqtt"].settings()}
    assert connector_errors(replace(PLAIN, connectors=every)) == []
