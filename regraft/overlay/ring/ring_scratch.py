"""Prices of swaps on a ring, each computed from scratch: slow and obvious, for any hop delays.

In: a problem and a mapping. Out: the changes that swaps cause. :mod:`overlay.ring.ring_swaps` computes the same fast if
all hops take 1.
"""

from __future__ import annotations

import numpy as np

from regraft.overlay.ring.ring_reassignment import Mapping, RingProblem
from regraft.schemas.arrays import Floats


class ScratchSwaps:
    """A mapping, its cost, and the change that each swap would cause; ``mapping`` None means the present one."""

    def __init__(self, problem: RingProblem, mapping: Mapping | None = None) -> None:
        self.problem = problem
        self.mapping = (problem.present if mapping is None else mapping).copy()
        self.broker_costs = problem.broker_costs(self.mapping)

    @property
    def cost(self) -> float:
        """C of the mapping."""
        return self.problem.cost(self.mapping)

    def changes(self, position: int) -> Floats:
        """Return the change of C if the broker at a position swaps with the one at each other; inf at its own."""
        now = self.cost
        changes = np.full(self.problem.broker_count, np.inf)
        for other in range(len(changes)):
            if other != position:
                changes[other] = self.problem.cost(_swapped(self.mapping, position, other)) - now
        return changes

    def swap(self, position: int, other: int) -> None:
        """Swap the brokers at two positions."""
        self.mapping = _swapped(self.mapping, position, other)
        self.broker_costs = self.problem.broker_costs(self.mapping)


def _swapped(mapping: Mapping, position: int, other: int) -> Mapping:
    swapped = mapping.copy()
    swapped[[position, other]] = mapping[[other, position]]
    return swapped
