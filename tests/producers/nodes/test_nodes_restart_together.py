"""Nodes in memory and the control loop: a site whose nodes restart at the same time carries messages again."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.producers.nodes.memory_connector import MemoryConnector
from tests.producers.nodes.test_broker_node import BROKERS, MemorySite, run_site
from tests.producers.nodes.test_taken_for_dead import QUICK_MEMBERS, STEP_S, RunningLoop

pytestmark = pytest.mark.stack  # It starts none, but the nodes and the loop need their share of the wall clock.
TOGETHER_MS = 4_000  # A busy machine takes more than one window to restart them.


@pytest.mark.parametrize("count", [3, 4])
def test_nodes_that_restart_together_join_again_by_one_plan(count: int) -> None:
    """Each begins outside the overlay, as after a power cut; nobody orders anything."""

    async def steps(site: MemorySite) -> None:
        fleet = site.fleet
        running = RunningLoop(fleet, replace(QUICK_MEMBERS, batch_ms=TOGETHER_MS))
        async with running.beside(site) as controller:
            heard = running.loop.state.windows_closed
            while running.loop.state.windows_closed < heard + 2:  # All report from their first incarnations.
                await asyncio.sleep(STEP_S)
            for broker in BROKERS[:count]:
                await fleet.kill(broker)
            for broker in BROKERS[:count]:
                site.connectors[broker] = MemoryConnector()
                site.connectors[broker].want("data.*")
                await fleet.begin_node(broker, site.connectors[broker], is_outside=True)
            while not running.loop.state.plan_log.in_force or not all(
                fleet.nodes[broker].core.takes_clients for broker in BROKERS
            ):
                assert not controller.done(), controller.result()
                await asyncio.sleep(STEP_S)
        (plan,) = running.loop.state.plan_log.plans
        assert (plan.brokers_lost, plan.brokers_target) == (BROKERS[:count], BROKERS)

    run_site(steps)
