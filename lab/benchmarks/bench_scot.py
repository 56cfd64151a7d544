"""Compare static and dynamic routing of a burst on a structured cyclic overlay, in pairs, on the virtual clock.

``python -m lab.benchmarks.bench_scot [--draws N] [--factor F] [--bytes-per-ms B] [--json FILE]``. A few publishers
publish at high rates, with real quotes and subscriptions. Brokers are PlanetLab hosts, ten times as fast as in the
demo, so that links congest rather than brokers. The reference of the Spark job aggregates telemetry to windows of one
second. Each draw runs twice, with the same overlay, clients and quotes. Delays are those of the burst's notifications;
the drain time runs from the burst's end until all of them are delivered. ``hold_ms`` is the delay between an overtaken
notification and the one that overtook it: restoring the order at the edge would delay all notifications by this.
Asserts that nothing is lost or repeated.
"""

import argparse
import random
import sys
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import numpy as np

from regraft.api.brokers import BrokerProtocol, ClientRequest, Deliver, Effect, Message, ScotBroker
from regraft.api.cyclic import PRODUCT, ScotConfiguration
from regraft.api.emulation import (
    CONTROL_SERVICE_MS,
    LinkMeter,
    ReferenceAggregator,
    StartingPoint,
    VirtualOverlay,
    VirtualSettings,
    WorkloadSettings,
    inventory_timing,
    place_scot,
)
from regraft.api.overlays import Inventory
from regraft.api.programs import Figure, run_facts, show_progress, write_figures
from regraft.api.transitions import Command

WINDOW_MS, GRACE_MS = 1_000, 2_000
PUBLISHERS, RATE_PER_S = 5, 20.0
PROCESSING_MS = (0.1, 0.3)
BURST_BEGINS_S, BURST_S, AFTER_S = 50.0, 10.0, 35.0
# The threshold of the built-in alert and the veto, above the paper's: the queue also counts messages in transit.
LINK_RULE = replace(PRODUCT, threshold=100.0)


@dataclass
class Deliveries:
    """The deliveries: sequence number, publish and delivery time, by (publisher, subscription)."""

    taken: dict[tuple[str, str], list[tuple[int, float, float]]] = field(default_factory=lambda: defaultdict(list))

    def all_ms(self) -> np.ndarray:
        """Return publish and delivery times, shape (deliveries, 2)."""
        return np.array([each[1:] for taken in self.taken.values() for each in taken])

    def late_ms(self) -> np.ndarray:
        """Return for each overtaken delivery how long after the first later notification it arrived."""
        found = []
        for taken in self.taken.values():
            first_ms: dict[int, float] = {}
            for sequence, _, arrived_ms in sorted(taken, reverse=True):
                overtaken_ms = min(first_ms.values(), default=arrived_ms)
                if overtaken_ms < arrived_ms:
                    found.append(arrived_ms - overtaken_ms)
                first_ms = {sequence: min(overtaken_ms, arrived_ms)}
        return np.array(found)


class MeasuredBroker(ScotBroker):
    """A broker that records its deliveries."""

    deliveries: Deliveries

    def handle(self, source: str | None, message: Message | ClientRequest | Command, now_ms: float) -> list[Effect]:
        """Handle one message like any broker, and record the deliveries among its effects."""
        effects = super().handle(source, message, now_ms)
        for effect in effects:
            if isinstance(effect, Deliver):
                one = effect.notification
                for subscription in effect.subscriptions:
                    taken = self.deliveries.taken[one.publisher, subscription]
                    taken.append((one.sequence, one.publish_ms, now_ms))
        return effects


@dataclass(frozen=True)
class MeasuredStart(StartingPoint):
    """A starting point whose brokers are measured."""

    deliveries: Deliveries = field(default_factory=Deliveries)

    def core_of(self, broker: str, boot_ms: int) -> BrokerProtocol:
        """Return a measured broker."""
        assert isinstance(self.configuration, ScotConfiguration)
        core = MeasuredBroker(broker, self.configuration, boot_ms)
        core.deliveries = self.deliveries
        return core


def count_congestion(virtual: VirtualOverlay) -> tuple[int, int]:
    """Return how often congestion of a link began and ended according to windowed telemetry."""
    aggregator = ReferenceAggregator(WINDOW_MS, GRACE_MS)
    for batch in virtual.telemetry.batches:
        aggregator.take(msgspec.to_builtins(batch))
    hot: set[tuple[str, str]] = set()
    raised = cleared = 0
    for window in aggregator.finish():
        for row in window.rows:
            if row.queue is None or not row.queue.peer:
                continue
            pair = (row.queue.broker, row.queue.peer)
            is_hot = LINK_RULE.is_above(row.queue.congestion, was=pair in hot)
            raised += is_hot and pair not in hot
            cleared += pair in hot and not is_hot
            hot = hot | {pair} if is_hot else hot - {pair}
    return raised, cleared


def run(inventory: Inventory, seed: int, factor: float, bytes_per_ms: float, *, is_dynamic: bool) -> dict[str, float]:
    """Return the figures of one run by name; names of times end in their unit."""
    workload = WorkloadSettings(
        publisher_count=PUBLISHERS,
        notifications_per_s=RATE_PER_S,
        burst_every_s=BURST_BEGINS_S,
        burst_s=BURST_S,
        burst_factor=factor,
    )
    start = MeasuredStart(inventory.bootstrap)
    timing = inventory_timing(inventory, CONTROL_SERVICE_MS, bytes_per_ms)
    settings = VirtualSettings(seed=seed, start=start, timing=timing, settle_ms=300_000.0)
    virtual = VirtualOverlay(inventory, workload, settings)
    meter = LinkMeter(virtual.overlay)
    if is_dynamic:
        meter.start()
    virtual.run_for((BURST_BEGINS_S + BURST_S + AFTER_S) * 1000)
    account = virtual.finish(drain_ms_max=300_000.0)
    meter.stop()
    published_ms, arrived_ms = start.deliveries.all_ms().T
    burst_from_ms = settings.start_ms + BURST_BEGINS_S * 1000
    burst_to_ms = burst_from_ms + BURST_S * 1000
    in_burst = (published_ms >= burst_from_ms) & (published_ms < burst_to_ms)
    delays_ms = (arrived_ms - published_ms)[in_burst]
    late_ms = start.deliveries.late_ms()
    raised, cleared = count_congestion(virtual)
    cores = [broker.core for broker in virtual.overlay.brokers.values() if isinstance(broker.core, ScotBroker)]
    return {
        "delay_ms_p95": float(np.percentile(delays_ms, 95)),
        "delay_ms_mean": float(delays_ms.mean()),
        "drain_s": max(float(arrived_ms[in_burst].max()) - burst_to_ms, 0.0) / 1000,
        "messages": virtual.overlay.hop_count,
        "diverted": sum(core.links.diverted for core in cores),
        "lost": account.lost,
        "repeated": account.repeated,
        "deliveries": account.delivered,
        "out_of_order": account.out_of_order,
        "overtaken": len(late_ms),
        "hold_ms_p95": float(np.percentile(late_ms, 95)) if len(late_ms) else 0.0,
        "hold_ms_max": float(late_ms.max(initial=0.0)),
        "congestion_raised": raised,
        "congestion_cleared": cleared,
        "is_final": account.final,
    }


def main() -> None:
    """Measure, print a table, write the figures; exit with 1 if anything was lost or repeated."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--brokers", type=int, default=40)
    parser.add_argument("--clusters", type=int, default=4)
    parser.add_argument("--factor", type=float, default=5.0, help="how much more is published in the burst")
    parser.add_argument("--bytes-per-ms", type=float, default=20.0, help="bandwidth of a link in each direction")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    figures: list[Figure] = []
    with show_progress("running", 2 * chosen.draws) as advance:
        for draw in range(chosen.draws):
            seed = chosen.seed + draw
            inventory = place_scot(chosen.brokers, chosen.clusters, random.Random(seed), PROCESSING_MS)
            for number, routing in enumerate(("static", "dynamic")):
                advance(f"draw {draw}, {routing}", 2 * draw + number)
                found = run(inventory, seed, chosen.factor, chosen.bytes_per_ms, is_dynamic=routing == "dynamic")
                figures += [
                    Figure(name, {"draw": draw, "routing": routing}, value, "") for name, value in found.items()
                ]
    for name in dict.fromkeys(figure.name for figure in figures):
        values = {
            routing: [
                f"{one.value:,.0f}" if one.value >= 100 else f"{one.value:.2f}"
                for one in figures
                if one.name == name and one.where["routing"] == routing
            ]
            for routing in ("static", "dynamic")
        }
        print(f"{name:20} static {' '.join(values['static']):36} dynamic {' '.join(values['dynamic'])}")
    if chosen.json:
        settings = {
            "brokers": chosen.brokers,
            "clusters": chosen.clusters,
            "factor": chosen.factor,
            "bytes_per_ms": chosen.bytes_per_ms,
            "draws": chosen.draws,
        }
        write_figures(chosen.json, run_facts(settings, chosen.seed), figures)
    sys.exit(1 if any(one.value for one in figures if one.name in ("lost", "repeated")) else 0)


if __name__ == "__main__":
    main()
