"""Nodes of a structured cyclic overlay with connectors in memory: plans, cuts, deaths, detours."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any, cast

import pytest

from regraft.overlay.overlay_configuration import NO_CHANGE, BrokerChange
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.producers.brokers.broker_messages import Notification
from regraft.producers.brokers.broker_reports import ProtocolError
from regraft.producers.brokers.scot_routing import LinkLoads, ScotBroker
from regraft.producers.emulator.place_overlay import place_overlay, place_ring, place_scot
from regraft.producers.nodes.connectors.subject_filters import filter_of
from regraft.producers.nodes.node_kinds import kind_error, subscriptions_in
from regraft.schemas.plan import PlanPhase
from tests.producers.nodes.test_broker_node import MemorySite, run_site

SIX = ScotConfiguration(0, (("b01", "b02"), ("b03", "b04"), ("b05", "b06")), ((0, 1), (1, 2)))
RELINKED = ((0, 1), (0, 2))
EXCHANGED = (("b01", "b02"), ("b04", "b06"), ("b05", "b03"))  # b03 and b06 have exchanged their slots.
EXCHANGED_AGAIN = (("b06", "b02"), ("b04", "b01"), ("b05", "b03"))


def loads_of(site: MemorySite, broker: str) -> LinkLoads:
    return cast(Any, site.fleet.nodes[broker].core).links


async def change(site: MemorySite, regions: Any, links: Any, change: BrokerChange = NO_CHANGE) -> None:
    plan = await site.fleet.execute(ScotConfiguration(site.fleet.next_epoch(), regions, links), change)
    assert plan.phase is PlanPhase.VERIFYING


def test_a_peer_cannot_leave_clusters_to_a_broker_that_does_not_reach_them() -> None:
    """Neither its own one nor one that does not exist: the message is impossible, and refused alone."""
    core = ScotBroker("b01", SIX, 0)
    message = Notification("p", 0, 1.0, "b02", 0, {}, 1)
    assert core.handle("b02", message.routed(0b10, is_detour=True), 0.0)
    for vector in (0b01, 0b11, 0b100):
        with pytest.raises(ProtocolError):
            core.handle("b02", message.routed(vector, is_detour=True), 0.0)


def test_a_connector_asks_for_everything_while_a_cluster_wants_something() -> None:
    """Its broker does not know what others want there, only that they do; what its own cluster wants it knows."""

    async def steps(site: MemorySite) -> None:
        await site.fleet.all_confirmed()
        listed = {
            broker: {(each.filter_, each.is_elsewhere) for each in subscriptions_in(node.core)}
            for broker, node in site.fleet.nodes.items()
        }
        wanted = filter_of("data.*")
        expected = {(wanted, True), (wanted, False), ((), True)}
        assert all(each == expected for each in listed.values())

    run_site(steps, SIX)


def test_nodes_run_on_trees_and_structured_cyclic_overlays() -> None:
    """Whatever else an inventory or a setting asks for stops the start, with a reason."""
    scot = replace(place_scot(8, 2, random.Random(1)), clients_stay=True)
    assert kind_error(scot) == ""
    assert kind_error(place_overlay(4, 3, random.Random(1)), has_groups_once=True) == ""
    assert "groups_once" in kind_error(scot, has_groups_once=True)
    assert "clients_stay" in kind_error(replace(scot, clients_stay=False))
    assert kind_error(place_ring(4, random.Random(1))).startswith("a ring")


def test_plans_with_cuts_lose_nothing() -> None:
    """Slots are exchanged and regions relinked while all publish and links are cut: nothing is lost or repeated.

    With static routing nothing is reordered, either.
    """
    for is_dynamic in (False, True):
        run_site(lambda site, is_dynamic=is_dynamic: _exchange(site, is_dynamic), SIX)  # type: ignore[misc]


async def _exchange(site: MemorySite, is_dynamic: bool) -> None:
    rng = random.Random(33)
    brokers = SIX.brokers
    for broker in brokers:
        site.fleet.nodes[broker].congestion.set_detours(is_dynamic)
    await site.fleet.all_confirmed()
    is_over = False

    async def publish() -> None:
        while not is_over:
            for broker in brokers:
                site.publish(broker)
            await asyncio.sleep(0.005)

    async def cut() -> None:
        while not is_over:
            await asyncio.sleep(rng.uniform(0.02, 0.08))
            site.fleet.proxies[rng.choice(brokers)].cut()

    others = [asyncio.create_task(publish()), asyncio.create_task(cut())]
    for regions, links in (
        (SIX.regions, RELINKED), (EXCHANGED, RELINKED), (EXCHANGED, SIX.region_links),
        (EXCHANGED_AGAIN, RELINKED), (SIX.regions, SIX.region_links),
    ):  # fmt: skip
        await change(site, regions, links)
        await asyncio.sleep(0.05)
    is_over = True
    await asyncio.gather(*others)
    await site.all_there()
    await asyncio.sleep(0.1)
    account = site.ledger().account(site.owed())
    if is_dynamic:
        del account["out_of_order"]
    assert account.total() == 0
    assert {node.core.epoch for node in site.fleet.nodes.values()} == {5}
    assert sum(node.links.counts["cut"] for node in site.fleet.nodes.values()) > 0


def test_a_stand_in_takes_the_place_of_a_dead_node_until_it_returns() -> None:
    """What others publish to one another arrives, and the next incarnation gets all messages from its plan on."""

    async def steps(site: MemorySite) -> None:
        fleet = site.fleet
        await fleet.all_confirmed()
        await fleet.kill("b04")
        others = [broker for broker in SIX.brokers if broker != "b04"]
        regions = (("b01", "b02"), ("b03", "b02"), ("b05", "b06"))
        await change(site, regions, SIX.region_links, BrokerChange(lost=frozenset({"b04"})))
        for _ in range(20):
            for broker in others:
                site.publish(broker)
        away = {(a, b): numbers for (a, b), numbers in site.owed().items() if "b04" not in (a, b)}
        while any(site.ledger().account(away).values()):
            await asyncio.sleep(0.01)
        connector = site.connectors["b04"] = type(site.connectors["b04"])()
        connector.want("data.*")
        await fleet.begin_node("b04", connector, is_outside=True)
        await change(site, SIX.regions, SIX.region_links, BrokerChange(joined=frozenset({"b04"})))
        await fleet.all_confirmed()
        before = dict(site.published)
        for _ in range(20):
            for broker in SIX.brokers:
                site.publish(broker)
        owed = {(a, b): range(before[a] if b == "b04" else 0, numbers.stop) for (a, b), numbers in site.owed().items()}
        while any(site.ledger().account(owed).values()):
            await asyncio.sleep(0.01)

    run_site(steps, SIX)


def test_a_cut_link_between_clusters_is_bypassed() -> None:
    """Meanwhile what is published takes detours; once the link is back, what waited there comes as well, each once."""

    async def steps(site: MemorySite) -> None:
        link = site.fleet.between["b01", "b02"]
        await site.fleet.all_confirmed()
        link.is_refusing = True
        link.cut()
        loads = loads_of(site, "b01")
        while not loads.hot:
            site.publish("b01")
            await asyncio.sleep(0.005)
        first = site.published["b01"]
        for _ in range(50):
            site.publish("b01")

        def came() -> set[int]:
            return {int(each.payload) for each in site.connectors["b02"].handed if each.home == "b01"}

        while not came() >= set(range(first, first + 50)):
            await asyncio.sleep(0.01)
        assert not came() >= set(range(first))
        assert loads.diverted >= 50
        link.is_refusing = False
        await site.all_there()
        await asyncio.sleep(0.1)
        account = site.ledger().account(site.owed())
        del account["out_of_order"]
        assert account.total() == 0
        while loads.hot:
            await asyncio.sleep(0.01)
        for _ in range(50):
            site.publish("b01")
        await site.all_there()
        node = site.fleet.nodes["b01"]
        node.flush()
        reported = {probe.peer: probe.rtt_ms for probe in site.fleet.ports["b01"].telemetry.batches[-1].probes}
        assert reported["b02"] == node.links.standing("b02").least_rtt_ms  # Without what waited in queues.
        assert node.counts["clusters_diverted"] == loads.diverted
        assert node.counts["congested_link_windows"] > 0

    run_site(steps, SIX, [("b01", "b02")])
