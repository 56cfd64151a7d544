"""What it counts against a change of a tree that one death would cut off more. As the judge counts it.

In: the traffic of a state. Out: a price of exchanging links. What a death cuts off belongs to :mod:`overlay.cut_off`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.kinds.tree.tree_state import TreeState
from overlay.configuration import Configuration
from overlay.cut_off import tree_cut_off
from overlay.overlay_configuration import Link


@dataclass
class FrailtyPrice:
    """What it counts that the worst single death cuts off more after a swap: ``per_share`` for all deliveries."""

    brokers: tuple[str, ...]
    deliveries_per_s: NDArray[np.float64]
    per_share: float
    _last: tuple[tuple[Link, ...], float] = ((), 0.0)  # The tree that the last swaps were tried on.

    @classmethod
    def of(cls, state: TreeState, weight: float) -> FrailtyPrice | None:
        """Return the price at the traffic of a state; None where nothing counts, or is known of deliveries."""
        if not weight or not state.local_deliveries:
            return None
        return cls(state.inventory.brokers, state.deliveries_per_s, weight * state.tree_costs.cost_per_s)

    def rise_per_s(self, before: tuple[Link, ...], after: Iterable[Link]) -> float:
        """Return what a change of links counts, 0 for one that makes the tree no frailer. O(brokers^2)."""
        if self._last[0] != before:
            self._last = before, self._worst_share(before)
        return self.per_share * max(self._worst_share(after) - self._last[1], 0.0)

    def _worst_share(self, links: Iterable[Link]) -> float:
        return tree_cut_off(Configuration.of(0, self.brokers, links), self.deliveries_per_s).worst_share
