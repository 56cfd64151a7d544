"""When an idle broker sends: as soon as a window may close, at both ends of each, and without long pauses."""

import math
import random
from itertools import pairwise

from hypothesis import assume, given
from hypothesis import strategies as st

from regraft.producers.emulator.due_heartbeats import PAUSE_MS_MAX, HeartbeatRule, Heartbeats

BEGIN_MS = 1_700_000_000_000.0
SPAN_MS = 60_000.0
USUAL = HeartbeatRule(flush_ms=250.0, window_ms=5_000, grace_ms=2_000)
RULES = st.builds(
    HeartbeatRule,
    flush_ms=st.floats(10.0, 1_000.0),
    window_ms=st.integers(1, 30).map(lambda seconds: seconds * 1_000),
    grace_ms=st.integers(0, 10_000),
)


def flushes(rule: HeartbeatRule, phase: float = 0.5, late_ms_max: float = 0.0, seed: int = 1) -> list[float]:
    """Return the times of a broker's flushes, each late by up to ``late_ms_max``, in ascending order."""
    rng = random.Random(seed)
    count = int(SPAN_MS / rule.flush_ms)
    due_ms = [BEGIN_MS + (phase + place) * rule.flush_ms for place in range(count)]
    return sorted(at_ms + rng.uniform(0.0, late_ms_max) for at_ms in due_ms)


def sent(rule: HeartbeatRule | None, times_ms: list[float], news_ms: frozenset[float] = frozenset()) -> list[float]:
    """Return the flushes that send, if those in ``news_ms`` have news."""
    heartbeats = Heartbeats()
    return [at_ms for at_ms in times_ms if heartbeats.take_turn(rule, at_ms, has_news=at_ms in news_ms)]


@given(RULES, st.floats(0.0, 1.0), st.floats(0.0, 1_000.0), st.integers(0, 100), st.data())
def test_no_window_waits_for_an_idle_broker(
    rule: HeartbeatRule, phase: float, late_ms_max: float, seed: int, data: st.DataObject
) -> None:
    """Whenever within the grace and a flush it may close, an idle broker passes that with the flush that did before.

    This holds for late flushes, too: at any moment at which a window may close, the newest batch is the newest flush.
    """
    times_ms = flushes(rule, phase, late_ms_max, seed)
    heartbeats_ms = sent(rule, times_ms)
    first_ms = math.ceil(BEGIN_MS / rule.window_ms) * rule.window_ms
    end_ms = first_ms + rule.window_ms * data.draw(st.integers(0, int(SPAN_MS) // rule.window_ms))
    closes_ms = end_ms + data.draw(st.floats(0.0, rule.grace_ms + rule.flush_ms))
    passed = [next((at_ms for at_ms in found if at_ms >= closes_ms), math.inf) for found in (times_ms, heartbeats_ms)]
    assert passed[0] == passed[1]


@given(RULES, st.floats(0.0, 1.0))
def test_each_window_has_its_first_and_its_last_flush(rule: HeartbeatRule, phase: float) -> None:
    """Between these, counters are subtracted: rates of queues are those of all flushes."""
    times_ms = flushes(rule, phase)
    assume(all(at_ms % 1 for at_ms in times_ms))  # Sums of floats may miss the end of a window by a rounding.

    def ends(found: list[float]) -> dict[float, tuple[float, float]]:
        windows: dict[float, list[float]] = {}
        for at_ms in found:
            windows.setdefault(at_ms // rule.window_ms, []).append(at_ms)
        return {window: (min(inside), max(inside)) for window, inside in windows.items()}

    every, some = ends(times_ms), ends(sent(rule, times_ms))
    last = max(every)  # It is cut off.
    assert {window: every[window] for window in every if window != last} == {
        window: some[window] for window in some if window != last
    }


@given(RULES, st.floats(0.0, 1.0), st.sets(st.integers(0, 50)))
def test_news_are_sent_at_once(rule: HeartbeatRule, phase: float, places: set[int]) -> None:
    """After any silence the next flush sends, and a broker that always has news sends at each of them."""
    times_ms = flushes(rule, phase)
    news_ms = frozenset(times_ms[place] for place in places)
    assert news_ms <= set(sent(rule, times_ms, news_ms))
    assert sent(rule, times_ms, frozenset(times_ms)) == times_ms


@given(RULES, st.floats(0.0, 1.0), st.sets(st.integers(0, 50)))
def test_no_pause_is_long(rule: HeartbeatRule, phase: float, places: set[int]) -> None:
    """With any windows, also those of a job that has others, and after news."""
    times_ms = flushes(rule, phase)
    found = sent(rule, times_ms, frozenset(times_ms[place] for place in places))
    assert found[0] == times_ms[0]
    longest_ms = max(PAUSE_MS_MAX, rule.flush_ms) + 0.01  # Sums of floats.
    assert all(after_ms - before_ms <= longest_ms for before_ms, after_ms in pairwise(found))


def test_an_idle_broker_sends_three_fifths() -> None:
    """Of the twenty flushes of a usual window: ten until the grace is over, one on the way, and the last."""
    found = [at_ms - BEGIN_MS for at_ms in sent(USUAL, flushes(USUAL))]
    first = [125.0 + 250.0 * place for place in range(10)]
    assert [at_ms for at_ms in found if at_ms < 5_000.0] == [*first, 3_625.0, 4_875.0]
    assert len(found) == 12 * 12


def test_a_clock_that_is_set_back_silences_nobody() -> None:
    """By the old times the broker would have sent just now, for an hour."""
    times_ms = [BEGIN_MS + 3_600_000.0 + 4_000.0, BEGIN_MS + 2_750.0, BEGIN_MS + 3_000.0]
    assert sent(USUAL, times_ms) == times_ms[:2]


def test_without_a_rule_every_flush_sends() -> None:
    """So it is where no job reads."""
    assert sent(None, flushes(USUAL)) == flushes(USUAL)
