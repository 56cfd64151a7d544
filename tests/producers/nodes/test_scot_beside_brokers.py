"""Six nodes of a structured cyclic overlay next to real NATS servers and Mosquittos: plans, and a slow link."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.schemas.plan import PlanPhase
from tests.producers.nodes.node_fleet import run_on_site
from tests.producers.nodes.test_nodes_beside_brokers import RealSite
from tests.producers.nodes.test_scot_nodes import EXCHANGED, RELINKED, SIX

pytestmark = pytest.mark.stack

SIZE_BYTES, SLOW_BYTES_PER_S = 1_000, 2_000.0
FLOOD = 400  # Messages, which would take the slow link 200 s: far longer than to publish them on a busy machine.


@pytest.fixture(params=["nats", "mqtt, nats", "amqp, mqtt"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> RealSite:
    return RealSite(request.param, tmp_path, SIX)


def test_plans_exchange_slots_and_links_while_clients_publish(site: RealSite) -> None:
    """Clients of real brokers get everything once and in order, although brokers change clusters and regions links."""

    async def steps(site: RealSite) -> None:
        for node in site.fleet.nodes.values():
            node.congestion.set_detours(False)  # On a busy machine detours would change the order.
        stop = asyncio.Event()
        publishing = asyncio.create_task(site.publish_until(stop))
        for regions, links in ((SIX.regions, RELINKED), (EXCHANGED, RELINKED), (SIX.regions, SIX.region_links)):
            plan = await site.fleet.execute(ScotConfiguration(site.fleet.next_epoch(), regions, links))
            assert plan.phase is PlanPhase.VERIFYING
        stop.set()
        await publishing
        await site.all_there()
        assert site.ledger.account(site.owed()).total() == 0
        assert {node.core.epoch for node in site.fleet.nodes.values()} == {3}
        assert min(site.published.values()) > 20

    run_on_site(site, steps)


def test_clusters_behind_a_slow_link_are_left_to_another_broker(site: RealSite) -> None:
    """A link is slower than what is published: what would wait there takes another way, and all of it comes once."""

    async def steps(site: RealSite) -> None:
        link, node = site.fleet.between["b01", "b02"], site.fleet.nodes["b01"]
        loads = cast(Any, node.core).links
        await site.fleet.all_measured()  # Else the round trip of the idle link is not known.
        link.bytes_per_s = SLOW_BYTES_PER_S
        before = node.links.sample("b02").messages_in
        for _ in range(FLOOD):
            await site.publish("b01", SIZE_BYTES)
            await asyncio.sleep(0.005)
        while loads.diverted <= FLOOD / 2:  # The broker may hand what was published to the node much later.
            await asyncio.sleep(0.01)
        assert node.links.sample("b02").messages_in - before < FLOOD / 2
        link.bytes_per_s = None
        await site.all_there()
        account = site.ledger.account(site.owed())
        assert (account["lost"], account["repeated"], account["unexpected"]) == (0, 0, 0)
        while loads.hot:
            await asyncio.sleep(0.01)
        await site.publish("b01")
        await site.all_there()

    run_on_site(site, steps, [("b01", "b02")])
