"""Decide whether a series grows: least-squares slope, its standard error, and a verdict.

Neighbouring samples are correlated (garbage waits for its collection, logs for their retention), so the error is
computed from means over equal spans, which are nearly independent; the samples themselves would give far too small an
error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SPANS = 12
SPANS_MIN = 6
ERRORS = 2.0  # A slope counts if it exceeds this many standard errors.

FLAT, BOUNDED, GROWS, UNKNOWN = "flat", "below its bound", "grows", "too few samples"


@dataclass(frozen=True, slots=True)
class Growth:
    """The growth of one series after the warm-up.

    ``slope_per_h`` and ``slope_error_per_h``: per hour of the run's clock. ``growth``: the slope times the time
    measured. ``bound``: a value that the series can never exceed, None if there is none.
    """

    name: str
    unit: str
    first: float
    last: float
    mean: float
    maximum: float
    slope_per_h: float
    slope_error_per_h: float
    growth: float
    bound: float | None
    verdict: str


def measure_growth(
    name: str,
    unit: str,
    samples: Sequence[tuple[float, float]],
    *,
    tolerance_share: float,
    tolerance: float = 0.0,
    bound: float | None = None,
) -> Growth:
    """Return slope and verdict for samples (hours, value) in order of time.

    A series grows if the slope is above ERRORS standard errors and the growth over the whole time is above
    ``tolerance_share`` of the mean and above ``tolerance``. Below its ``bound`` growth is allowed.
    """
    if len(samples) < SPANS_MIN:
        value = samples[-1][1] if samples else 0.0
        return Growth(name, unit, value, value, value, value, 0.0, 0.0, 0.0, bound, UNKNOWN)
    hours, values = (np.array(column, dtype=float) for column in zip(*samples, strict=True))
    slope, error = _slope(hours, values)
    growth, mean, maximum = slope * (hours[-1] - hours[0]), float(values.mean()), float(values.max())
    is_growing = slope > ERRORS * error and growth > max(tolerance_share * abs(mean), tolerance)
    verdict = FLAT
    if is_growing:
        verdict = GROWS if bound is None or maximum > bound else BOUNDED
    first, last = float(values[0]), float(values[-1])
    return Growth(name, unit, first, last, mean, maximum, slope, error, float(growth), bound, verdict)


def _slope(hours: np.ndarray, values: np.ndarray) -> tuple[float, float]:
    """Return the slope through the means over equal spans of samples, and its standard error."""
    count = min(SPANS, len(hours))
    x = np.array([span.mean() for span in np.array_split(hours, count)])
    y = np.array([span.mean() for span in np.array_split(values, count)])
    x_off = x - x.mean()
    spread = float(x_off @ x_off)
    if spread == 0.0:
        return 0.0, math.inf
    slope = float(x_off @ y) / spread
    left_over = y - y.mean() - slope * x_off
    return slope, math.sqrt(float(left_over @ left_over) / (count - 2) / spread)
