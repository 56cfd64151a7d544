"""Changes of traffic: quiet traffic raises alarms at most at the stated rate, a step is found in its first window."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import pytest

from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.windows.detect_shifts import (
    ShiftDetector,
    TrafficShift,
    deliveries_in,
    hellinger,
    limit_for,
    normal_score,
)
from regraft.controller.windows.find_shifts import moves_interests_in
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.schemas.plan import MEMBERSHIP, ClientMove, HomeMove, Proposal
from tests.controller.decide.test_recent_changes import plan_of
from tests.controller.ring_situations import KIND as RING_KIND
from tests.controller.scripted_windows import WINDOW_MS, closed_window
from tests.controller.small_kinds import tree_kind
from tests.overlay.small_overlays import inventory_of, line_of

BROKERS = tuple(f"b{number:02}" for number in range(10))
TREE_KIND = tree_kind(inventory_of(line_of(len(BROKERS)), {}))
PUBLISHERS = tuple(f"p{number}" for number in range(24))


@dataclass
class Traffic:
    """Windows in which each publisher publishes by a Poisson process and each broker wants a share of it."""

    seed: int
    alike: float = 0.0
    churn: float = 200.0
    turn: int = 0

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.shares = self.rng.choice([0.05, 0.8], (len(BROKERS), len(PUBLISHERS)))
        self.level = 0.0

    def window(self) -> tuple[ClosedWindow, float]:
        """Return the next window and the cost per notification, whose logarithm is a first-order autoregression."""
        rng = self.rng
        counts = np.minimum(rng.poisson(40, len(PUBLISHERS)), 64)
        wanted = rng.random((len(BROKERS), len(PUBLISHERS), 64)) < self.shares[:, :, None]
        wanted &= np.arange(64)[None, None] < counts[None, :, None]
        weights = (1 << np.arange(64, dtype=np.uint64)).astype(np.uint64)
        words = (wanted * weights).sum(axis=2, dtype=np.uint64)
        columns = tuple((publisher, self.turn) for publisher in PUBLISHERS)
        self.level = self.alike * self.level + rng.normal(0, 0.02) * math.sqrt(1 - self.alike**2)
        start_ms, self.turn = self.turn * WINDOW_MS, self.turn + 1
        sets = DeliverySets(BROKERS, columns, words, 1.0, words)
        changes = int(rng.poisson(self.churn))
        window = ClosedWindow(start_ms, start_ms + WINDOW_MS, sets, client_changes=changes, epoch_min=0, epoch_max=0)
        return window, 100 * math.exp(self.level)


def alarms(detector: ShiftDetector, traffic: Traffic, count: int) -> Iterator[TrafficShift]:
    for _ in range(count):
        found = detector.add(*traffic.window())
        if found is not None:
            yield found


@pytest.mark.parametrize("alike", [0.0, 0.8, 0.98])
def test_quiet_traffic_raises_no_more_alarms_than_stated(alike: float) -> None:
    """Over 2,000 windows, whether the cost per notification drifts slowly or not; three deviations are tolerated."""
    windows_per_alarm, count = 100.0, 500
    found = sum(len(list(alarms(ShiftDetector(windows_per_alarm), Traffic(seed, alike), count))) for seed in range(4))
    expected = 4 * count / windows_per_alarm
    assert found <= expected + 3 * math.sqrt(expected)
    assert found >= 1  # At this rate, no alarm at all would mean that it detects nothing.


def test_sums_of_normal_values_pass_the_limit_at_the_rate_of_the_formula() -> None:
    """Siegmund's mean time holds within a fifth, for one sum: it raises a quarter of the alarms of all four."""
    rng, windows_per_alarm = np.random.default_rng(1), 250.0
    limit, total, count = limit_for(windows_per_alarm), 0.0, 0
    for value in rng.normal(0, 1, 400_000):
        total = max(total + value - 1.0, 0.0)
        if total > limit:
            total, count = 0.0, count + 1
    assert 400_000 / count == pytest.approx(4 * windows_per_alarm, rel=0.2)


def test_scores_of_few_values_are_those_of_a_normal_distribution() -> None:
    """Predicted from 20 values, about one in 50 is beyond 2.33 deviations on either side, as it should be."""
    rng = random.Random(2)
    scores = []
    for _ in range(5_000):
        reference = [rng.gauss(5, 3) for _ in range(20)]
        scores.append(normal_score(rng.gauss(5, 3), reference))
    # Values that are similar by chance make scores smaller, never larger.
    assert 0.012 < sum(abs(score) > 2.326 for score in scores) / len(scores) < 0.021


@pytest.mark.parametrize("quiet", [15, 100])
@pytest.mark.parametrize("seed", range(3))
def test_a_shift_of_interests_is_found_in_its_first_window(seed: int, quiet: int) -> None:
    """Half of the brokers invert their interests: new traffic begins with that window, and no other alarm follows."""
    detector, traffic = ShiftDetector(2000.0), Traffic(seed)
    assert not list(alarms(detector, traffic, quiet))
    traffic.shares[:5] = 1 - traffic.shares[:5]
    (found,) = alarms(detector, traffic, 20)
    assert (found.since_ms, found.window_end_ms) == (quiet * WINDOW_MS, (quiet + 1) * WINDOW_MS)
    assert found.value > found.limit
    assert found.statistic in found.text


def test_a_change_that_lies_mostly_in_the_next_window_counts_from_there() -> None:
    """A window with a fifth of new traffic shows a change, the next one a larger step, where new traffic begins."""
    detector, traffic = ShiftDetector(2000.0), Traffic(3)
    assert not list(alarms(detector, traffic, 30))
    before = traffic.shares.copy()
    traffic.shares[:3] = 0.75 * before[:3] + 0.25 * (1 - before[:3])
    traffic.churn = 400.0
    (first,) = alarms(detector, traffic, 1)
    traffic.shares[:3] = 1 - before[:3]
    traffic.churn = 1000.0
    (second,) = alarms(detector, traffic, 1)
    traffic.churn = 200.0
    assert not list(alarms(detector, traffic, 20))
    assert (first.since_ms, second.since_ms) == (30 * WINDOW_MS, 31 * WINDOW_MS)


@pytest.mark.parametrize(("windows", "found_within"), [(2, 1), (6, 1), (12, 2), (20, 8)])
@pytest.mark.parametrize("seed", range(3))
def test_a_gradual_shift_is_found_while_it_lasts(seed: int, windows: int, found_within: int) -> None:
    """Half of the brokers change interests over this many windows: the slower, the later it is found, mainly by churn.

    A further alarm needs a larger step, so during a slow shift decisions still include some old traffic.
    """
    detector, traffic = ShiftDetector(2000.0), Traffic(seed)
    assert not list(alarms(detector, traffic, 40))
    before, after = traffic.shares.copy(), traffic.shares.copy()
    after[:5] = 1 - after[:5]
    found = []
    for turn in range(1, windows + 16):
        part = min(turn / windows, 1.0)
        traffic.shares = (1 - part) * before + part * after
        traffic.churn = 200.0 + (800.0 / windows if turn <= windows else 0.0)
        found += alarms(detector, traffic, 1)
    assert 1 <= len(found) <= 2
    assert found[0].since_ms < (40 + found_within) * WINDOW_MS
    assert all(one.since_ms < (40 + windows) * WINDOW_MS for one in found)


@pytest.mark.parametrize("seed", range(3))
def test_a_crowd_is_a_change_when_it_begins_and_when_it_ends(seed: int) -> None:
    """For twelve windows everybody wants three publishers."""
    detector, traffic = ShiftDetector(2000.0), Traffic(seed)
    assert not list(alarms(detector, traffic, 40))
    usual = traffic.shares.copy()
    for turn in range(30):
        traffic.shares = usual.copy()
        traffic.shares[:, :3] = 0.95 if turn < 12 else usual[:, :3]
        traffic.churn = 700.0 if turn in (0, 12) else 200.0
        since = [one.since_ms // WINDOW_MS - 40 for one in alarms(detector, traffic, 1)]
        assert since == ([turn] if turn in (0, 12) else [])


@pytest.mark.parametrize("day_windows", [12, 60])
def test_a_daily_cycle_is_reported_at_most_once(day_windows: int) -> None:
    """Its beginning is a step; the later rise and fall of interests from broker to broker is left to the horizon."""
    for seed in range(3):
        detector, traffic = ShiftDetector(2000.0), Traffic(seed)
        assert not list(alarms(detector, traffic, 40))
        usual, hours = traffic.shares.copy(), np.arange(len(BROKERS)) / len(BROKERS)
        found = []
        for turn in range(2 * day_windows):
            light = 0.55 + 0.45 * np.sin(2 * np.pi * (turn / day_windows + hours))
            traffic.shares = usual * light[:, None]
            found += alarms(detector, traffic, 1)
        assert len(found) <= 1
        assert all(one.since_ms < 43 * WINDOW_MS for one in found)


def test_one_publisher_that_publishes_more_is_a_change() -> None:
    """No interest changes, but deliveries and the cost per notification do."""
    detector, traffic = ShiftDetector(2000.0), Traffic(4)
    assert not list(alarms(detector, traffic, 30))
    traffic.shares[:, 1:] /= 3
    assert len(list(alarms(detector, traffic, 20))) == 1


def test_a_new_level_of_churn_is_reported_once() -> None:
    """Three times as many changes of clients are a change of traffic; that they persist is not."""
    detector, traffic = ShiftDetector(2000.0), Traffic(6)
    assert not list(alarms(detector, traffic, 30))
    traffic.churn *= 3
    assert 1 <= len(list(alarms(detector, traffic, 60))) <= 2
    assert not list(alarms(detector, traffic, 60))


def test_a_gap_and_moved_subscribers_are_not_changes() -> None:
    """Windows are not compared across a gap, and subscribers that a plan moved would count as changes of interest."""
    detector, traffic = ShiftDetector(2000.0), Traffic(5)
    assert not list(alarms(detector, traffic, 30))
    window, cost = traffic.window()
    assert detector.add(replace(window, client_changes=2000, epoch_max=1), cost, moves_interests=True) is None
    for _ in range(3):
        traffic.window()
    traffic.shares[:3] = 1 - traffic.shares[:3]
    assert detector.add(*traffic.window()) is None


MOVES: dict[str, dict[str, object]] = {
    "links only": {"moves": ()},
    "a publisher": {"moves": (ClientMove("p0", "b00", "b01"),)},
    "a silent client": {"moves": (ClientMove("c0", "b00", "b01"),)},
    "subscribers": {"moves": (), "subscribers_moved": (HomeMove("b00", "b01"),)},
    "a broker": {"moves": (), "proposals": (Proposal(MEMBERSHIP, (), (), 0.0, 0.0, 0.0, "joins"),)},
}


@pytest.mark.parametrize("what", MOVES)
def test_a_shift_during_a_plan_is_found_unless_the_plan_moves_subscriptions(what: str) -> None:
    """The churn of a window in which only links and publishers move is that of the clients."""
    detector, traffic = ShiftDetector(2000.0), Traffic(5)
    assert not list(alarms(detector, traffic, 30))
    window, _ = traffic.window()
    shifted = replace(window, client_changes=2000, epoch_max=1, homes=dict.fromkeys(PUBLISHERS, "b00"))
    plan = msgspec.structs.replace(plan_of(1, ("b00", "b01"), ("b00", "b02")), **MOVES[what])
    moves_interests = moves_interests_in(shifted, (plan,), TREE_KIND)
    found = detector.add(shifted, None, moves_interests=moves_interests)
    assert (found is not None) == (what in ("links only", "a publisher"))
    assert moves_interests_in(replace(shifted, epoch_max=0), (plan,), TREE_KIND) is False
    assert moves_interests_in(shifted, (), RING_KIND) is True, "on a ring any plan moves users"
    assert moves_interests_in(replace(shifted, epoch_max=0), (), RING_KIND) is False


def test_a_broker_that_dies_or_returns_is_not_a_change() -> None:
    """Its clients leave or return, and settle in the windows after; a later shift is reported as usual."""
    detector, traffic = ShiftDetector(2000.0), Traffic(7)
    incarnations = dict.fromkeys(BROKERS, 1)
    members = [incarnations] * 30 + [dict.fromkeys(BROKERS[1:], 1)] * 10 + [incarnations | {BROKERS[0]: 2}] * 10
    wanted = traffic.shares[0].copy()
    for turn, boots in enumerate(members):
        traffic.shares[0] = wanted if BROKERS[0] in boots else 0.0
        traffic.churn = 900.0 if turn in (30, 31, 40, 41, 42) else 200.0
        window, cost = traffic.window()
        assert detector.add(replace(window, boots=boots), cost) is None, turn
    traffic.shares[:5] = 1 - traffic.shares[:5]
    window, cost = traffic.window()
    assert detector.add(replace(window, boots=members[-1]), cost) is not None


def test_windows_without_traffic_show_no_change() -> None:
    """A silent system has neither deliveries nor costs."""
    detector = ShiftDetector(2000.0)
    silent = [closed_window(BROKERS, [], turn * WINDOW_MS) for turn in range(20)]
    assert [detector.add(window, None) for window in silent] == [None] * 20


def test_deliveries_are_reported_by_publisher_and_broker() -> None:
    """On a ring only by publisher, because plans move interests from broker to broker."""
    window = closed_window(("b00", "b01"), [{"b00"}, {"b00", "b01"}])
    assert deliveries_in(window) == {("b00", "p0"): 2.0, ("b01", "p0"): 1.0}
    assert deliveries_in(window, by_broker=False) == {("", "p0"): 2.0}
    assert hellinger({("a", "p"): 3.0}, {("a", "p"): 6.0}) == pytest.approx(0.0, abs=1e-7)
    assert hellinger({("a", "p"): 3.0}, {("b", "p"): 3.0}) == 1.0
