"""Lifetimes of subscriptions from client changes and their number; and how far a decision looks back."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.windows.read_windows import ENDS_MIN, LifetimeMeter, horizon_window_count
from regraft.overlay.sets.delivery_sets import DeliverySets

WINDOW_MS = 5_000
NOTHING = DeliverySets.of(("b00", "b01"), {}, 5.0)


def window_of(turn: int, changes: int, error: str = "") -> ClosedWindow:
    start_ms = turn * WINDOW_MS
    return ClosedWindow(start_ms, start_ms + WINDOW_MS, NOTHING, client_changes=changes, error=error)


def test_replacements_give_the_lifetime_by_littles_law() -> None:
    """400 subscriptions of which 100 are replaced in each window of 5 s live 20 s; each replacement is two changes."""
    meter = LifetimeMeter(10)
    for turn in range(4):
        meter.add_window(window_of(turn, 200), 400)
    assert meter.mean_s == pytest.approx(20.0)


def test_on_a_ring_the_ends_are_counted() -> None:
    """Of 400 subscriptions of few users 100 end in each window of 5 s, by any number of changes."""
    meter = LifetimeMeter(10)
    for turn in range(4):
        meter.add_window(window_of(turn, 7), 400, 1000 + 100 * turn)
    assert meter.mean_s == pytest.approx(20.0)


def test_newcomers_do_not_count_as_short_lifetimes() -> None:
    """A window in which 400 arrive and none leaves shows no end, and one in which they leave shows no beginning."""
    meter = LifetimeMeter(10)
    meter.add_window(window_of(0, 0), 0)
    meter.add_window(window_of(1, 400), 400)
    assert meter.mean_s is None
    meter.add_window(window_of(2, 200), 400)
    # They were present for half of the first window and all of the second: 200 * 5 + 400 * 5 s, and 100 ended.
    assert meter.mean_s == pytest.approx(30.0)


def test_too_few_ends_give_no_lifetime() -> None:
    """Below the minimum number of ends there is no lifetime."""
    meter = LifetimeMeter(10)
    meter.add_window(window_of(0, 0), 50)
    meter.add_window(window_of(1, 2 * (ENDS_MIN - 1)), 50)
    assert meter.mean_s is None
    meter.add_window(window_of(2, 2), 50)
    assert meter.mean_s == pytest.approx(50 * 10 / ENDS_MIN)


def test_unusable_windows_do_not_count() -> None:
    """Incomplete windows may lack changes, and windows without a known number of subscriptions cannot be used."""
    meter = LifetimeMeter(10)
    meter.add_window(window_of(0, 200), None)
    meter.add_window(window_of(1, 200), 400)
    meter.add_window(window_of(2, 9, error="rows missing"), 400)
    assert meter.mean_s is None
    meter.add_window(window_of(3, 200), 400)
    assert meter.mean_s == pytest.approx(20.0)


def test_old_windows_are_forgotten() -> None:
    """When clients change their behaviour the lifetime follows that of the windows kept."""
    meter = LifetimeMeter(3)
    for turn in range(10):
        meter.add_window(window_of(turn, 200 if turn < 7 else 20), 400)
    assert meter.mean_s == pytest.approx(200.0)


@pytest.mark.parametrize("draw", [random.Random.expovariate, lambda rng, rate: 2 * rng.random() / rate])
def test_lifetimes_of_any_distribution_are_found(draw) -> None:  # type: ignore[no-untyped-def]
    """Little's law only requires a steady state: exponential and uniform lifetimes both give their mean."""
    rng, count, mean_s = random.Random(3), 300, 17.0
    ends_s = [draw(rng, 1 / mean_s) * rng.random() for _ in range(count)]
    meter = LifetimeMeter(60)
    for turn in range(120):  # The first windows still depend on how the lifetimes were started.
        changes = 0
        for place in range(count):
            while ends_s[place] < (turn + 1) * WINDOW_MS / 1000:
                ends_s[place] += draw(rng, 1 / mean_s)
                changes += 2
        meter.add_window(window_of(turn, changes), count)
    found_s = meter.mean_s
    assert found_s is not None
    # About 5,300 lifetimes end in the windows kept: a standard error of 1.4 % for exponential ones.
    assert found_s == pytest.approx(mean_s, rel=0.06)


@given(st.floats(0.1, 100), st.floats(0.001, 1e9), st.integers(1, 60_000), st.integers(2, 9), st.integers(9, 500))
def test_the_horizon_holds_the_lifetimes_within_its_bounds(
    lifetimes: float, lifetime_s: float, window_ms: int, windows_min: int, windows_max: int
) -> None:
    """Never outside the bounds, and between them within half a window of the requested length."""
    count = horizon_window_count(lifetimes, lifetime_s, window_ms, windows_min, windows_max)
    assert windows_min <= count <= windows_max
    wanted = lifetimes * lifetime_s * 1000 / window_ms
    if windows_min < count < windows_max:
        assert math.isclose(count, wanted, abs_tol=0.5 + 1e-9)
    assert horizon_window_count(lifetimes, None, window_ms, windows_min, windows_max) == windows_max
