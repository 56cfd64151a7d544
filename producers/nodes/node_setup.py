"""What a node is set up with: where peers listen, its certificates, its connector, its first or next incarnation.

In: settings and files. Out: values, or an error of one sentence. What they do together belongs to
:mod:`producers.run_node`.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from regraft.infra.process.connection_security import ConnectionSecurity
from regraft.infra.process.stack_error import CallError, StackError
from regraft.overlay.inventory.inventory import Inventory
from regraft.producers.node_settings import PORT_MAX, NodeSettings
from regraft.producers.nodes.connectors.ask_api import BrokerApi
from regraft.producers.nodes.connectors.connector import Connector, ConnectorError
from regraft.producers.nodes.connectors.connector_addresses import split_connector
from regraft.producers.nodes.connectors.connector_errors import known_forms
from regraft.producers.nodes.connectors.connector_spec import AnyConnectorSpec, ConnectorContext
from regraft.producers.nodes.connectors.find_connectors import own_settings, spec_of
from regraft.producers.nodes.links.run_links import LinkTls
from regraft.schemas.broker_topics import BrokerTopics
from regraft.schemas.parse_text import parse_json
from regraft.schemas.status_file import replace_file

Addresses = dict[str, tuple[str, int]]


class NodeError(StackError):
    """A node cannot start or continue; the message says why and what to do."""


class NodeSettingsError(CallError):
    """A node's settings, or the files that they name, are wrong: a supervisor need not start it again."""


def broker_of(settings: NodeSettings, inventory: Inventory) -> str:
    """Return which broker the node is; raise NodeSettingsError if neither the inventory nor the peers file lists it."""
    broker = settings.broker or ""
    if broker not in inventory.index and broker not in _read_addresses(settings):
        raise NodeSettingsError(
            f"--broker is {broker!r}, which is not one of the {len(inventory.brokers)} brokers of "
            f"{settings.inventory_path}: name one of these, such as {inventory.brokers[0]}, or add its "
            f"address to {settings.peers_file}, so that it asks to join"
        )
    return broker


def topics_of(settings: NodeSettings, inventory: Inventory, broker: str) -> BrokerTopics:
    """Return the broker's Kafka topics; raise NodeSettingsError if brokers have agents, but this one has none."""
    every = inventory.broker_topics(settings.namespace)
    if not every.agent_of:
        return BrokerTopics(settings.namespace)
    if broker not in every.agent_of:
        raise NodeSettingsError(
            f"{broker} is not in {settings.inventory_path}, whose brokers have agents: add it there with its agent"
        )
    return every.of_agents([every.agent_of[broker]])


def read_peers(settings: NodeSettings, broker: str) -> Addresses:
    """Return where each node listens; raise NodeSettingsError if the file is unreadable or does not list it."""
    addresses = _read_addresses(settings)
    if broker not in addresses:
        raise NodeSettingsError(
            f"{settings.peers_file} has no address of {broker}: add the host:port at which other nodes reach it"
        )
    return addresses


def _read_addresses(settings: NodeSettings) -> Addresses:
    file = settings.peers_file
    try:
        return {name: address_of(text) for name, text in parse_json(file.read_text(encoding="utf-8-sig")).items()}
    except OSError as error:
        raise NodeSettingsError(f"{file} cannot be read ({error.strerror}): `regraft nodes init` writes it") from error
    except (ValueError, AttributeError) as error:
        raise NodeSettingsError(
            f'{file} does not list where nodes listen ({error}): it must be JSON such as {{"b01": "10.0.0.1:7411"}}, '
            "the same for all nodes"
        ) from error


def address_of(text: str) -> tuple[str, int]:
    """Return host and port of ``host:port``; raise ValueError for anything else."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port) <= PORT_MAX):
        raise ValueError(f"{text!r} is not host:port, with a port from 1 to {PORT_MAX}")
    return host.strip("[]"), int(port)


def tls_of(settings: NodeSettings) -> LinkTls | None:
    """Return the certificates of the links, None without TLS; raise NodeSettingsError if they are unusable."""
    if settings.ca_file is None or settings.certificate_file is None or settings.key_file is None:
        return None
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        for context in (server, client):
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(settings.ca_file)
            context.load_cert_chain(settings.certificate_file, settings.key_file)
    except (OSError, ssl.SSLError) as error:
        raise NodeSettingsError(
            f"the certificates of the links cannot be used ({error}): node.ca_file, node.certificate_file and "
            "node.key_file must be PEM and belong together"
        ) from error
    return LinkTls(server, client)


def connector_of(settings: NodeSettings, broker: str) -> Connector:
    """Return the connector to the real broker, with the groups that handle each message once; raise as below."""
    connector = _connector_of(settings, broker)
    connector.groups_once = frozenset(settings.groups_once)
    return connector


def _connector_of(settings: NodeSettings, broker: str) -> Connector:
    """Return the connector to the real broker; raise ConnectorError for an unknown kind, or certificates that cannot be
    used.
    """
    spec = spec_of(settings.connector or "")
    if spec is None:
        raise ConnectorError(f"{settings.connector!r} is not a connector: {known_forms()}")
    return spec.connect(context_of(settings, broker, spec), own_settings(settings, spec))


def context_of(settings: NodeSettings, broker: str, spec: AnyConnectorSpec) -> ConnectorContext:
    """Return what the settings that all connectors share say; raise ConnectorError as above."""
    is_secure = split_connector(settings.connector or "")[0].scheme == spec.secure_scheme
    tls = _connector_tls(settings) if is_secure else None
    return ConnectorContext(
        url=settings.connector or "",
        broker=broker,
        user=settings.connector_user or "",
        password=_password(settings.connector_user, settings.connector_password_file),
        api=_api_of(settings, tls),
        tls=tls,
        overlay=settings.namespace,
        state_file=settings.interest_file,
    )


def _api_of(settings: NodeSettings, tls: ssl.SSLContext | None) -> BrokerApi | None:
    if settings.connector_api is None:
        return None
    user = settings.connector_api_user
    return BrokerApi(settings.connector_api, user or "", _password(user, settings.connector_api_password_file), tls)


def _password(user: str | None, file: Path | None) -> str:
    return ConnectionSecurity(username=user, password_file=file).password or ""


def _connector_tls(settings: NodeSettings) -> ssl.SSLContext:
    """Return how broker and node authenticate each other; raise ConnectorError if that cannot be used."""
    try:
        context = ssl.create_default_context(cafile=settings.connector_ca_file)
        if settings.connector_certificate_file is not None and settings.connector_key_file is not None:
            context.load_cert_chain(settings.connector_certificate_file, settings.connector_key_file)
    except (OSError, ssl.SSLError) as error:
        raise ConnectorError(
            f"the certificates of the connector cannot be used ({error}): node.connector_ca_file, "
            "node.connector_certificate_file and node.connector_key_file must be PEM, and the last two belong "
            "together"
        ) from error
    return context


def has_begun_before(settings: NodeSettings) -> bool:
    """Return True if others have met an earlier incarnation of this node."""
    return settings.life_file.exists()


def note_begin(settings: NodeSettings) -> None:
    """Record that others have met this incarnation, so that the next start is another incarnation."""
    replace_file(settings.life_file, "This node has started: its next incarnation waits until a plan admits it.\n")
