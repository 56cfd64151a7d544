"""Random generators that depend on a seed, a draw and a purpose alone."""

from __future__ import annotations

import numpy as np


def random_of(seed: int, draw: int, purpose: str) -> np.random.Generator:
    """Return a separate generator for each purpose, so that one more draw for one changes no other.

    Tasks that differ otherwise have the same users and rings, so that what differs is what they compare.
    """
    return np.random.default_rng([seed, draw, *purpose.encode()])
