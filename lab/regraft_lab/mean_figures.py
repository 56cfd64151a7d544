"""Means over repeated runs with their 95 % intervals, as figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from regraft.api.programs import Figure

Values = Sequence[float] | NDArray[np.float64]

# 97.5 % points of Student's distribution for 1 to 30 degrees of freedom; beyond, the normal distribution's 1.96.
STUDENT_975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
NORMAL_975 = 1.960


def mean_half_width(values: Values) -> tuple[float, float | None]:
    """Return the mean and half the width of its 95 % interval; None instead of the width for a single value."""
    count = len(values)
    if count < 2:
        return float(values[0]), None
    student = STUDENT_975[count - 2] if count - 2 < len(STUDENT_975) else NORMAL_975
    return float(np.mean(values)), float(student * np.std(values, ddof=1) / np.sqrt(count))


def with_interval(name: str, where: Mapping[str, str | int | float], values: Values, unit: str) -> list[Figure]:
    """Return the mean as a figure, and for several values half the width of its interval as ``name``_ci95."""
    mean, half = mean_half_width(values)
    figures = [Figure(name, dict(where), mean, unit)]
    if half is not None:
        figures.append(Figure(f"{name}_ci95", dict(where), half, unit))
    return figures
