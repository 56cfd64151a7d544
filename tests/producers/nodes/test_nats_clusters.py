"""Durable ingress from a cluster of NATS servers: a replicated stream, and the death of any server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from regraft.producers.nodes.connectors.connector import LocalMessage
from regraft.producers.nodes.nats.nats_connector import NatsConnector
from tests.producers.nodes.connector_kit import until
from tests.producers.nodes.nats_servers import NatsServer, needs_nats
from tests.producers.nodes.server_process import free_port
from tests.wait_until import PATIENCE_S

pytestmark = pytest.mark.stack

STREAM, SERVERS_COUNT = "ORDERS", 3
STORED_BEFORE, STORED_AFTER = 50, 50


def cluster(directory: Path) -> dict[str, NatsServer]:
    """Return started servers by name, each with JetStream."""
    ports = {f"s{number}": free_port() for number in range(SERVERS_COUNT)}
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports.values())
    return {
        name: NatsServer(
            name,
            directory,
            f'cluster {{ name: c, listen: "127.0.0.1:{port}", routes: [{routes}] }}\n'
            f'jetstream {{ store_dir: "{directory}/{name}" }}',
        ).start()
        for name, port in ports.items()
    }


class Ingress:
    """A connector that takes a replicated stream, and a client that publishes until the stream has acknowledged."""

    def __init__(self, servers: dict[str, NatsServer]) -> None:
        self.servers, self.acknowledged = servers, 0
        self.came: set[int] = set()
        self.connector = NatsConnector(",".join(server.leaf_url for server in servers.values()), "b01", stream=STREAM)

    async def begin(self) -> None:
        import nats

        urls = [server.url for server in self.servers.values()]
        self.client = await nats.connect(urls, reconnect_time_wait=0.1, max_reconnect_attempts=-1, error_cb=_ignore)
        self.jetstream = self.client.jetstream(timeout=1)
        await self._persistently(lambda: self.jetstream.add_stream(name=STREAM, subjects=["orders.>"], num_replicas=3))
        await self.connector.start(lambda *_: None, self._take)

    def _take(self, message: LocalMessage) -> None:
        if message.receipt:
            self.came.add(int(message.payload))
            self.connector.release(message.receipt)

    async def publish(self, count: int) -> None:
        for number in range(self.acknowledged, self.acknowledged + count):
            await self._persistently(lambda number=number: self.jetstream.publish("orders.eu", b"%d" % number))
            self.acknowledged += 1

    async def _persistently(self, call: Any) -> None:
        """Repeat a call until a leader answers."""
        import nats.errors
        import nats.js.errors

        while True:
            try:
                await call()
            except (nats.errors.Error, nats.js.errors.Error):
                await asyncio.sleep(0.1)
            else:
                return

    async def close(self) -> None:
        await self.connector.close()
        await self.client.close()


async def _ignore(_error: Exception) -> None: ...


def test_a_replicated_stream_is_taken_although_a_server_dies(tmp_path: Path) -> None:
    """The server that leads the stream is killed, then restarted, then the connector's: all acknowledged messages
    cross.
    """
    needs_nats()
    servers = cluster(tmp_path)

    async def go() -> None:
        ingress = Ingress(servers)
        await ingress.begin()
        await ingress.publish(STORED_BEFORE)
        leader = (await ingress.jetstream.stream_info(STREAM)).cluster.leader
        for victim in (servers[leader], None):
            victim = victim or next(
                each for each in servers.values() if each.leaf_port == ingress.connector._addresses.port
            )
            victim.stop()
            await ingress.publish(STORED_AFTER)
            await until(lambda: ingress.came == set(range(ingress.acknowledged)))
            victim.start()
        await ingress.close()

    try:
        asyncio.run(asyncio.wait_for(go(), PATIENCE_S))
    finally:
        for server in servers.values():
            server.stop()
