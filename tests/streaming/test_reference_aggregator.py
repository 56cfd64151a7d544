"""The reference aggregator's watermark: what closes a window and what is late."""

from schemas.telemetry import Delivery, TelemetryBatch
from streaming.reference_aggregator import ReferenceAggregator
from tests.streaming.random_telemetry import BEGIN_MS, WINDOW_MS, as_dicts


def beat(sequence: int, at_ms: int, *deliveries: Delivery) -> dict:
    [batch] = as_dicts([TelemetryBatch("b1", 1, sequence, BEGIN_MS + at_ms, 1, deliveries)])
    return batch


def test_a_window_closes_when_the_grace_is_over() -> None:
    """With 2 s of grace a window of 5 s closes at the first event time of 7 s."""
    aggregator = ReferenceAggregator(WINDOW_MS, grace_ms=2_000)
    aggregator.take(beat(0, 100))
    aggregator.take(beat(1, 6_999))
    assert aggregator.advance() == []
    aggregator.take(beat(2, 7_000))
    [window] = aggregator.advance()
    assert (window.marker.window_start_ms, window.marker.brokers[0].received) == (BEGIN_MS, 1)


def test_what_comes_after_its_window_is_late_and_told_by_the_next_marker() -> None:
    """A late part is dropped and counted; the rest of its batch is not."""
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


def test_a_reader_can_hold_the_watermark_back() -> None:
    """A reader that knows its slowest partition closes nothing that is still to come from it."""
    aggregator = ReferenceAggregator(WINDOW_MS, grace_ms=0)
    aggregator.take(beat(0, 100))
    aggregator.take(beat(1, 60_000))
    assert aggregator.advance(BEGIN_MS + 4_999) == []
    assert len(aggregator.advance(BEGIN_MS + 5_000)) == 1
