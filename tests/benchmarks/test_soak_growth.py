"""What counts as growth: a slope beyond its error and a tolerance, unless a known bound limits it."""

import math
import random

import pytest

from benchmarks.soak_growth import BOUNDED, FLAT, GROWS, UNKNOWN, Growth, measure_growth


def growth_of(values: list[float], hours: float = 2.0, bound: float | None = None) -> Growth:
    samples = [(hours * place / len(values), value) for place, value in enumerate(values)]
    return measure_growth("x", "MB", samples, tolerance_share=0.03, tolerance=1.0, bound=bound)


def test_the_slope_of_a_line_is_found_with_almost_no_error() -> None:
    """5 MB an hour over two hours."""
    found = growth_of([100 + 10 * place / 200 for place in range(200)])
    assert found.slope_per_h == pytest.approx(5.0, rel=1e-6)
    assert found.slope_error_per_h == pytest.approx(0.0, abs=1e-6)
    assert found.growth == pytest.approx(10.0, rel=0.02)
    assert found.verdict == GROWS


def test_noise_is_not_growth_and_its_error_covers_the_truth() -> None:
    """Over many random flat series almost none is said to grow, and the slope is within three errors."""
    rng = random.Random(1)
    found = [growth_of([100 + rng.gauss(0, 10) for _ in range(300)]) for _ in range(200)]
    assert sum(each.verdict == GROWS for each in found) <= 10
    assert sum(abs(each.slope_per_h) <= 3 * each.slope_error_per_h for each in found) >= 190


def test_a_sawtooth_is_flat_and_a_climbing_one_is_not() -> None:
    """Logs wait for retention and heaps for collection; what counts is whether the teeth rise."""
    saw = [100 + 50 * (place / 16 % 1) for place in range(400)]
    assert growth_of(saw).verdict == FLAT
    assert growth_of([value + place / 5 for place, value in enumerate(saw)]).verdict == GROWS


def test_growth_below_a_tolerance_or_a_bound_is_distinguished() -> None:
    """A heap may fill up to its limit; a megabyte over hours is negligible."""
    assert growth_of([100 + place / 400 for place in range(200)]).verdict == FLAT
    climbing = [100 + place / 4 for place in range(200)]
    assert growth_of(climbing, bound=200).verdict == BOUNDED
    assert growth_of(climbing, bound=120).verdict == GROWS


def test_a_falling_series_is_flat_and_few_samples_decide_nothing() -> None:
    """A few samples prove nothing, for example those of a process that lived for an instant."""
    assert growth_of([200.0 - place for place in range(100)]).verdict == FLAT
    assert growth_of([1.0, 2.0, 3.0]).verdict == UNKNOWN
    assert growth_of([]).verdict == UNKNOWN
    assert not math.isnan(growth_of([7.0] * 50).slope_per_h)
