"""What the death of each broker would cut off: deliveries between other brokers that pass through it. Pure.

Losses of a dead broker's own clients are left out because they are the same in any overlay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from regraft.schemas.arrays import Floats, Places


@dataclass(frozen=True, eq=False)
class DeliveryPairs:
    """How much of what is published at one broker is delivered at another: ``counts[k]`` in ``length_s`` seconds.

    ``sources`` and ``targets`` (pairs,) are positions of brokers. Counts are whole numbers, so any order adds them up
    exactly.
    """

    sources: Places
    targets: Places
    counts: Floats
    length_s: float

    @classmethod
    def of(cls, counts: Mapping[tuple[int, int], float], length_s: float) -> DeliveryPairs:
        """Build from counts by source and target."""
        pairs = sorted(counts)
        sources, targets = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
        return cls(sources, targets, np.array([counts[pair] for pair in pairs], dtype=np.float64), length_s)

    @classmethod
    def of_matrix(cls, counts: Floats, length_s: float = 1.0) -> DeliveryPairs:
        """Build from counts by source (row) and target (column)."""
        sources, targets = np.nonzero(counts)
        return cls(sources, targets, counts[sources, targets], length_s)

    def matrix_per_s(self, brokers: int) -> Floats:
        """Return the deliveries per second by source (row) and target (column)."""
        per_s = np.zeros((brokers, brokers))
        np.add.at(per_s, (self.sources, self.targets), self.counts / self.length_s)
        return per_s


@dataclass(frozen=True, eq=False)
class CutOff:
    """Deliveries per second that each broker's death cuts off, shape (brokers,), out of ``total_per_s``."""

    brokers: tuple[str, ...]
    per_s: Floats
    total_per_s: float

    @cached_property
    def worst_broker(self) -> str:
        """The broker whose death cuts off the most."""
        return self.brokers[int(self.per_s.argmax())]

    @property
    def worst_share(self) -> float:
        """The share of all deliveries that the worst broker's death cuts off; 0 if nothing is delivered."""
        return float(self.per_s.max()) / self.total_per_s if self.total_per_s else 0.0

    @property
    def mean_share(self) -> float:
        """The mean share of all deliveries that a broker's death cuts off; 0 if nothing is delivered.

        Multiplied by the number of brokers, the deaths per broker and year, and the time to repair in years, it gives
        the share of a year's deliveries that deaths cut off.
        """
        return float(self.per_s.mean()) / self.total_per_s if self.total_per_s else 0.0
