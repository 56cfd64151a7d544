"""Publishers at their homes under caps of load, moved one by one: what each broker bears, now and after any move.

In: what publishers cost and load at each home. Out: loads, and for all publishers and homes at once by how much a move
would break the caps. Choosing moves does not belong here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.link_sides import HungTree, Places

ROUNDING_SHARE = 1e-9  # Loads that differ by less than this share are the same but for the rounding of floats.

Floats = NDArray[np.float64]


class HomeLoads(Protocol):
    """The load of publishers at any home, from :class:`overlay.publisher_costs.PublisherCosts`."""

    @property
    def tree(self) -> HungTree:
        """The tree on which they are."""

    @property
    def published_per_s(self) -> Floats:
        """How many notifications each publisher publishes, (publishers,)."""

    @property
    def below_per_s(self) -> Floats:
        """Those wanted below each broker, (publishers, brokers)."""

    @property
    def above_per_s(self) -> Floats:
        """Those wanted above each broker, (publishers, brokers)."""


class PublisherPlacement:
    """The homes of some publishers and the load of each broker; :meth:`move` changes a home.

    ``rows`` are the publishers (positions in ``costs.publishers``) that have a home, ``homes`` their brokers by
    position. A broker may bear ``caps_per_s`` (brokers,), or what it bears at first where that is more: one above its
    cap may stay so. None for no caps.
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
        twin = object.__new__(PublisherPlacement)
        twin.__dict__.update(self.__dict__)
        twin.homes, twin.loads_per_s, twin._own = self.homes.copy(), self.loads_per_s.copy(), self._own.copy()
        return twin

    def limits_now(self) -> Floats:
        """Return what each broker may bear when this is what it bears before: its cap, or no more than now."""
        return np.asarray(np.maximum(self.caps_per_s, self.loads_per_s) * (1 + ROUNDING_SHARE))

    def move(self, place: int, home: int) -> None:
        """Move a publisher, whether the limits allow it or not. Cost O(brokers)."""
        loads = self._loads_at(place, home)
        self.loads_per_s = self.loads_per_s - self._own[place] + loads
        self._own[place] = loads
        self.homes[place] = home

    def keeps(self, limits_per_s: Floats, moves: Sequence[tuple[int, int]] = ()) -> bool:
        """Return True if no broker would be above these limits once the publishers are moved. O(brokers) for each."""
        loads = self.loads_per_s
        for place, home in moves:
            loads = loads - self._own[place] + self._loads_at(place, home)
        return bool((loads <= limits_per_s).all())

    @property
    def excess_per_s(self) -> float:
        """By how much all brokers together are above their limits."""
        return float(np.maximum(self.loads_per_s - self.limits_per_s, 0.0).sum())

    def excess_after_per_s(self) -> Floats:
        """Return by how much brokers would be above their limits after each single move, shape (publishers, brokers).

        A broker that the publisher leaves behind on its way passes on only what is wanted from there back; so only
        the brokers on the path between both homes bear anything else than before, and what each adds to the excess is
        summed up link by link from the present home outward. Cost O(brokers) for each publisher. 0 where the limits are
        kept and no broker is above its own now; else exact up to the rounding of sums.
        """
        parents, places = self._tree.parents, np.arange(len(self.homes))[:, None]
        # A row for each broker: a level of the tree is then some whole rows.
        own, below, above = self._own.T.copy(), self._below_by_broker, self._above_by_broker
        room = own + (self.limits_per_s - self.loads_per_s)[:, None]
        now = np.maximum(own - room, 0.0)
        upward = np.maximum(below - room, 0.0) - now  # Left for its parent, a broker bears what is wanted below it.
        upward[0] = 0.0  # The root has no parent.
        downward = np.maximum(above - room[parents], 0.0) - now[parents]  # A parent, left for this broker.
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
        """Return what of a publisher passes each broker with it at a home, as :meth:`PublisherCosts.loads_per_s`."""
        loads = self._below[place].copy()
        path = self._tree.path_to_root(home)
        loads[path[1:]] = self._above[place, path[:-1]]
        loads[home] = self._published[place]
        return np.asarray(loads)
