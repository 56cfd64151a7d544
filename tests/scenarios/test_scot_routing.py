"""Brokers of a structured cyclic overlay on the emulator: all subscribers get everything once under any congestion."""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.link_congestion import QueueWindow
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.producers.brokers.broker_protocol import BrokerProtocol
from regraft.producers.brokers.match_content import Operator, Predicate
from regraft.producers.brokers.scot_routing import ScotBroker
from regraft.producers.emulator.emulate_overlay import inventory_timing
from regraft.producers.emulator.ledger import LedgerSnapshot
from regraft.producers.emulator.meter_queues import LinkMeter
from regraft.producers.emulator.starting_point import StartingPoint
from regraft.producers.virtual_overlay import VirtualOverlay, VirtualSettings
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.schemas.command import Command, CommandPhase, Outcome
from regraft.schemas.plan import Plan, PlanPhase
from tests.overlay.small_overlays import brokers_named, inventory_of, line_of

NAMES = brokers_named(12)
# Four regions around the one of b03, b04 and b05, of one broker in each of three clusters.
SCOT = ScotConfiguration(0, (NAMES[0:3], NAMES[3:6], NAMES[6:9], NAMES[9:12]), ((0, 1), (1, 2), (1, 3)))
INVENTORY: Inventory = replace(inventory_of(line_of(12), {}), bootstrap=SCOT)
BURSTS = WorkloadSettings(publisher_count=10, burst_every_s=10.0, burst_s=3.0, burst_factor=5.0, lifetime_s_mean=5.0)
EVERYTHING = (Predicate("kind", Operator.EQ, "quote"),)
ODD = (*EVERYTHING, Predicate("parity", Operator.EQ, 1))


class _Start(StartingPoint):
    def core_of(self, broker: str, boot_ms: int) -> BrokerProtocol:
        return ScotBroker(broker, SCOT, boot_ms)


def running(workload: WorkloadSettings | None = None, bytes_per_ms: float | None = None) -> VirtualOverlay:
    timing = inventory_timing(INVENTORY, 0.05, bytes_per_ms)
    return VirtualOverlay(INVENTORY, workload, VirtualSettings(start=_Start(SCOT), timing=timing, flush_ms=None))


def cores_of(virtual: VirtualOverlay) -> Iterator[ScotBroker]:
    for broker in virtual.overlay.brokers.values():
        assert isinstance(broker.core, ScotBroker)
        yield broker.core


def test_static_routing_loses_nothing_and_keeps_order() -> None:
    """Subscriptions come and go all the time, with bursts of quotes."""
    virtual = running(BURSTS)
    virtual.run_for(60_000)
    account = virtual.finish()
    assert account.final
    assert account.is_clean, account
    assert account.expected > 1_000


def congest(core: ScotBroker, draw: random.Random) -> None:
    """Let random links of a broker be congested, sometimes none or all of them."""
    share = draw.choice([0.0, 0.3, 0.7, 1.0])
    windows = {
        peer: QueueWindow(20, 1, 20 + draw.randrange(9)) if draw.random() < share else QueueWindow(1, 1, 0)
        for peer in core.live_neighbours
    }
    core.links.observe(windows)


@pytest.mark.parametrize("seed", range(6))
def test_every_subscriber_gets_everything_once_whatever_links_are_congested(seed: int) -> None:
    """No more copies are sent than without congestion: a detour is a copy in place of another one."""
    draw = random.Random(seed)
    virtual = running(BURSTS)
    for _ in range(40):
        for core in cores_of(virtual):
            congest(core, draw)
        virtual.run_for(500)
    account = virtual.finish()
    assert account.final
    assert account.is_clean, account  # Only a detour puts anything out of order.
    assert account.delivered == account.expected > 500
    assert sum(core.links.diverted for core in cores_of(virtual)) > 0


def burst_on_one_broker(*, is_dynamic: bool) -> tuple[LedgerSnapshot, int, int]:
    """One publisher at b03 sends more than its links to other clusters carry, half of it wanted in its own, too."""
    virtual = running(bytes_per_ms=18.0)
    overlay = virtual.overlay
    overlay.advertise("p", "b03", EVERYTHING)
    for home in ("b01", "b04", "b08", "b11", "b02"):
        overlay.subscribe(f"all at {home}", home, EVERYTHING)
    for home in ("b00", "b06"):
        overlay.subscribe(f"odd at {home}", home, ODD)
    virtual.run_for(1_000)
    meter = LinkMeter(overlay)
    if is_dynamic:
        meter.start()
    for number in range(1_000):
        overlay.publish("p", {"kind": "quote", "parity": number % 2}, 200)
        virtual.run_for(10)
    account = virtual.finish()
    return account, overlay.hop_count, sum(core.links.diverted for core in cores_of(virtual))


def test_dynamic_routing_delivers_a_burst_sooner_with_no_more_messages() -> None:
    """Links carry 90 a second and 100 come: those wanted in the own cluster take the others' copies along."""
    static, static_hops, none = burst_on_one_broker(is_dynamic=False)
    dynamic, dynamic_hops, diverted = burst_on_one_broker(is_dynamic=True)
    assert static.is_clean
    assert dynamic.is_clean
    assert static.delivered == dynamic.delivered == dynamic.expected
    assert none == 0 < diverted
    assert dynamic.delivery_ms_mean < static.delivery_ms_mean
    assert dynamic_hops <= static_hops
    assert static.out_of_order == 0
    assert dynamic.out_of_order == dynamic.out_of_order_on_detours > 0  # What it costs: docs/scot.md.


def test_a_broker_reports_what_it_holds() -> None:
    """Its slot is in the field of ring IDs, links between regions in that of a tree's links."""
    virtual = running()
    virtual.send_command(Command("plan-1", CommandPhase.REPORT, "b00", 0, 1))
    virtual.run_for(100)
    (report,) = virtual.results.results
    held = Plan(
        "held", 0, 1, 0, (), (), (), report.links_held, 0.0, 0.0, PlanPhase.COMPLETED, (), ring_target=report.ring_held
    )
    assert report.outcome is Outcome.REPORTED
    assert SCOT.target_of(held) == SCOT.at_epoch(1)
