"""Find settings of a node that its connector does not have or cannot use: they would be ignored without a word."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from difflib import get_close_matches
from typing import Any
from urllib.parse import urlsplit

from regraft.producers.connector_settings import ConnectorSettings
from regraft.producers.node_settings import PORT_MAX, NodeSettings
from regraft.producers.nodes.connectors.connector import ConnectorError
from regraft.producers.nodes.connectors.connector_addresses import split_connector
from regraft.producers.nodes.connectors.connector_spec import AnyConnectorSpec
from regraft.producers.nodes.connectors.find_connectors import CONNECTORS, known_names, own_settings, spec_of

TLS_FILES = ("connector_ca_file", "connector_certificate_file", "connector_key_file")


def connector_errors(node: NodeSettings) -> list[str]:
    """Return what is wrong with the tables of connectors, and what the one in use would ignore or could not use."""
    errors = [f"connectors.{name}: {error}" for name, own in node.connectors.items() for error in own.errors()]
    if node.connector is None:
        return errors
    try:
        spec = spec_of(node.connector)
    except ValueError:  # Brackets that hold no IPv6 address.
        return [*errors, f"node: {_no_host(node.connector)}"]
    except ConnectorError as error:
        return [*errors, f"node: connector {error}"]
    if spec is None:
        return [*errors, f"node: connector is {_named(node.connector)}: {known_forms()}"]
    own = own_settings(node, spec)
    shared = [*_login_errors(node), *_tls_errors(node, spec), *_address_errors(node)]
    return [*errors, *_of_others(node, spec), *spec.node_errors(node, own), *(f"node: {error}" for error in shared)]


def known_forms() -> str:
    """Return how the addresses of all kinds of connectors look."""
    secure = [spec.secure_scheme for spec in CONNECTORS.values()]
    forms = ", ".join(spec.form for spec in CONNECTORS.values())
    others = [f"{name}://" for name in known_names() if name not in CONNECTORS]
    ends = f"; and {', '.join(others)} of other packages" if others else ""
    return f"there are {forms}, and {', '.join(secure[:-1])} and {secure[-1]} with TLS{ends}"


def _of_others(node: NodeSettings, used: AnyConnectorSpec) -> Iterator[str]:
    """Yield a sentence for each setting of a connector that this node does not have."""
    has = [field.name for field in fields(used.settings)]
    for kind, settings in node.connectors.items():
        for name, value in _given(settings) if kind != used.name else ():
            near = get_close_matches(name, has, n=1)
            way_out = f"give connectors.{used.name}.{near[0]} instead" if near else "leave it out"
            yield (
                f"connectors.{kind}.{name} is {_shown(value)}, but it belongs to the connector {kind}, and this node's "
                f"connector is {used.name}, to {used.broker}: {way_out}"
            )


def _given(settings: ConnectorSettings) -> Iterator[tuple[str, Any]]:
    default = type(settings)()
    for field in fields(settings):
        value = getattr(settings, field.name)
        if value != getattr(default, field.name):
            yield field.name, value


def _login_errors(node: NodeSettings) -> Iterator[str]:
    if node.connector_password_file is not None and node.connector_user is None:
        yield "connector_password_file is given without connector_user: name the user, or leave the password out"
    if node.connector_api_password_file is not None and node.connector_api_user is None:
        yield (
            "connector_api_password_file is given without connector_api_user: name the user, or leave the password out"
        )
    for name in ("connector_api_user", "connector_api_password_file"):
        if getattr(node, name) is not None and node.connector_api is None:
            yield f"{name} is given without connector_api: name the interface, or leave the login out"


def _tls_errors(node: NodeSettings, spec: AnyConnectorSpec) -> Iterator[str]:
    scheme = split_connector(node.connector or "")[0].scheme
    way_out = f"use {spec.secure_scheme}://, or leave it out" if spec.secure_scheme else "leave it out"
    for name in TLS_FILES if scheme != spec.secure_scheme else ():
        if getattr(node, name) is not None:
            yield f"{name} is {getattr(node, name)}, but {scheme}:// has no TLS: {way_out}"


def _address_errors(node: NodeSettings) -> Iterator[str]:
    connector, api = node.connector or "", node.connector_api
    if api is not None and any(not _is_web(one.strip()) for one in api.split(",")):
        yield f"connector_api is {_named(api)}: it must be an address such as http://127.0.0.1:15672"
    parts = split_connector(connector)
    try:
        is_usable = all(bool(part.hostname) and (part.port is None or part.port > 0) for part in parts)
    except ValueError:  # The port is no number, or none that exists.
        is_usable = False
    if not is_usable:
        yield _no_host(connector)
    if len({(part.scheme, part.path) for part in parts}) > 1:
        yield f"connector is {_named(connector)}: servers of one cluster have the same scheme and path"


def _is_web(address: str) -> bool:
    try:
        return urlsplit(address).scheme in ("http", "https")
    except ValueError:
        return False


def _no_host(connector: str) -> str:
    return f"connector is {_named(connector)}: it must name a host, and a port from 1 to {PORT_MAX}"


def _named(address: str) -> str:
    return "an address with a login" if "@" in address else repr(address)


def _shown(value: Any) -> str:
    return ", ".join(value) if isinstance(value, tuple) else "true" if value is True else str(value)
