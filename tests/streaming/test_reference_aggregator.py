"""The reference aggregator's watermark: what closes a window, and what is late."""

import pytest

from regraft.schemas.telemetry import Delivery, TelemetryBatch
from regraft.streaming.reference_aggregator import ReferenceAggregator, ReferenceWindow
from regraft.streaming.streaming_settings import EventBounds
from tests.streaming.random_telemetry import BEGIN_MS, WINDOW_MS, as_dicts

BOUNDS = EventBounds(1_000, 3_600_000)


def beat(sequence: int, at_ms: int, *deliveries: Delivery) -> dict:
    [batch] = as_dicts([TelemetryBatch("b1", 1, sequence, BEGIN_MS + at_ms, 1, deliveries)])
    return batch


def test_a_window_closes_when_the_grace_has_passed() -> None:
    """With a grace of 2 s a window of 5 s closes at the first event time of 7 s."""
    aggregator = ReferenceAggregator(WINDOW_MS, grace_ms=2_000)
    aggregator.take(beat(0, 100))
    aggregator.take(beat(1, 6_999))
    assert aggregator.advance() == []
    aggregator.take(beat(2, 7_000))
    [window] = aggregator.advance()
    assert (window.marker.window_start_ms, window.marker.brokers[0].received) == (BEGIN_MS, 1)


def test_a_late_part_is_dropped_and_counted_by_the_next_marker() -> None:
    """The rest of its batch counts as usual."""
    aggregator = ReferenceAggregator(WINDOW_MS, grace_ms=0)
    aggregator.take(beat(0, 100))
    aggregator.take(beat(1, 5_000))
    assert [window.marker.late_rows for window in aggregator.advance()] == [0]
    old = Delivery("p", 0, BEGIN_MS // 1_000, 1, 1, 1)
    aggregator.take(beat(2, 5_500, old))
    aggregator.take(beat(3, 300))
    assert aggregator.late_rows == 2
    [window] = aggregator.finish()
    assert (window.marker.late_rows, window.marker.brokers[0].received) == (2, 2)
    assert window.rows == ()


BROKERS = tuple(f"b{number}" for number in range(5))
LATENCY_MS = 300


def run(aggregator: ReferenceAggregator, ahead_ms: dict[str, int], seconds: int) -> list[ReferenceWindow]:
    """Return the windows of five brokers that send four times a second, each by its own clock."""
    windows: list[ReferenceWindow] = []
    for tick in range(4 * seconds):
        sent_ms = BEGIN_MS + tick * 250
        for broker in BROKERS:
            batch = TelemetryBatch(broker, 1, tick, sent_ms + ahead_ms.get(broker, 0), 1)
            aggregator.take(as_dicts([batch])[0], sent_ms + LATENCY_MS)
        windows += aggregator.advance()
    return windows


def short(window: ReferenceWindow) -> set[str]:
    """Return the brokers with fewer than all 20 batches in the window."""
    whole = {entry.broker for entry in window.marker.brokers if entry.received == WINDOW_MS // 250}
    return set(BROKERS) - whole


@pytest.mark.parametrize(
    "ahead_ms", [900, 1_500, 2_000, 3_000, 30_000, 59 * 60_000, -1_500, -3_000, -30_000, -7_200_000]
)
def test_a_wrong_clock_costs_other_brokers_no_window(ahead_ms: int) -> None:
    """Whatever one clock of five shows, the windows of the others are complete, and its own offset is reported."""
    aggregator = ReferenceAggregator(WINDOW_MS, 2_000, BOUNDS)
    windows = [window for window in run(aggregator, {"b0": ahead_ms}, 60) if window.marker.window_start_ms > BEGIN_MS]
    assert len(windows) >= 8
    for window in windows[:-1]:
        assert short(window) <= {"b0"}
        clocks = {clock.broker: clock for clock in window.marker.clocks}
        assert {clocks[broker].delay_ms_min for broker in BROKERS[1:]} == {LATENCY_MS}
        assert clocks["b0"].delay_ms_min == LATENCY_MS - ahead_ms
        is_far = ahead_ms - LATENCY_MS > BOUNDS.future_ms_max or LATENCY_MS - ahead_ms > BOUNDS.past_ms_max
        assert clocks["b0"].refused == (20 if is_far else 0)


def test_one_record_far_ahead_is_refused_without_effect() -> None:
    """A single record 59 minutes ahead is counted once, and every window before and after it is complete."""
    aggregator = ReferenceAggregator(WINDOW_MS, 2_000, BOUNDS)
    far = TelemetryBatch("b0", 1, 99_999, BEGIN_MS + 59 * 60_000, 1)
    aggregator.take(as_dicts([far])[0], BEGIN_MS + 20_000)
    windows = run(aggregator, {}, 60)
    assert [short(window) for window in windows] == [set()] * len(windows)
    assert sum(clock.refused for window in windows for clock in window.marker.clocks) == 1
    assert len(windows) == 11


def test_telemetry_that_waited_for_kafka_is_not_late() -> None:
    """After an outage of 20 s, brokers that send their backlogs one after the other still give complete windows."""
    aggregator = ReferenceAggregator(WINDOW_MS, 2_000, BOUNDS)
    windows = []
    for tick in range(80):
        for broker in BROKERS:
            aggregator.take(as_dicts([TelemetryBatch(broker, 1, tick, BEGIN_MS + tick * 250, 1)])[0], BEGIN_MS + 20_000)
        windows += aggregator.advance()
    assert [short(window) for window in windows] == [set()] * 3
    assert aggregator.late_rows == 0


def test_a_reader_can_hold_the_watermark_back() -> None:
    """A reader that knows its slowest partition closes no window with records still to come from it."""
    aggregator = ReferenceAggregator(WINDOW_MS, grace_ms=0)
    aggregator.take(beat(0, 100))
    aggregator.take(beat(1, 60_000))
    assert aggregator.advance(BEGIN_MS + 4_999) == []
    assert len(aggregator.advance(BEGIN_MS + 5_000)) == 1
