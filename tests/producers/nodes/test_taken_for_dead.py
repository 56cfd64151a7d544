"""Nodes in memory and the control loop: a running node that a neighbour considers dead is admitted again."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import msgspec
import pytest

from regraft.controller.loop.compose_loop import compose_loop
from regraft.controller.ports.memory_ports import MemoryPorts
from regraft.controller.settings.member_settings import MemberSettings
from regraft.producers.nodes.links.run_links import Links
from regraft.schemas.event import EventKind
from regraft.schemas.plan import PlanPhase
from regraft.streaming.reference_aggregator import ReferenceAggregator
from tests.controller.scripted_overlay import settings_of
from tests.overlay.small_overlays import inventory_of
from tests.producers.nodes.node_fleet import LIMITS, NodeFleet
from tests.producers.nodes.test_broker_node import BROKERS, LINE, MemorySite, run_site

pytestmark = pytest.mark.stack  # It starts none, but the nodes and the loop need their share of the wall clock.

STEP_S = 0.05
WINDOW_MS, GRACE_MS = 1_000, 200
QUICK_MEMBERS = MemberSettings(batch_ms=100, retry_ms=500)
CALLER, CALLED = "b03", "b04"  # The first by name calls, so its namesake disturbs the other one.


class RunningLoop:
    """A controller over the nodes of a fleet, on the wall clock and without Kafka; its windows are short by default."""

    def __init__(
        self,
        fleet: NodeFleet,
        members: MemberSettings = QUICK_MEMBERS,
        window_ms: int = WINDOW_MS,
        grace_ms: int = GRACE_MS,
    ) -> None:
        inventory = replace(inventory_of(LINE, {}), clients_stay=True)
        settings = settings_of(dry_run=True, act_on_deaths=True, members=members)
        self.fleet, self.ports = fleet, MemoryPorts()
        self.loop = compose_loop(settings, inventory, self.ports.ports)
        self._aggregator = ReferenceAggregator(window_ms, grace_ms)

    async def run(self) -> None:
        while True:
            for broker, node in self.fleet.nodes.items():
                node.flush()
                ports = self.fleet.ports[broker]
                for batch in ports.telemetry.batches:
                    self._aggregator.take(msgspec.to_builtins(batch))
                self.ports.results.records.extend(ports.results.results)
                ports.telemetry.batches.clear()
                ports.results.results.clear()
            for window in self._aggregator.advance():
                self.ports.state.records.extend([*window.rows, window.marker])
            while self.loop.step(int(time.time() * 1_000)):
                pass
            while self.ports.commands.sent:
                command = self.ports.commands.sent.popleft()
                self.fleet.guarded(self.fleet.nodes[command.broker].obey)(command)
            await asyncio.sleep(STEP_S)

    @contextlib.asynccontextmanager
    async def beside(self, site: MemorySite) -> AsyncIterator[asyncio.Task[None]]:
        """Run while the block runs, from a window on that hears all; messages of all then arrive at all others."""
        controller = asyncio.create_task(self.run())
        try:
            await self.fleet.all_confirmed()
            while self.loop.state.newest is None:
                await asyncio.sleep(STEP_S)
            yield controller
            await self.fleet.all_confirmed()
            handed = {broker: len(site.connectors[broker].handed) for broker in BROKERS}
            for broker in BROKERS:
                site.publish(broker)
            while any(len(site.connectors[broker].handed) < handed[broker] + 3 for broker in BROKERS):
                await asyncio.sleep(0.01)
        finally:
            controller.cancel()

    def reasons(self) -> list[str]:
        return [event.text for event in self.ports.events.emitted if event.kind is EventKind.MEMBER_CHANGED]


async def begin_and_end_namesake(fleet: NodeFleet) -> None:
    """Let a second process with a node's name call a neighbour, as with a copied configuration, and end."""
    address = ("127.0.0.1", fleet.listening[CALLED])
    addresses = {CALLER: ("127.0.0.1", 0), CALLED: address}
    namesake = Links(CALLER, "namesake", addresses, lambda *_: None, lambda _: None, LIMITS)
    incarnations = fleet.nodes[CALLED].links.counts["new_incarnations"]
    await namesake.bind("127.0.0.1", 0)
    await namesake.start()
    namesake.want({CALLED})
    while fleet.nodes[CALLED].links.counts["new_incarnations"] == incarnations:
        await asyncio.sleep(0.01)
    await namesake.close()


def test_a_node_that_a_neighbour_considers_dead_joins_again() -> None:
    """Without an order, one plan admits it, though no broker died; later messages reach all brokers once."""

    async def steps(site: MemorySite) -> None:
        fleet = site.fleet
        running = RunningLoop(fleet)
        async with running.beside(site) as controller:
            for broker in BROKERS:
                site.publish(broker)
            await site.all_there()
            await begin_and_end_namesake(fleet)
            site.publish(
                CALLER
            )  # This leads to two brokers; what the broker beyond the neighbour gets is undetermined.
            while len(running.reasons()) < 2:
                assert not controller.done(), controller.result()
                await asyncio.sleep(STEP_S)
        assert running.reasons() == [
            f"{CALLER} is joining: {CALLED} considers it dead, though it runs, and ignores it",
            f"{CALLER} is in service: added to the overlay by {running.loop.state.plan_log.plans[-1].plan}",
        ]
        (plan,) = running.loop.state.plan_log.plans
        assert (plan.brokers_lost, plan.brokers_target) == ((CALLER,), BROKERS)
        assert plan.phase in (PlanPhase.RETIRING, PlanPhase.VERIFYING, PlanPhase.COMPLETED)
        account = site.ledger().account(site.owed())
        assert (account["repeated"], account["out_of_order"], account["unexpected"]) == (0, 0, 0)
        assert account["lost"] <= 3  # Those of the message that was under way while the node was ignored.
        assert fleet.nodes[CALLER].links.incarnation.endswith(".1")

    run_site(steps)
