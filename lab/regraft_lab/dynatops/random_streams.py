"""Random generators that depend only on a seed, a draw and a purpose."""

from __future__ import annotations

import numpy as np


def random_of(seed: int, draw: int, purpose: str) -> np.random.Generator:
    """Return a separate generator for each purpose, so that drawing more for one purpose does not affect others.

    Tasks with the same seed and draw share users and rings, and so differ only in what they compare.
    """
    return np.random.default_rng([seed, draw, *purpose.encode()])
