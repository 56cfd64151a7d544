"""Publishers at their homes under load caps, moved one by one: the load of each broker, now and after any move."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from regraft.overlay.tree.link_sides import RootedTree
from regraft.schemas.arrays import Floats, Places

ROUNDING_SHARE = 1e-9  # Loads that differ by a smaller share are equal up to rounding.


class HomeLoads(Protocol):
    """The load of publishers at any home, from :class:`overlay.publisher_costs.PublisherCosts`."""

    @property
    def tree(self) -> RootedTree:
        """The tree to which the loads refer."""

    @property
    def published_per_s(self) -> Floats:
        """The notifications that each publisher publishes, shape (publishers,)."""

    @property
    def below_per_s(self) -> Floats:
        """The notifications wanted below each broker, shape (publishers, brokers)."""

    @property
    def above_per_s(self) -> Floats:
        """The notifications wanted above each broker, shape (publishers, brokers)."""


class PublisherPlacement:
    """The homes of some publishers and the load of each broker; :meth:`move` changes a home.

    ``rows`` are the publishers (positions in ``costs.publishers``) that have a home, ``homes`` their brokers by
    position. The limit of a broker is its cap in ``caps_per_s`` (brokers,), or its initial load if that is higher: a
    broker above its cap may stay there. None means no caps.
    """

    def __init__(self, costs: HomeLoads, rows: Sequence[int], homes: Sequence[int], caps_per_s: Floats | None) -> None:
        self.homes: Places = np.array(homes, dtype=np.intp)
        chosen: Places = np.array(rows, dtype=np.intp)
        self._tree = costs.tree
        self._published = costs.published_per_s[chosen]
        self._below, self._above = costs.below_per_s[chosen], costs.above_per_s[chosen]
        self._below_by_broker, self._above_by_broker = self._below.T.copy(), self._above.T.copy()
        own = [self._loads_at(place, home) for place, home in enumerate(homes)]
        self._own: Floats = np.array(own).reshape(len(chosen), len(costs.tree.parents))
        self.loads_per_s: Floats = self._own.sum(axis=0)
        self.caps_per_s: Floats = np.full(len(costs.tree.parents), np.inf) if caps_per_s is None else caps_per_s
        self.limits_per_s = self.limits_now()

    def copy(self) -> PublisherPlacement:
        """Return an independent copy with the same limits, to try moves on."""
        copied = copy.copy(self)
        copied.homes, copied.loads_per_s, copied._own = self.homes.copy(), self.loads_per_s.copy(), self._own.copy()
        return copied

    def limits_now(self) -> Floats:
        """Return each broker's limit given its present load: its cap, or the present load if that is higher."""
        return np.asarray(np.maximum(self.caps_per_s, self.loads_per_s) * (1 + ROUNDING_SHARE))

    def move(self, place: int, home: int) -> None:
        """Move a publisher, ignoring the limits. Cost O(brokers)."""
        loads = self._loads_at(place, home)
        self.loads_per_s = self.loads_per_s - self._own[place] + loads
        self._own[place] = loads
        self.homes[place] = home

    def keeps(self, limits_per_s: Floats, moves: Sequence[tuple[int, int]] = ()) -> bool:
        """Return True if no broker would exceed these limits after the moves (publisher, home). O(brokers) per move."""
        loads = self.loads_per_s
        for place, home in moves:
            loads = loads - self._own[place] + self._loads_at(place, home)
        return bool((loads <= limits_per_s).all())

    @property
    def excess_per_s(self) -> float:
        """The excess over the limits, summed over all brokers."""
        return float(np.maximum(self.loads_per_s - self.limits_per_s, 0.0).sum())

    def excess_after_per_s(self) -> Floats:
        """Return the summed excess over the limits after each single move, shape (publishers, brokers).

        A broker that the publisher leaves behind forwards only what is wanted behind it. So only the loads of brokers
        on the path between both homes change, and their excess is summed link by link from the present home outward.
        Cost O(brokers) per publisher. Exactly 0 if no broker exceeds its limit before or after the move, else exact up
        to the rounding of sums.
        """
        parents, places = self._tree.parents, np.arange(len(self.homes))[:, None]
        # One row per broker, so that a level of the tree consists of whole rows.
        own, below, above = self._own.T.copy(), self._below_by_broker, self._above_by_broker
        room = own + (self.limits_per_s - self.loads_per_s)[:, None]
        now = np.maximum(own - room, 0.0)
        upward = np.maximum(below - room, 0.0) - now  # If left for its parent, a broker bears what is wanted below.
        upward[0] = 0.0  # The root has no parent.
        downward = np.maximum(above - room[parents], 0.0) - now[parents]  # The parent, if left for this broker.
        arrival = np.maximum(self._published - room, 0.0) - now
        paths = self._tree.paths_to_root[self.homes]
        on_the_way, is_above_home = np.zeros_like(room), np.zeros(room.shape, dtype=bool)
        on_the_way[paths[:, 1:], places] = np.cumsum(upward[paths[:, :-1], places], axis=1)
        is_above_home[paths, places] = True
        for level in self._tree.levels:
            outward = on_the_way[parents[level]] + downward[level]
            on_the_way[level] = np.where(is_above_home[level], on_the_way[level], outward)
        return np.asarray((now.sum(axis=0) + on_the_way + arrival).T)

    def _loads_at(self, place: int, home: int) -> Floats:
        """Return the same as :meth:`PublisherCosts.loads_per_s`, by positions."""
        loads = self._below[place].copy()
        path = self._tree.path_to_root(home)
        loads[path[1:]] = self._above[place, path[:-1]]
        loads[home] = self._published[place]
        return np.asarray(loads)
