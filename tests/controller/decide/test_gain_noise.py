"""How often a chance gain passes the gate: at most at the nominal rate, however correlated the windows are."""

import math
import statistics

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr

from regraft.controller.decide.gain_noise import MeanGain, mean_gain, student_sigmas

WINDOW_S = 5.0
TRIALS = 4000
NOMINAL = float(ndtr(-2.0))  # probability of a normal variable above two sigma: 2.3 %
SPREAD = 3 * math.sqrt(NOMINAL * (1 - NOMINAL) / TRIALS)
# windows and lifetime of a subscription: the demo's horizon, then few windows, slow interests, many windows
LOOKS = [(4, 18.0), (2, 18.0), (16, 18.0), (4, 60.0), (4, 600.0), (60, 60.0), (60, 3600.0)]


def worthless_gains(count: int, lifetime_s: float, trials: int, seed: int) -> NDArray[np.float64]:
    """Return rows of an AR(1) series with mean 0 and the correlation of subscriptions with that lifetime."""
    rng, alike = np.random.default_rng(seed), math.exp(-WINDOW_S / lifetime_s)
    gains = rng.normal(size=(trials, count))
    for place in range(1, count):
        gains[:, place] = alike * gains[:, place - 1] + math.sqrt(1 - alike**2) * gains[:, place]
    return gains


def estimates(gains: NDArray[np.float64], lifetime_s: float | None) -> list[MeanGain]:
    spans = [(WINDOW_S * place, WINDOW_S * (place + 1)) for place in range(gains.shape[1])]
    return [mean_gain(row, spans, lifetime_s) for row in gains]


@pytest.mark.parametrize(("count", "lifetime_s"), LOOKS)
def test_one_worthless_change_passes_at_most_at_the_nominal_rate(count: int, lifetime_s: float) -> None:
    """At two sigma at most one in 44."""
    found = estimates(worthless_gains(count, lifetime_s, TRIALS, seed=1), lifetime_s)
    assert sum(one.mean > one.limit(2.0) for one in found) / TRIALS < NOMINAL + SPREAD


@pytest.mark.parametrize(("count", "lifetime_s"), [(4, 18.0), (60, 60.0)])
def test_the_best_of_many_worthless_changes_passes_at_most_at_the_nominal_rate(count: int, lifetime_s: float) -> None:
    """Of 100 worthless changes the planner proposes the one that looks best."""
    found = estimates(worthless_gains(count, lifetime_s, 200 * 100, seed=2), lifetime_s)
    groups = [found[at : at + 100] for at in range(0, len(found), 100)]
    passed = sum(any(one.mean > one.limit(2.0, alternatives=100) for one in group) for group in groups)
    assert passed / len(groups) < NOMINAL + 3 * math.sqrt(NOMINAL / len(groups))
    assert any(one.mean > one.limit(2.0) for one in found)  # Without the correction the choice would let some through.


def test_the_limit_is_exact_for_means_over_the_process() -> None:
    """Means over spans of a process with correlation exp(-t / L) pass as often as Student's t says."""
    fine, count, lifetime_s = 20, 4, 18.0
    rng, alike = np.random.default_rng(3), math.exp(-WINDOW_S / fine / lifetime_s)
    moments = rng.normal(size=(TRIALS, fine * count))
    for place in range(1, fine * count):
        moments[:, place] = alike * moments[:, place - 1] + math.sqrt(1 - alike**2) * moments[:, place]
    found = estimates(moments.reshape(TRIALS, count, fine).mean(axis=2), lifetime_s)
    assert sum(one.mean > one.limit(2.0) for one in found) / TRIALS == pytest.approx(NOMINAL, abs=SPREAD)


def test_a_steady_gain_is_found() -> None:
    """Four windows are enough for a gain of ten times the spread of its moments, even as the best of 1,600."""
    found = estimates(10 + worthless_gains(4, 18.0, 500, seed=4), 18.0)
    assert sum(one.mean > one.limit(2.0) for one in found) / 500 > 0.95
    assert statistics.fmean(one.mean for one in found) == pytest.approx(10, abs=0.15)


def test_independent_windows_are_the_textbook_case() -> None:
    """Without a lifetime the error is the sample deviation over the square root of the number of windows."""
    gains = [1.0, 3.0, 2.0, 5.0]
    found = mean_gain(gains, [(at, at + 1.0) for at in range(4)], None)
    assert found.mean == pytest.approx(statistics.fmean(gains))
    assert found.error == pytest.approx(statistics.stdev(gains) / 2)
    assert found.freedom == 3


def test_one_span_shows_no_spread() -> None:
    """Nothing passes on it, unless the limit is zero sigma."""
    found = mean_gain([5.0], [(0.0, 1.0)], 10.0)
    assert found.limit(2.0) == math.inf
    assert found.limit(0.0) == 0.0


def test_the_limit_grows_with_the_number_of_alternatives_and_with_fewer_spans() -> None:
    """By the union bound over the alternatives, by the square root of the choices, and by Student's t."""
    found = MeanGain(1.0, 1.0, 15)
    assert found.limit(2.0) < found.limit(2.0, alternatives=10) < found.limit(2.0, alternatives=1000)
    assert found.limit(2.0, choices=4) == pytest.approx(2 * found.limit(2.0))
    assert MeanGain(1.0, 1.0, 3).limit(2.0) > found.limit(2.0) > 2.0
    assert student_sigmas(2.0, 10**6) == pytest.approx(2.0, abs=1e-4)
