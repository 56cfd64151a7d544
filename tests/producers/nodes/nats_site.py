"""Real NATS servers with a node next to each, and a client of each, for the time of a test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.nodes.connectors.connector import Connector
from regraft.producers.nodes.nats.nats_connector import NatsConnector
from tests.producers.nodes.nats_servers import NatsServer
from tests.producers.nodes.node_fleet import NodeFleet


@dataclass
class NatsSite:
    """Everything by broker; ``connect`` makes further clients, which end with the site."""

    fleet: NodeFleet
    servers: dict[str, NatsServer]
    clients: dict[str, Any] = field(default_factory=dict)
    others: list[Any] = field(default_factory=list)

    async def connect(self, broker: str) -> Any:
        import nats

        client = await nats.connect(self.servers[broker].url)
        self.others.append(client)
        return client

    async def flush(self) -> None:
        """Wait until the servers have handled what the clients have asked and published."""
        for client in self.clients.values():
            await client.flush()


def at_leaf_port(server: NatsServer, broker: str, local_streams: Sequence[str] = ()) -> Connector:
    return NatsConnector(server.leaf_url, broker, local_streams=local_streams)


@asynccontextmanager
async def nats_site(
    directory: Path,
    configuration: TreeConfiguration,
    delays_s: dict[str, float] | None = None,
    groups_once: frozenset[str] = frozenset(),
    connector_of: Callable[[NatsServer, str], Connector] = at_leaf_port,
    *,
    has_streams: bool = False,
) -> AsyncIterator[NatsSite]:
    jetstream = {broker: f'jetstream {{ store_dir: "{directory / broker}" }}' for broker in configuration.brokers}
    servers = {
        broker: NatsServer(broker, directory, jetstream[broker] if has_streams else "").start()
        for broker in configuration.brokers
    }
    site = NatsSite(NodeFleet(configuration, delays_s), servers)
    try:
        connectors = {broker: connector_of(server, broker) for broker, server in servers.items()}
        for connector in connectors.values():
            connector.groups_once = groups_once
        await site.fleet.begin(dict(connectors))
        site.clients = {broker: await site.connect(broker) for broker in servers}
        yield site
    finally:
        for client in site.others:
            await client.close()
        await site.fleet.close()
        for server in servers.values():
            server.stop()
