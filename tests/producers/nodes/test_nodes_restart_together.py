"""Nodes in memory and the control loop: a site whose nodes restart at the same time carries messages again."""

from __future__ import annotations

import asyncio

import pytest

from regraft.producers.nodes.connectors import MemoryConnector
from tests.producers.nodes.test_broker_node import BROKERS, MemorySite, run_site
from tests.producers.nodes.test_taken_for_dead import STEP_S, RunningLoop


@pytest.mark.parametrize("count", [3, 4])
def test_nodes_that_restart_together_join_again_by_one_plan(count: int) -> None:
    """Each begins outside the overlay, as after a power cut; nobody orders anything."""

    async def steps(site: MemorySite) -> None:
        fleet = site.fleet
        running = RunningLoop(fleet)
        async with running.beside(site) as controller:
            await asyncio.sleep(1.5)  # A window in which all report from their first lives.
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
