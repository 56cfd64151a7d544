"""Price the added frailty of a tree: how much more a single death would cut off. The judge uses the same price.

What a death cuts off belongs to :mod:`overlay.tree.tree_cut_off`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from regraft.controller.kinds.tree.tree_state import TreeState
from regraft.overlay.cut_off import DeliveryPairs
from regraft.overlay.tree.tree_cut_off import cut_off_over
from regraft.schemas.arrays import Floats, Places


@dataclass
class FrailtyPrice:
    """The penalty for what the worst single death cuts off more after a swap: ``per_share`` for all deliveries."""

    brokers: tuple[str, ...]
    deliveries: DeliveryPairs
    per_share: float
    _last: tuple[bytes, float] = (b"", 0.0)  # The links of the tree that swaps were last tried on, and its share.

    @classmethod
    def of(cls, state: TreeState, weight: float) -> FrailtyPrice | None:
        """Return the price for the traffic of a state; None if the weight is 0 or deliveries are unknown."""
        if not weight or not state.hand_overs.publishers:
            return None
        return cls(state.inventory.brokers, state.deliveries, weight * state.tree_costs.cost_per_s)

    def rise_per_s(self, before: Places, after: Places) -> float:
        """Return the frailty price of a change of links, 0 if the tree gets no frailer. Cost as for a cut-off.

        Both have the ends of a tree's links, shape (links, 2).
        """
        links = before.tobytes()
        if self._last[0] != links:
            self._last = links, self._worst_share(before)
        return self.per_share * max(self._worst_share(after) - self._last[1], 0.0)

    def _worst_share(self, ends: Places) -> float:
        return cut_off_over(ends, self.brokers, self.deliveries).worst_share


@dataclass(frozen=True, eq=False)
class OverlayFrailty:
    """The frailty price of a tree with its publishers, to be compared with that of the present one.

    ``counts[k]`` is how many notifications of publisher ``publishers[k]`` are handed to subscribers at broker
    ``targets[k]``, in ``length_s`` seconds.
    """

    brokers: tuple[str, ...]
    publishers: Places
    targets: Places
    counts: Floats
    length_s: float
    per_share: float

    @classmethod
    def of(cls, state: TreeState, weight: float) -> OverlayFrailty | None:
        """Return the price for the traffic of a state; None if the weight is 0 or deliveries are unknown."""
        handed = state.hand_overs
        if not weight or not handed.publishers:
            return None
        place_of = {name: place for place, name in enumerate(state.publisher_sets.publishers)}
        places = np.array([place_of.get(name, -1) for name in handed.publishers], dtype=np.intp)[handed.owners]
        movable = places >= 0
        per_share = weight * state.overlay_costs.cost_per_s
        arrays = (places[movable], handed.targets[movable], handed.counts[movable])
        return cls(state.inventory.brokers, *arrays, handed.length_s, per_share)

    def price_per_s(self, ends: Places, homes: Places) -> float:
        """Return the price of the share that the worst single death cuts off. Cost as for a cut-off.

        ``ends`` (links, 2) are those of the tree's links.
        """
        deliveries = DeliveryPairs(homes[self.publishers], self.targets, self.counts, self.length_s)
        return self.per_share * cut_off_over(ends, self.brokers, deliveries).worst_share
