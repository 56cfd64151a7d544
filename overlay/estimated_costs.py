"""Costs of unmeasured links: estimates, which measurements supersede.

In: brokers and a matrix. Out: an inventory with these costs. How they are estimated is seen elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.inventory import Inventory
from regraft.overlay.overlay_configuration import Link


@dataclass(frozen=True, eq=False)
class EstimatedCosts:
    """``link_cost`` (n, n, symmetric) follows ``brokers``, sorted; no number is a link that is not estimated.

    Such a link costs ``unknown_cost``; where that is no number, either, what the inventory says.
    """

    brokers: tuple[str, ...]
    link_cost: NDArray[np.float64]
    unknown_cost: float = math.nan

    @classmethod
    def of_none(cls, brokers: Collection[str]) -> EstimatedCosts:
        """Return no estimate of any link."""
        return cls(tuple(sorted(brokers)), np.full((len(brokers), len(brokers)), np.nan))

    @cached_property
    def _index(self) -> dict[str, int]:
        return {broker: place for place, broker in enumerate(self.brokers)}

    def cost_of_link(self, pair: Link) -> float | None:
        """Return the estimate of a link, None where there is none."""
        rows = [self._index.get(broker) for broker in pair]
        if None in rows:
            return None
        cost = float(self.link_cost[rows[0], rows[1]])
        return None if np.isnan(cost) else cost

    def share_moved(self, after: EstimatedCosts, by_share: float) -> float:
        """Return which share of the links of ``after`` costs otherwise by more than a share of its cost here.

        Estimates of links that had none count as if all had moved: they are worth more than what stood there.
        """
        if after.brokers != self.brokers or (np.isnan(self.link_cost) & ~np.isnan(after.link_cost)).any():
            return 1.0
        moved = np.abs(after.link_cost - self.link_cost) > by_share * self.link_cost
        moved |= np.isnan(after.link_cost) & ~np.isnan(self.link_cost)
        return float(moved[np.triu_indices(len(self.brokers), 1)].mean())

    def over(self, inventory: Inventory, priced: Collection[str] = ()) -> Inventory:
        """Return the inventory with the estimates in place of its costs, as far as there are any.

        What it says of the links of ``priced`` brokers is kept where there is no estimate, known or unknown.
        """
        costs = inventory.link_cost.copy()
        if not math.isnan(self.unknown_cost):
            unknown = np.array([broker not in priced for broker in inventory.brokers])
            costs[np.ix_(unknown, unknown)] = self.unknown_cost
            np.fill_diagonal(costs, 0.0)
        known = [place for place, broker in enumerate(inventory.brokers) if broker in self._index]
        rows = [self._index[inventory.brokers[place]] for place in known]
        found = self.link_cost[np.ix_(rows, rows)]
        costs[np.ix_(known, known)] = np.where(np.isnan(found), costs[np.ix_(known, known)], found)
        return replace(inventory, link_cost=costs)
