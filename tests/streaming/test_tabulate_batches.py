"""Batches decoded by columns give the windows of the reference."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from regraft.schemas.codec import CONFLUENT_HEADER_BYTES
from regraft.schemas.registry import latest_schema
from regraft.schemas.telemetry import Delivery, TelemetryBatch
from regraft.streaming.close_windows import close_windows
from regraft.streaming.decode_columns import decode_columns
from regraft.streaming.merge_parts import merge_parts
from regraft.streaming.reference_aggregator import ReferenceAggregator
from regraft.streaming.streaming_settings import EventBounds
from regraft.streaming.tabulate_batches import is_of, is_sane, kafka_lag_ms, tabulate_batches, with_near_deliveries
from regraft.streaming.unpack_cells import with_cells
from tests.schemas.encode_unchecked import encode_unchecked
from tests.streaming.random_telemetry import BEGIN_MS, WINDOW_MS, as_dicts, lossy, random_telemetry, taken_times_ms

FAR_MS = 1 << 50
NO_BOUNDS = EventBounds(None, None)


def columns_of(batches: Sequence[TelemetryBatch], wanted: Sequence[str] | None = None) -> pa.StructArray:
    """Return batches as read from a recording, packed or not."""
    bodies = [encode_unchecked(batch)[CONFLUENT_HEADER_BYTES:] for batch in batches]
    sizes = np.array([len(body) for body in bodies], dtype=np.int64)
    ends = np.cumsum(sizes)
    return decode_columns(
        b"".join(bodies), ends - sizes, ends, json.loads(latest_schema("TelemetryBatch").text), wanted
    ).rows


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_windows_are_those_of_the_reference(seed: int) -> None:
    """With loss, repeats and disorder all rows and markers equal the reference's one by one."""
    rng = random.Random(seed)
    batches = lossy(rng, random_telemetry(rng))
    reference = ReferenceAggregator(WINDOW_MS, grace_ms=0)
    for batch in as_dicts(batches):
        reference.take(batch)
    table = tabulate_batches(with_cells(columns_of(batches)), WINDOW_MS, 0, FAR_MS)
    found = close_windows(merge_parts(table), WINDOW_MS)
    expected = reference.finish()
    assert [window.rows() for window in found] == [list(window.rows) for window in expected]
    assert [window.marker for window in found] == [window.marker for window in expected]


def test_windows_outside_the_span_are_left_out() -> None:
    """Only windows that start within the span appear, each of them complete."""
    batches = random_telemetry(random.Random(5))
    rows = with_cells(columns_of(batches))
    everything = close_windows(merge_parts(tabulate_batches(rows, WINDOW_MS, 0, FAR_MS)), WINDOW_MS)
    first_ms, end_ms = BEGIN_MS + WINDOW_MS, BEGIN_MS + 2 * WINDOW_MS
    some = close_windows(merge_parts(tabulate_batches(rows, WINDOW_MS, first_ms, end_ms)), WINDOW_MS)
    assert [window.rows() for window in some] == [
        window.rows() for window in everything if first_ms <= window.window.start_ms < end_ms
    ]
    assert len(some) == 1


def test_batches_with_wrong_clocks_are_not_sane() -> None:
    """As in the Spark job, a batch far from Kafka's time is refused, and so is one with an impossible time.

    A delivery far from it has another broker's clock and affects nothing else.
    """
    good = TelemetryBatch("b1", BEGIN_MS, 0, BEGIN_MS, 0)
    late_cell = Delivery("p1", 0, (BEGIN_MS - 90_000) // 1000, 1, 1, 1)
    batches = [
        good,
        TelemetryBatch("b1", BEGIN_MS, 1, BEGIN_MS + 90_000, 0),
        TelemetryBatch("b1", BEGIN_MS, 2, BEGIN_MS, 0, (late_cell,)),
        TelemetryBatch("b1", BEGIN_MS, 3, -1, 0),
        TelemetryBatch("b1", BEGIN_MS, -4, BEGIN_MS, 0),
        TelemetryBatch("b1", BEGIN_MS, 5, BEGIN_MS, 0, (Delivery("p1", 0, -5, 1, 1, 1),)),
        TelemetryBatch("b1", BEGIN_MS, 6, 1 << 60, 0),
    ]
    rows, kafka_ms = columns_of(batches), np.full(len(batches), BEGIN_MS, dtype=np.int64)
    assert is_sane(rows, kafka_ms, EventBounds(1_000, 60_000)).tolist() == [True, False, True, *[False] * 4]
    assert is_sane(rows, kafka_ms, NO_BOUNDS).tolist() == [True, True, True, *[False] * 4]


@pytest.mark.parametrize("seed", [6, 7])
def test_clocks_are_judged_as_by_the_reference(seed: int) -> None:
    """The same batches and deliveries are refused for their times; only clock offsets are not reported."""
    rng = random.Random(seed)
    batches = lossy(rng, random_telemetry(rng))
    taken_ms = taken_times_ms(rng, batches)
    bounds = EventBounds(1_000, 3_600_000)
    reference = ReferenceAggregator(WINDOW_MS, 0, bounds)
    for batch, time_ms in zip(as_dicts(batches), taken_ms, strict=True):
        reference.take(batch, time_ms)
    rows, kafka_ms = columns_of(batches), np.array(taken_ms, dtype=np.int64)
    sane = is_sane(rows, kafka_ms, bounds)
    near = with_near_deliveries(with_cells(rows.filter(pa.array(sane))), kafka_ms[sane], bounds)
    found = close_windows(merge_parts(tabulate_batches(near, WINDOW_MS, 0, FAR_MS)), WINDOW_MS)
    expected = [window for window in reference.finish() if window.marker.brokers or window.rows]
    assert [window.rows() for window in found] == [list(window.rows) for window in expected]
    assert [window.marker.brokers for window in found] == [window.marker.brokers for window in expected]


def test_kafkas_lag_is_measured() -> None:
    """The lag is that of the earliest delivery after Kafka's time, and of the batch's own time before it."""
    cell = Delivery("p1", 0, BEGIN_MS // 1000 - 7, 1, 1, 1)
    batches = [TelemetryBatch("b1", 1, 0, BEGIN_MS, 0, (cell,)), TelemetryBatch("b1", 1, 1, BEGIN_MS + 500, 0)]
    assert kafka_lag_ms(columns_of(batches), np.array([BEGIN_MS, BEGIN_MS])) == (7_000, 500)
    assert kafka_lag_ms(columns_of([]), np.zeros(0, dtype=np.int64)) == (0, 0)


def test_batches_of_unknown_brokers_are_distinguished() -> None:
    """A name that is not in the inventory is unknown; without batches the answer is empty."""
    batches = [TelemetryBatch(broker, 1, 0, BEGIN_MS, 1) for broker in ("b1", "invented", "b2", "b1")]
    assert is_of(columns_of(batches), ("b1", "b2", "b3")).tolist() == [True, False, True, True]
    assert is_of(columns_of([]), ("b1",)).tolist() == []
