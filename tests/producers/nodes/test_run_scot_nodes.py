"""Nodes of a structured cyclic overlay as processes, next to real NATS servers, with a real Kafka."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from regraft.infra.local.kafka_server import RunningKafka
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.producers.node_settings import NodeSettings
from regraft.producers.nodes.node_setup import NodeError
from regraft.producers.run_node import run_node
from regraft.schemas.plan import PlanPhase
from tests.overlay.small_overlays import inventory_of
from tests.producers.nodes.nats_servers import needs_nats
from tests.producers.nodes.test_run_node import NodeProcesses, Traffic

BROKERS = ("b01", "b02", "b03", "b04")
SQUARE = ScotConfiguration(0, (("b01", "b02"), ("b03", "b04")), ((0, 1),))
CROSSED = ScotConfiguration(1, (("b03", "b02"), ("b01", "b04")), ((0, 1),))
INVENTORY: Inventory = replace(inventory_of(SQUARE, {}), clients_stay=True)


@pytest.mark.parametrize(
    ("inventory", "groups", "reason"),
    [
        (INVENTORY, ("workers",), "node.groups_once is set"),
        (replace(INVENTORY, clients_stay=False), (), 'without "clients_stay": true'),
        (replace(INVENTORY, bootstrap=RingConfiguration.hashed(0, 32, BROKERS)), (), "has a ring"),
    ],
    ids=["groups", "clients that move", "ring"],
)
def test_what_no_node_can_run_stops_its_start(
    inventory: Inventory, groups: tuple[str, ...], reason: str, tmp_path: Path
) -> None:
    """It is refused where it is read, before anything is connected to."""
    inventory.save(tmp_path / "inventory.json")
    settings = NodeSettings(
        "none:1", tmp_path / "inventory.json", tmp_path / "node.json", broker="b01", groups_once=groups
    )
    with pytest.raises(NodeError, match=reason):
        run_node(settings, threading.Event())


@pytest.mark.stack
def test_nodes_exchange_slots_without_a_loss(kafka: RunningKafka, tmp_path: Path) -> None:
    """They read the overlay from the inventory and commands from Kafka, and measure their links."""
    needs_nats()
    site = NodeProcesses(tmp_path, kafka, "scot", inventory=INVENTORY)

    async def steps() -> None:
        traffic = Traffic(site)
        await traffic.begin()
        for broker in BROKERS:
            site.begin(broker)
        site.wait(lambda: all(site.status(broker).get("is_in_overlay") for broker in BROKERS), "four nodes")
        pairs = [(a, b) for a in BROKERS for b in BROKERS]
        stop = asyncio.Event()
        publishing = asyncio.create_task(traffic.publish_until(stop, BROKERS))
        while not all(pair in traffic.ledger.came for pair in pairs):  # Until all subscriptions are known everywhere.
            await asyncio.sleep(0.05)
        stop.set()
        await publishing
        before = dict(traffic.published)
        stop.clear()
        publishing = asyncio.create_task(traffic.publish_until(stop, BROKERS))
        assert await asyncio.to_thread(site.execute, CROSSED) is PlanPhase.VERIFYING
        stop.set()
        await publishing
        owed = {(a, b): range(before[a], traffic.published[a]) for a, b in pairs}
        await traffic.wait_for(owed)
        account = traffic.ledger.account(owed)
        assert (account["lost"], account["repeated"]) == (0, 0)  # On a busy machine, detours may change the order.
        site.wait(lambda: {site.status(broker)["epoch"] for broker in BROKERS} == {1}, "epoch 1")
        assert all("clusters_diverted" in site.status(broker)["messages"] for broker in BROKERS)
        await traffic.close()

    try:
        asyncio.run(steps())
    finally:
        site.close()
