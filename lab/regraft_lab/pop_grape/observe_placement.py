"""Run the workload with a placement of publishers on the virtual clock, and observe it as the controller would.

Brokers, telemetry, aggregates and windows are those of the running system; only the clock is virtual.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from regraft.api.emulation import (
    CONTROL_SERVICE_MS,
    ReferenceAggregator,
    VirtualOverlay,
    VirtualSettings,
    WindowAssembler,
    inventory_timing,
)
from regraft.api.overlays import Inventory
from regraft.api.planning import AssemblyLimits, ClosedWindow
from regraft.api.trees import bootstrap_tree
from regraft_lab.pop_grape.placement_measures import Measures, measured
from regraft_lab.pop_grape.quote_workload import QuoteTraffic, QuoteWorkload

# A minute of the paper takes 5 s here, because run time depends on the number of events. So a publisher of 8 quotes a
# second represents one of 40 a minute.
WINDOW_MS = 5_000
PAPER_WINDOW_S = 60.0
SET_UP_WINDOWS = 2  # Until all brokers know all clients: a round trip of some 12 hops behind thousands of messages.
WARM_UP_WINDOWS = 1
DECIDE_WINDOWS = 5  # POP needs 100 traces, at most 50 per window, mostly fewer; GRAPE needs 100 publications.
MEASURE_WINDOWS = 3
FLUSH_MS = 1_000.0
GRACE_MS = 2_000
DRAIN_MS_MAX = 600_000.0


class LostError(RuntimeError):
    """Notifications were lost or repeated, so the measures are meaningless."""


@dataclass(frozen=True, slots=True)
class Observation:
    """Observations of a placement: the windows to decide on, and the measures of later ones."""

    windows: tuple[ClosedWindow, ...]
    measures: Measures


def observe_placement(
    inventory: Inventory, workload: QuoteWorkload, homes: Mapping[str, str], bytes_per_ms_max: float | None = None
) -> Observation:
    """Run the workload with publishers at ``homes``: windows to decide on, then windows to measure.

    A placement is never measured on the traffic it was chosen for. The delay covers all deliveries from the start of
    the measured windows until nothing is in transit. Deterministic. Raises LostError unless each expected delivery was
    made exactly once.
    """
    virtual = VirtualOverlay(
        inventory,
        settings=VirtualSettings(
            start_ms=1_000.0 * WINDOW_MS,  # Aligned to a window.
            flush_ms=FLUSH_MS,
            settle_ms=DRAIN_MS_MAX,
            timing=inventory_timing(inventory, CONTROL_SERVICE_MS, bytes_per_ms_max),
        ),
    )
    publish_ms = virtual.now_ms + SET_UP_WINDOWS * WINDOW_MS
    decide_ms = publish_ms + WARM_UP_WINDOWS * WINDOW_MS
    measure_ms = decide_ms + DECIDE_WINDOWS * WINDOW_MS
    end_ms = measure_ms + MEASURE_WINDOWS * WINDOW_MS
    traffic = QuoteTraffic(virtual.overlay, workload.at_homes(homes), publish_ms)
    traffic.start()
    virtual.run_until(measure_ms)
    before = virtual.ledger.snapshot()
    virtual.run_until(end_ms)
    traffic.stop()
    account = virtual.finish(DRAIN_MS_MAX)
    if not account.is_clean:
        raise LostError(f"a delivery was lost or repeated: nothing to measure: {account}")
    delivered = account.delivered - before.delivered
    delay_ms_sum = account.delivery_ms_mean * account.delivered - before.delivery_ms_mean * before.delivered
    windows = _closed_windows(virtual, inventory)
    return Observation(
        tuple(window for window in windows if decide_ms <= window.start_ms < measure_ms),
        measured(
            [window for window in windows if measure_ms <= window.start_ms < end_ms],
            bootstrap_tree(inventory),
            inventory,
            delay_ms_sum / max(delivered, 1),
            workload.homes,
        ),
    )


def _closed_windows(virtual: VirtualOverlay, inventory: Inventory) -> list[ClosedWindow]:
    """Return the windows aggregated from the brokers' telemetry."""
    aggregator = ReferenceAggregator(WINDOW_MS, GRACE_MS)
    for batch in virtual.telemetry.batches:
        aggregator.take(msgspec.to_builtins(batch))
    assembler = WindowAssembler(inventory.brokers, AssemblyLimits())
    now_ms = int(virtual.now_ms)
    for window in aggregator.finish():
        for row in window.rows:
            assembler.add(row, now_ms)
        assembler.add(window.marker, now_ms)
    return assembler.closed(now_ms)
