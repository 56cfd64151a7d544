"""Clients of agents on a structured cyclic overlay of six nodes next to real Mosquittos."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.schemas.plan import ClientMove, Plan, PlanPhase
from tests.producers.nodes.mqtt_brokers import needs_mosquitto
from tests.producers.nodes.mqtt_site import MqttSite, mqtt_site
from tests.producers.nodes.test_mqtt_clients_move import Traffic, settle, until
from tests.producers.nodes.test_scot_nodes import EXCHANGED, RELINKED, SIX

pytestmark = pytest.mark.stack


async def _execute(site: MqttSite, overlay: ScotConfiguration, home: str, target: str) -> Plan:
    moves = [ClientMove(name, home, target) for name in site.movable(home)]
    assert len(moves) == 2
    return await site.fleet.execute(overlay, moves=moves)


@pytest.mark.parametrize(("version", "qos"), [(4, 0), (5, 1)])
def test_clients_move_with_slots_and_links_and_not_without(version: int, qos: int, tmp_path: Path) -> None:
    """No planner moves them, but brokers can, without a loss; a plan that does nothing else is refused with why."""
    needs_mosquitto()
    asyncio.run(_move(version, qos, tmp_path))


async def _move(version: int, qos: int, directory: Path) -> None:
    async with mqtt_site(directory, SIX) as site:
        for node in site.fleet.nodes.values():
            node.congestion.set_detours(False)  # On a busy machine detours would change the order.
        agent, traffic = await site.agent("b02"), Traffic(site)
        await traffic.connect()
        moving = {}
        for name in ("c0", "c1"):
            client = moving[name] = await site.connect(agent.port, name, partial(traffic.take, name), version)
            await client.subscribe("data/+", qos)
        await until(lambda: len(site.movable("b02")) == 2)
        await site.fleet.all_confirmed()
        publishing = asyncio.create_task(traffic.publish_all(moving, qos))
        home = "b02"
        for target, regions in (("b03", SIX.regions), ("b06", EXCHANGED)):
            await asyncio.sleep(0.5)
            overlay = ScotConfiguration(site.fleet.next_epoch(), regions, RELINKED)
            assert (await _execute(site, overlay, home, target)).phase is PlanPhase.VERIFYING
            await until(lambda: {session.homes.home for session in agent.sessions} == {target})  # noqa: B023
            home = target
        plan = await _execute(site, ScotConfiguration(site.fleet.next_epoch(), EXCHANGED, RELINKED), home, "b01")
        assert plan.phase is PlanPhase.ABORTED
        assert "cannot move to b01: the plan changes no slot and no link" in plan.history[1].reason
        await asyncio.sleep(0.5)
        traffic.stop.set()
        await publishing
        wrong = await settle(traffic.ledger, traffic.owed(*moving))
        assert not any(wrong.values()), (wrong, agent.counts)
        assert {session.homes.home for session in agent.sessions} == {home}
        await agent.close()
        assert not site.fleet.failures
