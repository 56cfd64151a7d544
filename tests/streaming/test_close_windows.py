"""Complete windows to rows, without Spark: the vectorised path against the plain one, and each measure by hand."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regraft.overlay.link_congestion import QueueWindow
from regraft.producers.brokers.scot_routing import ScotBroker
from regraft.schemas.bounds import SUM_MAX, TOTAL_MAX
from regraft.schemas.codec import decode, encode
from regraft.schemas.state import BrokerClock, BrokerCompleteness, Churn, PublisherDelivery, StateRow, WindowClosed
from regraft.schemas.telemetry import ClientChange, Delivery, LinkProbe, QueueSample, TelemetryBatch
from regraft.schemas.unpack_state import unpack_window
from regraft.streaming.bound_marker import bounded_marker
from regraft.streaming.build_rows import state_key, window_key
from regraft.streaming.close_windows import BOOTS_MAX, WindowRows, close_windows
from regraft.streaming.merge_parts import merge_parts
from regraft.streaming.reference_aggregator import ReferenceAggregator
from tests.scenarios.test_scot_routing import SCOT
from tests.streaming.encoded_windows import encode_window
from tests.streaming.random_telemetry import BEGIN_MS, WINDOW_MS, as_dicts, lossy, parts_of, random_telemetry

SECOND = BEGIN_MS // 1_000


def closed(*batches: TelemetryBatch) -> list[WindowRows]:
    return close_windows(merge_parts(parts_of(batches)), WINDOW_MS)


def rows_of(kind: str, *batches: TelemetryBatch) -> list[StateRow]:
    return [row for window in closed(*batches) for row in window.rows() if row.kind == kind]


def batch(broker: str = "b1", sequence: int = 0, *, at_ms: int = 0, boot: int = 1, **rows: tuple) -> TelemetryBatch:
    return TelemetryBatch(broker, boot, sequence, BEGIN_MS + at_ms, 3, **rows)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_both_paths_give_the_same_rows(seed: int) -> None:
    """The vectorised rows and markers equal those of the plain loops, even with loss, repeats and disorder."""
    rng = random.Random(seed)
    batches = lossy(rng, random_telemetry(rng))
    reference = ReferenceAggregator(WINDOW_MS, grace_ms=0)
    for taken in as_dicts(batches):
        reference.take(taken)
    expected = reference.finish()
    found = closed(*batches)
    assert [window.marker for window in found] == [window.marker for window in expected]
    assert [tuple(window.rows()) for window in found] == [window.rows for window in expected]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_order_and_repeats_change_no_byte(seed: int) -> None:
    """Repeated or reordered telemetry gives the same messages, byte for byte and in the same order."""
    rng = random.Random(seed)
    batches = random_telemetry(rng)
    again = [*batches, *rng.sample(batches, 5)]
    rng.shuffle(again)
    first, second = closed(*batches), closed(*again)
    assert [encode_window(window) for window in first] == [encode_window(window) for window in second]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_the_written_messages_unpack_to_the_rows(seed: int) -> None:
    """Key and value of every record are the codec's; together they hold all rows and what the marker counts."""
    for window in closed(*random_telemetry(random.Random(seed))):
        encoded = encode_window(window)
        records = [decode(message["value"], StateRow) for message in encoded.rows]
        keys = [state_key(row.window_start_ms, row.kind, row.entity) for row in records]
        assert [message["key"] for message in encoded.rows] == keys
        assert len(set(keys)) == len(keys)
        assert encoded.marker["key"] == window_key(window.window.start_ms)
        marker = decode(encoded.marker["value"], WindowClosed)
        assert marker.row_counts == {**dict.fromkeys(marker.row_counts, 0), **Counter(row.kind for row in records)}
        assert not any(row.delivery for row in records)
        found, unpacked = unpack_window(records, marker)
        assert sorted(found, key=str) == sorted(window.rows(), key=str)
        assert encode(unpacked) == encode(window.marker)


def test_a_cell_sent_early_and_again_counts_once() -> None:
    """In a cell the largest counters and the union of bits count; seconds and blocks of a publisher add up."""
    early = batch(sequence=0, deliveries=(Delivery("p", 0, SECOND, 0b01, 1, 10),))
    again = batch(sequence=1, deliveries=(Delivery("p", 0, SECOND, 0b11, 2, 20), Delivery("p", 0, SECOND + 1, 4, 5, 6)))
    later = batch(sequence=2, deliveries=(Delivery("p", 1, SECOND + 1, 1, 1, 1),))
    [row] = rows_of("delivery", again, later, early, again)
    assert row.delivery == PublisherDelivery("p", "b1", 4, 8, 27, (0, 1), (7, 1), (0, 0))
    assert row.entity == "p|b1"


def test_published_is_distinguished_from_delivered() -> None:
    """Published and delivered notifications are united separately, and one that is both counts once."""
    first = batch(sequence=0, deliveries=(Delivery("p", 0, SECOND, 0b001, 1, 10, 0b011),))
    second = batch(sequence=1, deliveries=(Delivery("p", 0, SECOND + 1, 0b100, 1, 10, -(2**63)),))
    [row] = rows_of("delivery", second, first, second)
    assert row.delivery == PublisherDelivery("p", "b1", 4, 2, 20, (0,), (0b101,), (0b011 - 2**63,))


def test_a_delivery_belongs_to_the_window_of_its_publish_time() -> None:
    """A batch just after a window's end adds to the window before, but not to its count of batches."""
    late = batch(at_ms=5_100, deliveries=(Delivery("p", 0, SECOND + 4, 1, 1, 1), Delivery("p", 0, SECOND + 5, 2, 1, 1)))
    before, after = closed(late)
    assert [row.delivery.masks for row in before.delivery_rows() if row.delivery] == [(1,)]
    assert [row.delivery.masks for row in after.delivery_rows() if row.delivery] == [(2,)]
    assert before.marker.brokers == ()
    assert after.marker.brokers == (BrokerCompleteness("b1", 1, 0, 0, 1, 1, 3, 3),)


def sample(
    *counters: int, length: int = 0, most: int = 0, wait_ms: int = 0, peer: str = "b2"
) -> tuple[QueueSample, ...]:
    return (QueueSample(peer, *counters, queue_length=length, queue_length_max=most, wait_ms=wait_ms),)


def test_rates_come_from_counters_within_each_boot() -> None:
    """A restart resets a broker's counters and loses neither what came before nor what came after."""
    [row] = rows_of(
        "queue",
        batch(sequence=0, at_ms=0, queues=sample(10, 10, 10, 100, 100, 5, length=4, most=9)),
        batch(sequence=4, at_ms=1_000, queues=sample(30, 20, 20, 300, 200, 405, length=1, most=2)),
        batch(sequence=0, at_ms=2_000, boot=2, queues=sample(0, 0, 0, 0, 0, 0)),
        batch(sequence=1, at_ms=3_000, boot=2, queues=sample(20, 10, 10, 40, 40, 100, length=3, most=5)),
    )
    queue = row.queue
    assert queue is not None
    assert (queue.messages_in_per_s, queue.messages_out_per_s, queue.notifications_out_per_s) == (20, 10, 10)
    assert (queue.bytes_in_per_s, queue.bytes_out_per_s, queue.busy_share, queue.span_ms) == (120, 70, 0.25, 2_000)
    assert (queue.queue_length_last, queue.queue_length_max, queue.congestion) == (3, 9, 2 * 3)
    assert row.entity == "b1|b2"


@pytest.mark.parametrize(("moved_in", "moved_out", "congestion"), [(0, 0, 7.0), (6, 0, 42.0), (0, 6, 0.0), (3, 6, 3.5)])
def test_congestion_is_in_over_out_times_the_queue(moved_in: int, moved_out: int, congestion: float) -> None:
    """This holds in rows and at brokers: CE is 1 if nothing moved, and its divisor is never less than 1."""
    [row] = rows_of(
        "queue",
        batch(sequence=0, queues=sample(0, 0, 0, 0, 0, 0)),
        batch(sequence=1, at_ms=500, queues=sample(moved_in, moved_out, 0, 0, 0, 0, length=7)),
    )
    assert row.queue is not None
    assert row.queue.congestion == congestion
    broker = ScotBroker("b00", SCOT, 1)  # Brokers apply the same rule to their own, shorter windows.
    broker.links.observe({"b01": QueueWindow(moved_in, moved_out, 7)})
    assert broker.links.loads == {"b01": congestion}


def test_the_mean_wait_is_that_of_the_messages_that_left() -> None:
    """500 ms in one boot and 100 ms in the next over 10 + 2 messages are 50 ms each; earlier waits do not count."""
    [row] = rows_of(
        "queue",
        batch(sequence=0, at_ms=0, queues=sample(90, 80, 0, 0, 0, 0, wait_ms=7_000)),
        batch(sequence=1, at_ms=1_000, queues=sample(95, 90, 0, 0, 0, 0, wait_ms=7_500)),
        batch(sequence=0, at_ms=2_000, boot=2, queues=sample(0, 0, 0, 0, 0, 0)),
        batch(sequence=1, at_ms=3_000, boot=2, queues=sample(9, 2, 0, 0, 0, 0, wait_ms=100)),
    )
    assert row.queue is not None
    assert row.queue.wait_ms_mean == 50.0


def test_a_queue_that_nothing_left_has_no_wait() -> None:
    """Its mean wait is 0, without a division by zero."""
    [row] = rows_of(
        "queue",
        batch(sequence=0, queues=sample(0, 0, 0, 0, 0, 0)),
        batch(sequence=1, at_ms=500, queues=sample(5, 0, 0, 0, 0, 0, length=5)),
    )
    assert row.queue is not None
    assert row.queue.wait_ms_mean == 0.0


def test_a_single_sample_has_no_rate() -> None:
    """One sample in a window gives lengths but no rates, without a division by zero."""
    [row] = rows_of("queue", batch(queues=sample(5, 5, 5, 5, 5, 5, length=2, most=3, peer="")))
    assert row.queue is not None
    assert (row.queue.messages_in_per_s, row.queue.busy_share, row.queue.span_ms) == (0, 0, 0)
    assert (row.entity, row.queue.congestion) == ("b1|", 2)


def test_rtt_has_the_minimum_and_the_last_value() -> None:
    """The last round trip is the last by time, not by arrival."""
    probes = [batch(sequence=n, at_ms=100 * n, probes=(LinkProbe("b2", rtt),)) for n, rtt in enumerate((9.0, 4.0, 7.0))]
    [row] = rows_of("rtt", probes[2], probes[0], probes[1])
    assert row.rtt is not None
    assert (row.rtt.rtt_ms_min, row.rtt.rtt_ms_last) == (4.0, 7.0)


def test_churn_counts_distinct_changes_and_clients() -> None:
    """A change that is reported twice counts once."""
    first = batch(clients=(ClientChange("c1", 0, "subscribed"), ClientChange("c2", 0, "subscribed")))
    second = batch(sequence=1, clients=(ClientChange("c1", 0, "subscribed"), ClientChange("c1", 1, "left")))
    [row] = rows_of("churn", first, second, first)
    assert row.churn == Churn("b1", 3, 2)


def test_completeness_counts_received_batches_of_the_expected_span() -> None:
    """A gap in the sequence of a boot means lost batches; a repeat does not count twice."""
    [window] = closed(batch(sequence=70), batch(sequence=70), batch(sequence=5), batch(sequence=0, boot=9))
    assert window.marker.brokers == (
        BrokerCompleteness("b1", 1, 5, 70, 2, 66, 3, 3),
        BrokerCompleteness("b1", 9, 0, 0, 1, 1, 3, 3),
    )
    assert window.marker.row_counts == {"delivery": 0, "queue": 0, "rtt": 0, "churn": 0}


def test_late_rows_are_reported_once() -> None:
    """Of several windows closed together the first marker has the rows dropped since the marker before."""
    windows = close_windows(merge_parts(parts_of([batch(), batch(at_ms=6_000)])), WINDOW_MS, late_rows=4)
    assert [window.marker.late_rows for window in windows] == [4, 0]


def test_extreme_numbers_do_not_break_a_window() -> None:
    """Numbers at both ends of 64 bits are sorted and merged like any others."""
    ends = (-(2**63), 2**63 - 1)
    deliveries = tuple(Delivery("p", block, SECOND, mask, 1, 1, -mask - 1) for block in ends for mask in ends)
    batches = [batch(sequence=n, boot=boot, deliveries=deliveries) for n in ends for boot in ends]
    reference = ReferenceAggregator(WINDOW_MS, grace_ms=0)
    for taken in as_dicts(batches):
        reference.take(taken)
    [expected], [found] = reference.finish(), closed(*batches)
    assert tuple(found.rows()) == expected.rows


def test_sums_beyond_64_bits_are_capped() -> None:
    """A broker may claim any total in each of many seconds and boots: the sum never turns negative."""
    cells = tuple(Delivery("p", 0, SECOND + n % 5, 1 << n, TOTAL_MAX - n, TOTAL_MAX // 3) for n in range(5))
    blocks = tuple(Delivery("q", n, SECOND, 1, TOTAL_MAX, 7) for n in range(40))
    batches = [
        batch(
            sequence=n,
            boot=boot,
            at_ms=n,
            deliveries=cells + blocks,
            queues=(QueueSample("", *[n * TOTAL_MAX] * 6, 0, 0),),
        )
        for n in (0, 1)
        for boot in range(1, 40)
    ]
    reference = ReferenceAggregator(WINDOW_MS, grace_ms=0)
    for taken in as_dicts(batches):
        reference.take(taken)
    [expected], [found] = reference.finish(), closed(*batches)
    assert tuple(found.rows()) == expected.rows
    for row in found.rows():
        assert decode(encode(row), StateRow) == row
    assert [row.delivery.local_deliveries for row in rows_of("delivery", *batches) if row.delivery] == [
        5 * TOTAL_MAX - 10,
        SUM_MAX,
    ]


def test_a_broker_with_invented_boots_does_not_make_the_marker_too_large_for_kafka() -> None:
    """75,000 empty batches, each of another boot: the newest boots are stated, the others are counted."""
    batches = [batch(boot=boot) for boot in range(1, 75_001)]
    (window,) = closed(*batches, batch("b2", boot=5))
    assert [(entry.broker, entry.boot) for entry in window.marker.brokers] == [
        *(("b1", boot) for boot in range(75_001 - BOOTS_MAX, 75_001)),
        ("b2", 5),
    ]
    assert window.joined.boots_cut == 75_000 - BOOTS_MAX


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_a_marker_fits_whatever_brokers_and_boots_are_claimed(seed: int) -> None:
    """The newest boot of each broker stays as long as it fits; of too many brokers those that sent most stay."""
    rng = random.Random(seed)
    names = [f"b{number}" * rng.choice((1, 20)) for number in range(rng.randrange(1, 60))]
    entries = tuple(
        BrokerCompleteness(name, boot, 0, 9, sent, 10, 0, 0)
        for name in sorted(set(names))
        for sent in [rng.randrange(10)]
        for boot in range(1, rng.choice((2, 2, 17)))
    )
    clocks = tuple(BrokerClock(name, 3) for name in sorted(set(names)))
    marker = WindowClosed(0, 5_000, 4, {"packed_deliveries": 1}, entries, 2, clocks)
    bytes_max = rng.choice((1_200, 2_000, 4_000, 1_000_000))
    found = bounded_marker(marker, bytes_max)
    assert len(encode(found)) <= bytes_max
    assert set(found.brokers) <= set(entries)
    newest = {entry.broker: entry for entry in entries}
    kept = {entry.broker: entry for entry in found.brokers}
    assert all(newest[name] == entry for name, entry in kept.items())
    assert {clock.broker for clock in found.clocks} == kept.keys()
    lost = [newest[name].received for name in newest.keys() - kept.keys()]
    assert not lost or max(lost) <= min((entry.received for entry in kept.values()), default=9)
