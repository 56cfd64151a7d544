"""Hundreds of clients leave a broker in one plan: each gets all messages once and in order, published anywhere."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path

import pytest

from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.agents.agent import Agent
from regraft.producers.agents.broker_address import BrokerAddress
from regraft.producers.agents.nats_frames import FrameReader
from regraft.schemas.plan import ClientMove, PlanPhase
from tests.producers.nodes.nats_servers import needs_nats
from tests.producers.nodes.nats_site import NatsSite, nats_site
from tests.producers.nodes.node_fleet import is_confirmed
from tests.producers.nodes.test_agents_beside_nats import BROKERS, DELAYS_S, LINE, registered, until

pytestmark = pytest.mark.stack

CLIENTS, PAUSE_S = 200, 0.05


class BareClient:
    """A client that only counts what comes, by subject: a library would take longer than the agent."""

    def __init__(self) -> None:
        self.came: dict[bytes, list[int]] = {f"data.{broker}".encode(): [] for broker in BROKERS}

    async def connect(self, port: int) -> None:
        reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        await reader.readline()
        self._writer.write(b'CONNECT {"headers":true}\r\nSUB data.* 1\r\n')
        self._reading = asyncio.create_task(self._read(reader))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        frames = FrameReader()
        while data := await reader.read(65_536):
            for frame in frames.feed(data):
                if frame.words[0] in (b"MSG", b"HMSG"):
                    self.came[frame.words[1]].append(int(frame.payload[frame.headers_size :]))

    def close(self) -> None:
        self._reading.cancel()
        self._writer.close()


def test_hundreds_of_clients_leave_at_once(tmp_path: Path) -> None:
    """Nobody else wants what is published at their broker, so its node sees it only while they move."""
    needs_nats()
    asyncio.run(_leave(tmp_path, LINE))


async def _leave(tmp_path: Path, line: TreeConfiguration) -> None:
    async with nats_site(tmp_path, line, DELAYS_S) as site:
        brokers = {name: BrokerAddress(name, "127.0.0.1", server.client_port) for name, server in site.servers.items()}
        agent = Agent("web1", brokers, "b02")
        await agent.start("127.0.0.1", 0)
        clients = [BareClient() for _ in range(CLIENTS)]
        for client in clients:
            await client.connect(agent.port)
        await until(lambda: len(registered(site, "b02")) == CLIENTS)
        await until(lambda: is_confirmed(site.fleet.nodes["b02"]))
        publishing = asyncio.create_task(_publish(site))
        await until(lambda: all(numbers for client in clients for numbers in client.came.values()))
        moves = [ClientMove(name, "b02", "b03") for name in registered(site, "b02")]
        plan = await site.fleet.change_to(line.links, moves=moves)
        assert plan.phase is PlanPhase.VERIFYING
        await until(lambda: {session.homes.home for session in agent.sessions} == {"b03"})
        await asyncio.sleep(0.2)
        publishing.cancel()
        last = {subject: max(numbers) for subject, numbers in clients[0].came.items()}
        await until(lambda: all(client.came[subject][-1] >= last[subject] for client in clients for subject in last))
        for client in clients:
            for numbers in client.came.values():
                assert numbers == list(range(len(numbers)))
            client.close()
        assert agent.counts["subscriptions_moved"] == CLIENTS
        assert not agent.counts["repeats_missing"]
        await agent.close()


async def _publish(site: NatsSite) -> None:
    for number in count():
        for broker in BROKERS:
            await site.clients[broker].publish(f"data.{broker}", b"%d" % number)
        await asyncio.sleep(PAUSE_S)
