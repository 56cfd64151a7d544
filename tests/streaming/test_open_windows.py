"""When windows close, and that all shards close the same ones whenever they run: on rows, without Spark."""

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from regraft.schemas.telemetry import Delivery, TelemetryBatch
from regraft.streaming.close_shard import ShardCloser, ShardReport
from regraft.streaming.close_windows import WindowRows, close_windows
from regraft.streaming.decide_closing import MISSES_MAX, Closing
from regraft.streaming.encode_rows import Message
from regraft.streaming.merge_parts import merge_parts
from regraft.streaming.open_windows import ShardState, take_rows
from regraft.streaming.reference_aggregator import ReferenceAggregator
from regraft.streaming.window_job import joined
from tests.streaming.judged_rows import rows_of
from tests.streaming.random_telemetry import BEGIN_MS, WINDOW_MS, as_dicts, lossy, random_telemetry

GRACE_MS = 2_000
FLUSH_MS = 250
UNDER_WAY_MS = 400


class OneShard:
    """A single shard with all brokers, from one micro-batch to the next."""

    def __init__(self, brokers: Sequence[str] = (), *, waits_for_all: bool = True) -> None:
        self.grace_ms, self.waits_for_all, self.late_rows = GRACE_MS, waits_for_all, 0
        self.state = ShardState(Closing.awaiting(brokers))

    def closed(self, batches: Sequence[TelemetryBatch], kafka_ms: int | None = None) -> list[WindowRows]:
        taken = take_rows(
            self.state, rows_of(batches, kafka_ms), WINDOW_MS, self.grace_ms, waits_for_all=self.waits_for_all
        )
        self.state = ShardState.unpacked(taken.state.packed())
        assert self.state == taken.state
        self.late_rows += taken.late_rows
        return [] if taken.closed is None else close_windows(merge_parts(taken.closed), WINDOW_MS, taken.late_rows)


def flush(
    tick: int, brokers: Sequence[str], ahead_ms: int = 0, under_way_ms: int = UNDER_WAY_MS
) -> list[TelemetryBatch]:
    """Return what each broker sends at a tick: what was published a while before."""
    time_ms = BEGIN_MS + tick * FLUSH_MS
    cell = Delivery("p", tick, (time_ms - under_way_ms) // 1_000, 1, 1, 10)
    return [TelemetryBatch(broker, 1, tick, time_ms + ahead_ms, 1, (cell,)) for broker in brokers]


def waits_ms(shard: OneShard, batches_at: Sequence[Sequence[TelemetryBatch]], *, kafka: bool = False) -> dict[int, int]:
    """Return how long after its end, by ticks, each window was closed."""
    found = {}
    for tick, batches in enumerate(batches_at):
        now_ms = BEGIN_MS + tick * FLUSH_MS
        for window in shard.closed(batches, now_ms if kafka else None):
            found[window.window.start_ms] = now_ms - window.window.end_ms
    return found


def test_a_window_closes_when_all_brokers_have_passed_it() -> None:
    """Until the delivery delay is known, windows wait half the grace; then that delay. Nothing is late."""
    for kafka in (False, True):
        shard = OneShard()
        found = list(waits_ms(shard, [flush(tick, ("b1", "b2")) for tick in range(200)], kafka=kafka).values())
        assert found[:2] == [GRACE_MS // 2, GRACE_MS // 2]
        assert set(found[2:]) == {UNDER_WAY_MS - UNDER_WAY_MS % FLUSH_MS}
        assert shard.late_rows == 0


def test_windows_soon_wait_less_once_notifications_arrive_sooner() -> None:
    """A plan that shortens the paths makes the loop faster within half a minute."""
    shard, ticks = OneShard(), WINDOW_MS // FLUSH_MS
    delays_ms = [900] * 3 * ticks + [UNDER_WAY_MS] * 9 * ticks
    batches = [flush(tick, ("b1", "b2"), 0, delay_ms) for tick, delay_ms in enumerate(delays_ms)]
    found = list(waits_ms(shard, batches).values())
    assert found[3] == 750
    assert set(found[7:]) == {UNDER_WAY_MS - UNDER_WAY_MS % FLUSH_MS}
    assert shard.late_rows == 0


def test_a_silent_broker_is_waited_for_until_it_has_missed_the_grace_a_few_times() -> None:
    """Each time the wait is at most the grace; once it reports again, windows wait for it again."""
    both, one = ("b1", "b2"), ("b1",)
    batches_at = [flush(tick, one if 100 <= tick < 300 else both) for tick in range(400)]
    for kafka in (False, True):
        waited = waits_ms(OneShard(), batches_at, kafka=kafka)
        silent = [wait for start_ms, wait in waited.items() if 80 <= (start_ms - BEGIN_MS) // FLUSH_MS < 280]
        assert silent[:MISSES_MAX] == [GRACE_MS] * MISSES_MAX
        assert max(silent[MISSES_MAX:]) < GRACE_MS
        again = [wait for start_ms, wait in waited.items() if (start_ms - BEGIN_MS) // FLUSH_MS > 300]
        assert max(again) < GRACE_MS


def test_a_slow_clock_costs_the_grace_only_a_few_times() -> None:
    """Its broker reports all the time but has passed no window when the grace ends: windows soon do not wait for it."""
    shard = OneShard()
    batches_at = [[*flush(tick, ("b1", "b2")), *flush(tick, ("b3",), ahead_ms=-3_000)] for tick in range(300)]
    waited = list(waits_ms(shard, batches_at).values())
    assert waited[:MISSES_MAX] == [GRACE_MS] * MISSES_MAX
    assert max(waited[MISSES_MAX:]) < GRACE_MS


def test_a_known_broker_is_waited_for_before_it_reports() -> None:
    """A backlog whose partitions are read in turn gives complete windows, however late the last one comes."""
    names = ("b1", "b2", "b3")
    shard, received = OneShard(names), []
    for name in names:
        received += shard.closed([batch for tick in range(100) for batch in flush(tick, (name,))], BEGIN_MS + 60_000)
    assert [entry.received for window in received for entry in window.marker.brokers] == [20] * len(names) * 4
    assert shard.late_rows == 0


def test_without_waiting_for_brokers_only_the_grace_closes() -> None:
    """This applies to a backlog: it is unknown whose partition comes last."""
    shard = OneShard(waits_for_all=False)
    assert {*waits_ms(shard, [flush(tick, ("b1", "b2")) for tick in range(100)]).values()} == {GRACE_MS}


def test_a_fast_clock_does_not_end_the_wait_for_others() -> None:
    """However far ahead one broker's clock is within the grace, windows have everything that the others sent."""
    shard = OneShard()
    for tick in range(200):
        batches = [*flush(tick, ("b1", "b2")), *flush(tick, ("b3",), ahead_ms=900)]
        for window in shard.closed(batches)[1:]:
            received = {entry.broker: entry.received for entry in window.marker.brokers}
            assert (received["b1"], received["b2"]) == (20, 20)
    assert shard.late_rows == 0


def test_telemetry_delayed_by_an_outage_of_kafka_is_not_late() -> None:
    """The first broker to send its backlog does not end the wait for the others."""
    names = ("b1", "b2", "b3")
    shard, received = OneShard(), []
    for tick in range(40):
        shard.closed(flush(tick, names), BEGIN_MS + tick * FLUSH_MS)
    back_ms = BEGIN_MS + 120 * FLUSH_MS
    for place, name in enumerate(names):
        waiting = [batch for tick in range(40, 120) for batch in flush(tick, (name,))]
        received += shard.closed(waiting, back_ms + place * GRACE_MS // len(names))
    received += shard.closed(flush(130, names), BEGIN_MS + 130 * FLUSH_MS)
    assert [entry.received for window in received for entry in window.marker.brokers] == [20] * len(names) * 5
    assert shard.late_rows == 0


def random_groups(seed: int) -> list[list[TelemetryBatch]]:
    rng = random.Random(seed)
    batches = random_telemetry(rng, flushes=30)
    return [lossy(rng, batches[start : start + 15]) for start in range(0, len(batches), 15)]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_the_grace_closes_what_the_reference_closes(seed: int) -> None:
    """Windows, rows and late parts are the reference's, micro-batch by micro-batch."""
    shard, reference = OneShard(waits_for_all=False), ReferenceAggregator(WINDOW_MS, GRACE_MS)
    for group in random_groups(seed):
        for taken in as_dicts(group):
            reference.take(taken)
        found, expected = shard.closed(group), reference.advance()
        assert [window.marker for window in found] == [window.marker for window in expected]
        assert [tuple(window.rows()) for window in found] == [window.rows for window in expected]


class KeptRows:
    """Keeps messages in memory."""

    def __init__(self) -> None:
        self.messages: dict[bytes, bytes] = {}

    def write(self, messages: list[Message]) -> int:
        for message in messages:
            assert self.messages.setdefault(message["key"], message["value"]) == message["value"]
        return 0


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 4), st.booleans(), st.data())
def test_shards_close_together_and_repeated_tasks_write_the_same(
    seed: int, shards: int, waits_for_all: bool, data: st.DataObject
) -> None:
    """Windows do not depend on the division into shards, the order of rows, or repeated runs."""
    whole, sink = OneShard(waits_for_all=waits_for_all), KeptRows()
    closer = ShardCloser(tuple(range(shards)), WINDOW_MS, GRACE_MS, waits_for_all, sink)
    states = [ShardState()] * shards
    for group in random_groups(seed):
        expected = whole.closed(group)
        reports = []
        for number in range(shards):
            report, after = closer.take(number, states[number], rows_of(group, shard=number, shards=shards))
            if data.draw(st.booleans()):
                again = list(reversed(group)) if data.draw(st.booleans()) else group
                second, after = closer.take(number, states[number], rows_of(again, shard=number, shards=shards))
                assert second.windows == report.windows
            states[number] = ShardState.unpacked(after)
            reports.append(msgspec.msgpack.decode(msgspec.msgpack.encode(report), type=ShardReport))
        assert len({(report.closed_ms, report.latest_ms) for report in reports}) == 1
        found = joined(0, reports, WINDOW_MS).windows
        assert [window.marker.brokers for window in found] == [window.marker.brokers for window in expected]
        assert [window.marker.late_rows for window in found] == [window.marker.late_rows for window in expected]
        assert [window.window for window in found] == [window.window for window in expected]
        for window in found:
            start = f"{window.window.start_ms}/".encode()
            written = sum(key.startswith(start) for key in sink.messages)
            assert written == sum(window.marker.row_counts.values())


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_concurrent_attempts_of_a_task_write_the_same(seed: int, waits_for_all: bool) -> None:
    """With speculation each attempt has its own order of rows; whichever is used, the job continues alike."""
    rng, sink = random.Random(seed), KeptRows()
    closer = ShardCloser((0,), WINDOW_MS, GRACE_MS, waits_for_all, sink)
    state = ShardState()
    with ThreadPoolExecutor(3) as pool:
        for group in random_groups(seed):
            orders = [rows_of(rng.sample(group, len(group))) for _ in range(3)]
            attempts = list(pool.map(partial(closer.take, 0, state), orders))
            reports = [(report.closed_ms, report.latest_ms, report.late_rows, report.windows) for report, _ in attempts]
            assert reports[1:] == reports[:1] * 2
            state = ShardState.unpacked(rng.choice(attempts)[1])
    assert state.closing.closed_ms > 0
