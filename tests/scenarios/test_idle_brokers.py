"""Idle brokers send less, and nothing shows it: every window has the same rows and closes at the same moment."""

import random
import zlib
from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from regraft.producers.emulator.due_heartbeats import HeartbeatRule
from regraft.producers.emulator.outage_schedule import outage_of
from regraft.producers.emulator.place_overlay import place_overlay
from regraft.producers.virtual_overlay import VirtualOverlay, VirtualSettings
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.schemas.telemetry import TelemetryBatch
from regraft.streaming.decide_closing import Closing, RowTimes, advance
from regraft.streaming.reference_aggregator import ReferenceAggregator, ReferenceWindow

BROKERS = 6
WINDOW_MS, GRACE_MS, FLUSH_MS = 5_000, 2_000, 250.0
RULE = HeartbeatRule(FLUSH_MS, WINDOW_MS, GRACE_MS)
RUN_MS = 60_000
TRANSIT_MS = 40
BUSY = WorkloadSettings(publisher_count=4, notifications_per_s=10.0, interested_broker_count=4, lifetime_s_mean=3.0)
CALM = WorkloadSettings(publisher_count=3, notifications_per_s=0.5, interested_broker_count=2, lifetime_s_mean=60.0)


def telemetry(
    workload: WorkloadSettings | None,
    heartbeats: HeartbeatRule | None,
    outages: Sequence[str] = (),
    brokers: int = BROKERS,
) -> list[TelemetryBatch]:
    settings = VirtualSettings(
        seed=4,
        heartbeats=heartbeats,
        candidate_probes_per_s=40.0,
        outages=tuple(outage_of(text) for text in outages),
    )
    virtual = VirtualOverlay(place_overlay(brokers, 4, random.Random(4)), workload, settings)
    virtual.run_for(RUN_MS)
    return list(virtual.telemetry.batches)


def windows(batches: Sequence[TelemetryBatch]) -> list[ReferenceWindow]:
    aggregator = ReferenceAggregator(WINDOW_MS, GRACE_MS)
    for batch in batches:
        aggregator.take(msgspec.to_builtins(batch))
    return aggregator.advance()


def closings(batches: Sequence[TelemetryBatch]) -> list[tuple[int, int]]:
    """Return the windows' ends and when each was closed, by Kafka's time, if the job always has read everything."""
    closing, found = Closing.awaiting(sorted({batch.broker for batch in batches})), []
    for kafka_ms, batch in sorted(((received_ms(batch), batch) for batch in batches), key=lambda pair: pair[0]):
        before_ms = closing.closed_ms
        closing = advance(closing, rows_of(batch, kafka_ms), WINDOW_MS, GRACE_MS, waits_for_all=True)
        if before_ms < closing.closed_ms:
            found.append((closing.closed_ms, kafka_ms))
    return found


def received_ms(batch: TelemetryBatch) -> int:
    return batch.time_ms + TRANSIT_MS + zlib.crc32(f"{batch.broker} {batch.time_ms}".encode()) % TRANSIT_MS


def rows_of(batch: TelemetryBatch, kafka_ms: int) -> RowTimes:
    own_ms = batch.time_ms - batch.time_ms % WINDOW_MS
    with_cells = {cell.second * 1_000 // WINDOW_MS * WINDOW_MS for cell in batch.cells()}
    starts_ms = sorted({own_ms, *with_cells})
    count = len(starts_ms)
    return RowTimes(
        pa.array([batch.broker] * count).dictionary_encode(),
        np.full(count, min(batch.time_ms, kafka_ms), dtype=np.int64),
        np.full(count, kafka_ms, dtype=np.int64),
        np.array(starts_ms, dtype=np.int64),
        np.array([start_ms in with_cells for start_ms in starts_ms]),
    )


@pytest.mark.parametrize("workload", [BUSY, CALM, None])
def test_windows_show_the_same(workload: WorkloadSettings | None) -> None:
    """Deliveries, rates and lengths of queues, round trips and clients: only batches are fewer."""
    every, some = (windows(telemetry(workload, heartbeats)) for heartbeats in (None, RULE))
    assert len(every) == RUN_MS // WINDOW_MS - 1
    assert [window.rows for window in some] == [window.rows for window in every]
    for fewer, more in zip(some, every, strict=True):
        assert [(one.broker, one.boot, one.epoch_min, one.epoch_max) for one in fewer.marker.brokers] == [
            (one.broker, one.boot, one.epoch_min, one.epoch_max) for one in more.marker.brokers
        ]
        assert all(one.received == one.expected for one in fewer.marker.brokers)


@pytest.mark.parametrize(
    ("workload", "outages"),
    [
        (BUSY, ()),
        (CALM, ()),
        (None, ()),
        (CALM, ("death b3 at 22 for 20",)),
        (CALM, ("suspension b3,b5 at 22 for 20",)),
        (None, ("death b3 at 22 for 20",)),
    ],
)
def test_windows_close_at_the_same_moment(workload: WorkloadSettings | None, outages: tuple[str, ...]) -> None:
    """Whether all brokers have passed them, or the grace ends the wait for one that is down."""
    every, some = (closings(telemetry(workload, heartbeats, outages)) for heartbeats in (None, RULE))
    assert len(every) >= RUN_MS // WINDOW_MS - 2
    assert some == every


@pytest.mark.parametrize("outages", [(), ("death b1 at 22 for 20",)])
def test_windows_of_a_pair_close_at_the_same_moment(outages: tuple[str, ...]) -> None:
    """Only the one broker's next flush can show that the grace, counted from Kafka's time, is over."""
    every, some = (closings(telemetry(None, heartbeats, outages, brokers=2)) for heartbeats in (None, RULE))
    assert len(every) >= RUN_MS // WINDOW_MS - 2
    assert some == every


def test_an_idle_overlay_sends_three_fifths() -> None:
    """2.4 batches of each broker a second instead of four, and with traffic nearly as many as before."""
    counts = {workload: len(telemetry(workload, RULE)) / BROKERS / (RUN_MS / 1_000) for workload in (None, BUSY)}
    assert counts[None] == pytest.approx(2.4, abs=0.05)
    assert counts[BUSY] > 3.5


def test_a_delivery_is_reported_as_soon_as_ever() -> None:
    """At the flush after it, however long its broker had nothing to report."""
    every, some = (telemetry(CALM, heartbeats) for heartbeats in (None, RULE))
    reports = [
        Counter((batch.broker, batch.time_ms, batch.deliveries) for batch in batches if batch.deliveries)
        for batches in (every, some)
    ]
    assert reports[0] == reports[1]
    assert 20 < len(reports[0]) < len(some) / 3
