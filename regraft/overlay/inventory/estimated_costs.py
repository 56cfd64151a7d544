"""Costs of unmeasured links: estimates, which measurements supersede."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import Link


@dataclass(frozen=True, eq=False)
class EstimatedCosts:
    """Estimates of link costs: ``link_cost`` (n, n, symmetric) follows sorted ``brokers``, NaN if there is none.

    A link without an estimate costs ``unknown_cost``; if that is NaN, what the inventory says.
    """

    brokers: tuple[str, ...]
    link_cost: NDArray[np.float64]
    unknown_cost: float = math.nan

    @classmethod
    def empty(cls, brokers: Collection[str]) -> EstimatedCosts:
        """Build without an estimate for any link."""
        return cls(tuple(sorted(brokers)), np.full((len(brokers), len(brokers)), np.nan))

    @cached_property
    def _index(self) -> dict[str, int]:
        return {broker: place for place, broker in enumerate(self.brokers)}

    def cost_of_link(self, pair: Link) -> float | None:
        """Return the estimate of a link, or None if there is none."""
        rows = [self._index.get(broker) for broker in pair]
        if None in rows:
            return None
        cost = float(self.link_cost[rows[0], rows[1]])
        return None if np.isnan(cost) else cost

    def share_changed(self, after: EstimatedCosts, by_share: float) -> float:
        """Return the share of links whose estimate in ``after`` differs from this one by more than ``by_share`` of it.

        A link that lost its estimate counts as changed. If any link gains one, or the brokers differ, the result is 1:
        new estimates are worth more than what they replace.
        """
        if after.brokers != self.brokers or (np.isnan(self.link_cost) & ~np.isnan(after.link_cost)).any():
            return 1.0
        changed = np.abs(after.link_cost - self.link_cost) > by_share * self.link_cost
        changed |= np.isnan(after.link_cost) & ~np.isnan(self.link_cost)
        return float(changed[np.triu_indices(len(self.brokers), 1)].mean())

    def over(self, inventory: Inventory, priced: Collection[str] = ()) -> Inventory:
        """Return the inventory with its link costs replaced by the estimates, if there are any.

        A link without an estimate keeps its cost if an end is in ``priced`` or ``unknown_cost`` is NaN.
        """
        costs = inventory.link_cost.copy()
        if not math.isnan(self.unknown_cost):
            unknown = np.array([broker not in priced for broker in inventory.brokers])
            costs[np.ix_(unknown, unknown)] = self.unknown_cost
            np.fill_diagonal(costs, 0.0)
        places = [place for place, broker in enumerate(inventory.brokers) if broker in self._index]
        rows = [self._index[inventory.brokers[place]] for place in places]
        link_cost = self.link_cost[np.ix_(rows, rows)]
        costs[np.ix_(places, places)] = np.where(np.isnan(link_cost), costs[np.ix_(places, places)], link_cost)
        return replace(inventory, link_cost=costs)
