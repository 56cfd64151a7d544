"""The options that take numbers, which must be finite."""

from __future__ import annotations

import math
from functools import partial

import typer


def _finite(number: float | None) -> float | None:
    """Return a number; refuse NaN and infinity, which pass most comparisons."""
    if number is not None and not math.isfinite(number):
        raise typer.BadParameter(f"{number} is not a finite number")
    return number


float_option = partial(typer.Option, callback=_finite)
