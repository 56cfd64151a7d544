"""The connector to a NATS server, as the settings describe it.

What it does belongs to :mod:`producers.nodes.nats.nats_connector`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

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
        "JetStream stream from which messages are forwarded, acknowledged once neighbours have them",
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
    """Return the connector to the leaf port of a NATS server."""
    from regraft.producers.nodes.nats.nats_connector import NatsConnector
    from regraft.producers.nodes.nats.nats_login import read_login

    login, stream = read_login(context.user, context.password, settings.credentials_file), settings.durable_stream or ""
    return NatsConnector(
        context.url, context.broker, login, stream, context.tls, context.overlay, settings.local_streams
    )


def node_errors(node: NodeSettings, settings: NatsSettings) -> Iterator[str]:
    """Yield which of the settings that all connectors share do not fit those of this one."""
    if node.connector_api is not None:
        yield "connector_api is given, but a NATS server reports what clients want at its leaf port: name that port"
    if settings.credentials_file is not None and (node.connector_user or node.connector_password_file):
        yield (
            "connectors.nats.credentials_file is given with node.connector_user or node.connector_password_file: a "
            "server takes one login"
        )


SPEC = ConnectorSpec(
    name="nats",
    secure_scheme="tls",
    settings=NatsSettings,
    connect=connect_nats,
    broker="a NATS server",
    form="nats://HOST:PORT",
    node_errors=node_errors,
)
