"""Four nodes next to four real NATS servers with real clients: plans, cuts, a death and a repair."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from regraft.overlay.configuration import Configuration
from regraft.overlay.overlay_configuration import BrokerChange
from regraft.producers.nodes.nats_door import NatsDoor
from regraft.schemas.plan import PlanPhase
from tests.producers.drive_plan import random_swaps
from tests.producers.nodes.nats_servers import NatsServer, needs_nats
from tests.producers.nodes.node_fleet import NodeFleet, NodeLedger

pytestmark = pytest.mark.stack

BROKERS = ("b01", "b02", "b03", "b04")
LINE = Configuration.of(0, BROKERS, [("b01", "b02"), ("b02", "b03"), ("b03", "b04")])
DELAYS_S = {"b02": 0.010, "b03": 0.040, "b04": 0.003}


class NatsSite:
    """Servers, nodes, and at each server a publisher and a subscriber that wants everybody's data."""

    def __init__(self, directory: Path) -> None:
        self.fleet = NodeFleet(LINE, DELAYS_S)
        self.servers = {broker: NatsServer(broker, directory) for broker in BROKERS}
        self.clients: dict[str, Any] = {}
        self.said = dict.fromkeys(BROKERS, 0)
        self.ledger = NodeLedger()

    async def begin(self) -> None:
        import nats

        for broker, server in self.servers.items():
            server.start()
            client = self.clients[broker] = await nats.connect(server.url)

            async def take(message: Any, broker: str = broker) -> None:
                self.ledger.take(message.subject.split(".")[1], broker, int(message.data))

            await client.subscribe("data.*", cb=take)
            await client.flush()
        await self.fleet.begin({broker: NatsDoor(server.leaf_url, broker) for broker, server in self.servers.items()})
        await self.fleet.all_confirmed()

    async def say(self, broker: str) -> None:
        number = self.said[broker]
        self.said[broker] += 1
        await self.clients[broker].publish(f"data.{broker}", str(number).encode())

    async def publish_until(self, stop: asyncio.Event, brokers: tuple[str, ...] = BROKERS) -> None:
        while not stop.is_set():
            for broker in brokers:
                await self.say(broker)
            await asyncio.sleep(0.005)

    def owed(self, brokers: tuple[str, ...] = BROKERS) -> dict[tuple[str, str], range]:
        """Everybody gets everything, from the server where it is published, too."""
        return {(a, b): range(self.said[a]) for a in brokers for b in brokers}

    async def all_there(self, brokers: tuple[str, ...] = BROKERS) -> None:
        owed = self.owed(brokers)
        while any(len(self.ledger.came.get(pair, ())) < len(numbers) for pair, numbers in owed.items()):
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.2)  # For what should not come.

    async def close(self) -> None:
        for client in self.clients.values():
            await client.close()
        await self.fleet.close()
        for server in self.servers.values():
            server.stop()


@pytest.fixture
def run_site(tmp_path: Path) -> Callable[[Callable[[NatsSite], Awaitable[None]]], None]:
    needs_nats()

    def run(steps: Callable[[NatsSite], Awaitable[None]]) -> None:
        async def go() -> None:
            site = NatsSite(tmp_path)
            try:
                await site.begin()
                await asyncio.wait_for(steps(site), 120)
            finally:
                await site.close()
            assert site.fleet.failures == []

        asyncio.run(go())

    return run


def test_swaps_and_cuts_lose_nothing(run_site: Callable[..., None]) -> None:
    """Six plans with random swaps while clients of all servers publish and links are cut: every message comes once."""
    rng = random.Random(21)

    async def steps(site: NatsSite) -> None:
        stop = asyncio.Event()
        publishing = asyncio.create_task(site.publish_until(stop))
        for _ in range(6):
            target = random_swaps(site.fleet.configuration, 1, 3, rng)
            changing = asyncio.create_task(site.fleet.change_to(target.links))
            for _ in range(2):
                await asyncio.sleep(rng.uniform(0.02, 0.1))
                site.fleet.proxies[rng.choice(BROKERS[1:])].cut()
            assert (await changing).phase is PlanPhase.VERIFYING
        stop.set()
        await publishing
        await site.all_there()
        assert site.ledger.account(site.owed()).total() == 0
        assert {node.core.epoch for node in site.fleet.nodes.values()} == {6}
        assert min(site.said.values()) > 50

    run_site(steps)


def test_request_is_answered_at_another_server(run_site: Callable[..., None]) -> None:
    """A responder three links away answers, once the overlay knows the subject that the requester waits at."""

    async def steps(site: NatsSite) -> None:
        import nats.errors

        async def answer(message: Any) -> None:
            await message.respond(message.data + b"!")

        await site.clients["b04"].subscribe("svc", queue="workers", cb=answer)
        await site.clients["b04"].flush()
        found = None
        while found is None:  # Until the subject and the inbox are known everywhere.
            try:
                found = await site.clients["b01"].request("svc", b"hello", timeout=0.5)
            except nats.errors.TimeoutError:
                continue
        assert found.data == b"hello!"

    run_site(steps)


def test_death_of_a_node_is_repaired(run_site: Callable[..., None]) -> None:
    """When the node in the middle dies the others go on, in order and once; what comes after the repair arrives."""

    async def steps(site: NatsSite) -> None:
        for broker in BROKERS:
            await site.say(broker)
        await site.all_there()
        await site.fleet.kill("b03")
        living = ("b01", "b02", "b04")
        stop = asyncio.Event()
        publishing = asyncio.create_task(site.publish_until(stop, living))
        plan = await site.fleet.change_to(
            [("b01", "b02"), ("b02", "b04")], living, BrokerChange(lost=frozenset({"b03"}))
        )
        assert plan.phase is PlanPhase.VERIFYING
        repaired = dict(site.said)
        await asyncio.sleep(0.2)
        stop.set()
        await publishing
        owed = {(a, b): range(repaired[a], site.said[a]) for a in living for b in living}
        while any(not set(numbers) <= set(site.ledger.came[pair]) for pair, numbers in owed.items()):
            await asyncio.sleep(0.02)
        account = site.ledger.account(site.owed(living) | {("b03", b): range(1) for b in BROKERS})
        assert (account["repeated"], account["out_of_order"]) == (0, 0)
        for publisher, receiver in site.owed(living):
            lost = set(range(site.said[publisher])).difference(site.ledger.came[publisher, receiver])
            assert max(lost, default=-1) < repaired[publisher]

    run_site(steps)
