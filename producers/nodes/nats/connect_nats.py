"""The connector to a NATS server, as the settings describe it: at its leaf port, or at its client port.

What it does belongs to :mod:`producers.nodes.nats.nats_connector` and
:mod:`producers.nodes.nats.nats_client_connector`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from regraft.infra.process.find_extras import require_extras
from regraft.producers.connector_settings import ConnectorSettings
from regraft.producers.node_settings import NodeSettings
from regraft.producers.nodes.connectors.connector import Connector
from regraft.producers.nodes.connectors.connector_spec import ConnectorContext, ConnectorSpec
from regraft.schemas.wire_grammar import ANY


@dataclass(frozen=True)
class NatsSettings(ConnectorSettings):
    """Settings of a node next to a NATS server."""

    credentials_file: Annotated[
        Path | None,
        ".creds file or seed of an nkey to log in with, instead of node.connector_user",
    ] = None
    durable_stream: Annotated[
        str | None,
        "JetStream stream from which messages are forwarded, acknowledged once neighbours have them; only at "
        "the leaf port",
    ] = None
    local_streams: Annotated[
        tuple[str, ...],
        "JetStream streams, * for all, that store only what is published next to this node",
    ] = ()

    def errors(self) -> list[str]:
        """Return names that no stream can have."""
        streams = [("durable_stream", self.durable_stream)] if self.durable_stream else []
        streams += [("local_streams", name) for name in self.local_streams if name != ANY]
        return [
            f"{setting} has {name!r}: the name of a stream must not contain spaces, dots, *, > or /"
            for setting, name in streams
            if not name or set(name) & set(" .*>/\\") or not name.isprintable()
        ]


def connect_nats(context: ConnectorContext, settings: NatsSettings) -> Connector:
    """Return the connector to a NATS server: at its client port if its monitoring port is given, else at its
    leaf port.
    """
    from regraft.producers.nodes.nats.nats_connector import NatsConnector
    from regraft.producers.nodes.nats.nats_login import read_login

    login = read_login(context.user, context.password, settings.credentials_file)
    url, broker, tls, overlay = context.url, context.broker, context.tls, context.overlay
    local = settings.local_streams
    if context.api is None:
        return NatsConnector(url, broker, login, settings.durable_stream or "", tls, overlay, local)
    require_extras("A connector to a NATS server without a leaf port", "nats")
    from regraft.producers.nodes.nats.nats_client_connector import NatsClientConnector

    return NatsClientConnector(url, broker, context.api, login, tls, overlay, local)


def node_errors(node: NodeSettings, settings: NatsSettings) -> Iterator[str]:
    """Yield which of the settings that all connectors share do not fit those of this one."""
    is_at_client_port = node.connector_api is not None
    if settings.durable_stream is not None and is_at_client_port:
        yield (
            f"connectors.nats.durable_stream is {settings.durable_stream}, but the connector is to a client port: only "
            "a leaf port can read a JetStream stream, name that port without node.connector_api"
        )
    if node.connector_password_file is not None and node.connector_user is None and not is_at_client_port:
        yield (
            "node.connector_password_file is given without node.connector_user, but only a client port takes a token: "
            "name the user, or leave the password out"
        )
    if settings.credentials_file is not None and (node.connector_user or node.connector_password_file):
        yield (
            "connectors.nats.credentials_file is given with node.connector_user or node.connector_password_file: a "
            "server takes one login"
        )
    if is_at_client_port and "," in f"{node.connector}{node.connector_api}":
        yield (
            "node.connector or node.connector_api names several servers, but each reports what its own clients want: "
            "use their leaf ports"
        )


SPEC = ConnectorSpec(
    name="nats",
    secure_scheme="tls",
    settings=NatsSettings,
    connect=connect_nats,
    broker="a NATS server",
    form="nats://HOST:PORT",
    takes_token=True,
    node_errors=node_errors,
)
