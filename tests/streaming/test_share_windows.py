"""A sender of far too much telemetry uses up its own share of a window, and nothing of the others'."""

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regraft.schemas.codec import decode, encode
from regraft.schemas.state import StateRow
from regraft.schemas.telemetry import LinkProbe, TelemetryBatch
from regraft.streaming import close_shard, decide_closing, encode_rows, open_windows
from regraft.streaming.close_shard import ShardCloser
from regraft.streaming.close_windows import close_windows
from regraft.streaming.encode_rows import Message
from regraft.streaming.merge_parts import MergedWindows, WindowParts, merge_parts
from regraft.streaming.open_windows import PART_BYTES, ShardState, Step, keep_shares, take_rows
from tests.streaming.judged_rows import rows_of, rows_of_tasks
from tests.streaming.random_telemetry import BEGIN_MS, WINDOW_MS, random_telemetry
from tests.streaming.test_open_windows import GRACE_MS


def flood(count: int) -> list[TelemetryBatch]:
    """Return empty batches of one broker within the first window, each of another boot."""
    return [TelemetryBatch("flood", boot, 0, BEGIN_MS + boot % WINDOW_MS, 0) for boot in range(count)]


def step(state: ShardState, batches: list[TelemetryBatch], grace_ms: int = GRACE_MS) -> Step:
    return take_rows(state, rows_of(batches), WINDOW_MS, grace_ms, waits_for_all=False)


def test_75_000_tiny_batches_in_a_window_are_counted_beyond_the_share() -> None:
    """Each is accepted by Kafka and by the codec; together they would fill memory and the window's marker."""
    taken = step(ShardState(), flood(75_000))
    parts_max = open_windows.SHARE_BYTES_PER_S // PART_BYTES * WINDOW_MS // 1_000
    assert 74_000 <= taken.rows_over <= 75_000 - parts_max // 2
    assert step(taken.state, flood(10)).rows_over == 10
    end = [TelemetryBatch("b1", 1, 0, BEGIN_MS + 3 * WINDOW_MS, 0)]
    ended = step(taken.state, end)
    assert ended.closed is not None
    (window, *_) = close_windows(merge_parts(ended.closed), WINDOW_MS)
    assert {entry.broker for entry in window.marker.brokers} == {"flood"}
    assert set(ended.state.charged) <= set(ended.state.open)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32))
def test_the_windows_of_others_are_as_without_the_flood(seed: int) -> None:
    """Whatever one broker sends, in whatever order, the rows and batch counts of the others are complete."""
    rng = random.Random(seed)
    good = random_telemetry(rng)
    mixed = [*good, *flood(3_000)]
    rng.shuffle(mixed)
    grace_ms = 100 * WINDOW_MS
    end = TelemetryBatch("end", 1, 0, BEGIN_MS + 200 * WINDOW_MS, 0)

    def rows(batches: list[TelemetryBatch]) -> tuple[set[object], set[object]]:
        cut = rng.randrange(1, len(batches))
        first = step(ShardState(), batches[:cut], grace_ms)
        last = step(ShardState.unpacked(first.state.packed()), [*batches[cut:], end], grace_ms)
        assert first.closed is None
        assert last.closed is not None
        closed = close_windows(merge_parts(last.closed), WINDOW_MS)
        whole = {msgspec.json.encode(row) for window in closed for row in window.rows() if "flood" not in row.entity}
        told = {entry for window in closed for entry in window.marker.brokers if entry.broker not in ("flood", "end")}
        return whole, told

    alone, together = rows(list(good)), rows(mixed)
    assert alone[1] == together[1]
    assert alone[0] == together[0]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.binary(max_size=4)), max_size=40),
       st.randoms(use_true_random=False))  # fmt: skip
def test_the_same_parts_are_kept_in_any_order(parts: list[tuple[str, bytes]], rng: random.Random) -> None:
    """A micro-batch that runs again after a failure gets its rows in another order and must write the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(open_windows, "SHARE_BYTES_PER_S", PART_BYTES)  # Five parts in a window of five seconds.
        kept = []
        for _ in range(2):
            rng.shuffle(parts)
            brokers, bodies = zip(*parts, strict=True) if parts else ((), ())
            places, charged = keep_shares(brokers, bodies, {"a": 3 * PART_BYTES}, 5_000)
            kept.append((sorted(parts[place] for place in places), charged))
    assert kept[0] == kept[1]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32))
def test_how_records_are_divided_among_tasks_changes_nothing(seed: int) -> None:
    """Each task compresses the parts of its own records; a flood is cut alike however they are divided."""
    rng = random.Random(seed)
    batches = [*random_telemetry(rng), *flood(rng.choice((0, 3_000)))]
    rng.shuffle(batches)
    end = [TelemetryBatch("end", 1, 0, BEGIN_MS + 200 * WINDOW_MS, 0)]

    def closed(tasks: int) -> tuple[int, list[object]]:
        own = [batches[number::tasks] for number in range(tasks)]
        taken = take_rows(
            ShardState(), rows_of_tasks([each for each in own if each]), WINDOW_MS, GRACE_MS, waits_for_all=False
        )
        ended = step(ShardState.unpacked(taken.state.packed()), end)
        both = [
            close_windows(merge_parts(each), WINDOW_MS) for each in (taken.closed, ended.closed) if each is not None
        ]
        return taken.rows_over, [
            (window.marker, sorted(map(encode, window.rows()))) for windows in both for window in windows
        ]

    assert closed(1) == closed(rng.randrange(2, 6))


def test_invented_brokers_are_not_awaited_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows would wait for each, and the state would remember all; those known before stay awaited."""
    monkeypatch.setattr(decide_closing, "BROKERS_MAX", 4)
    state = step(ShardState(), [TelemetryBatch("b9", 1, 0, BEGIN_MS, 0)]).state
    names = [f"b{number}" for number in range(8)]
    state = step(state, [TelemetryBatch(name, 1, 1, BEGIN_MS + 10, 0) for name in reversed(names)]).state
    assert sorted(state.closing.reached_ms) == ["b0", "b1", "b2", "b9"]


class Sink:
    """Where a shard writes."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def write(self, messages: list[Message]) -> int:
        self.messages += messages
        return 0


def closer_of(sink: Sink) -> ShardCloser:
    return ShardCloser((0,), WINDOW_MS, GRACE_MS, waits_for_all=False, sink=sink)


def test_a_broker_whose_telemetry_cannot_be_merged_is_left_out_of_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception would end the query, and the same micro-batch again at each start; the others get their window."""

    def failing(parts: WindowParts) -> MergedWindows:
        if "poison" in parts.parts.field("broker").to_pylist():
            raise OverflowError("too large")
        return merge_parts(parts)

    monkeypatch.setattr(close_shard, "merge_parts", failing)
    sink, end = Sink(), TelemetryBatch("b1", 1, 1, BEGIN_MS + 3 * WINDOW_MS, 0)
    batches = [TelemetryBatch(name, 1, 0, BEGIN_MS, 0) for name in ("b1", "poison", "b2")]
    report, _ = closer_of(sink).take(0, ShardState(), rows_of([*batches, end]))
    (window,) = report.windows
    assert {entry.broker for entry in window.brokers} == {"b1", "b2"}
    assert report.rows_failed == 1


def test_a_row_that_kafka_or_its_readers_would_refuse_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The marker counts the rows that are written, so the window can still be complete."""

    def refusing(row: StateRow) -> bytes:
        if row.entity == "b1|b2":
            raise ValueError("rtt is 5 ms")
        return encode(row)

    monkeypatch.setattr(encode_rows, "encode", refusing)
    sink, end = Sink(), TelemetryBatch("b1", 1, 1, BEGIN_MS + 3 * WINDOW_MS, 0)
    probes = (LinkProbe("b2", 5.0), LinkProbe("b3", 5.0))
    batch = TelemetryBatch("b1", 1, 0, BEGIN_MS, 0, probes=probes)
    report, _ = closer_of(sink).take(0, ShardState(), rows_of([batch, end]))
    (window,) = report.windows
    assert window.row_counts["rtt"] == 1
    assert [decode(message["value"], StateRow).entity for message in sink.messages] == ["b1|b3"]
    assert report.rows_failed == 1
