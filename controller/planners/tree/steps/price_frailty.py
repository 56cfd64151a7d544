"""Price the added frailty of a tree: how much more a single death would cut off. The judge uses the same price.

What a death cuts off belongs to :mod:`overlay.tree.tree_cut_off`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regraft.controller.kinds.tree.tree_state import TreeState
from regraft.overlay.overlay_configuration import Link
from regraft.overlay.tree.overlay_costs import OverlayCosts
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.overlay.tree.tree_cut_off import tree_cut_off


@dataclass
class FrailtyPrice:
    """The penalty for what the worst single death cuts off more after a swap: ``per_share`` for all deliveries."""

    brokers: tuple[str, ...]
    deliveries_per_s: NDArray[np.float64]
    per_share: float
    _last: tuple[tuple[Link, ...], float] = ((), 0.0)  # The tree that swaps were last tried on.

    @classmethod
    def of(cls, state: TreeState, weight: float) -> FrailtyPrice | None:
        """Return the price for the traffic of a state; None if the weight is 0 or deliveries are unknown."""
        if not weight or not state.local_deliveries:
            return None
        return cls(state.inventory.brokers, state.deliveries_per_s, weight * state.tree_costs.cost_per_s)

    def rise_per_s(self, before: tuple[Link, ...], after: Iterable[Link]) -> float:
        """Return the frailty price of a change of links, 0 if the tree gets no frailer. O(brokers^2)."""
        if self._last[0] != before:
            self._last = before, self._worst_share(before)
        return self.per_share * max(self._worst_share(after) - self._last[1], 0.0)

    def _worst_share(self, links: Iterable[Link]) -> float:
        return tree_cut_off(TreeConfiguration.of(0, self.brokers, links), self.deliveries_per_s).worst_share


@dataclass(frozen=True, eq=False)
class OverlayFrailty:
    """The frailty price of a tree with its publishers, to be compared with that of the present one.

    ``handed_per_s`` (publishers, brokers) is what is handed to subscribers of each publisher at each broker.
    """

    brokers: tuple[str, ...]
    handed_per_s: NDArray[np.float64]
    per_share: float

    @classmethod
    def of(cls, state: TreeState, weight: float) -> OverlayFrailty | None:
        """Return the price for the traffic of a state; None if the weight is 0 or deliveries are unknown."""
        if not weight or not state.local_deliveries:
            return None
        publishers, index = state.publisher_sets.publishers, state.inventory.index
        handed = np.zeros((len(publishers), len(index)))
        for place, publisher in enumerate(publishers):
            for broker, count in state.local_deliveries.get(publisher, {}).items():
                if broker in index:
                    handed[place, index[broker]] += count
        return cls(state.inventory.brokers, handed / state.horizon_s, weight * state.overlay_costs.cost_per_s)

    def price_per_s(self, overlay: OverlayCosts) -> float:
        """Return the price of the share that the worst single death cuts off. O(brokers^2)."""
        deliveries_per_s = np.zeros((len(self.brokers), len(self.brokers)))
        np.add.at(deliveries_per_s, overlay.homes, self.handed_per_s)
        tree = TreeConfiguration(0, self.brokers, overlay.tree.links)
        return self.per_share * tree_cut_off(tree, deliveries_per_s).worst_share
