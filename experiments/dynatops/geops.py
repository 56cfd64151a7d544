"""GeoPS: publish/subscribe on a grid of places, after GeoServ: neighbour links, a long link each, geocast to a cell.

In: the cells that brokers stand in and a generator for the long links. Out: routes as :class:`RootedTrees`; a topic is
a cell, and its root is the broker that has it. Users' homes follow their location, which is not decided here.

Source: Ahnn, Lee, Moon, GeoServ, CCGrid 2011; Zhao13, section 6.2: a grid of a power of two on both edges, 32 x 32.
Verified in the list of figures of GeoServ's thesis: "each node has neighbor links and one long link to a random
location", and a packet takes both kinds. The rest is our reading, since the text was not to be had:

- a cell without a broker belongs to the one whose cell is nearest, so that all cells have one;
- brokers are neighbours when cells of theirs share a side;
- a node forwards to that one of its neighbours and its long link from which the target is the fewest neighbour links
  away, which on a full grid is the Manhattan distance; the one with the lowest number among equals;
- a long link leads to the owner of a uniformly random cell, and is used from where it starts;
- a subscription is geocast to its cell, which is one broker's, and notifications take the same way back.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from regraft.experiments.dynatops.dissemination import Flags, Positions, RootedTrees

SIDE = 32  # Cells on each edge, Zhao13.
UNREACHED = -1


@dataclass(frozen=True, eq=False)
class GeoOverlay:
    """Brokers on a grid of ``side`` by ``side`` cells.

    ``owners`` (cells,): the broker that has each cell. ``neighbours`` (brokers, brokers): who shares a side with whom.
    ``long_links`` (brokers,): where each one's long link leads; itself when its random cell is its own.
    """

    side: int
    owners: Positions
    neighbours: Flags
    long_links: Positions

    @cached_property
    def distances(self) -> Positions:
        """Neighbour links between brokers, shape (brokers, brokers)."""
        count = len(self.neighbours)
        links = self.neighbours.astype(np.float32)
        found = np.where(np.eye(count, dtype=np.bool_), 0, UNREACHED).astype(np.int32)
        frontier = np.eye(count, dtype=np.float32)
        step = 0
        while frontier.any():
            step += 1
            new = (frontier @ links > 0) & (found == UNREACHED)
            found[new] = step
            frontier = new.astype(np.float32)
        return found

    @cached_property
    def next_hops(self) -> Positions:
        """The next broker on the way from one to another, shape (brokers, brokers).

        Each hop comes nearer, so routes arrive. Cost O(brokers * links).
        """
        count = len(self.neighbours)
        hops = np.empty((count, count), dtype=np.int32)
        for broker in range(count):
            links = np.union1d(np.flatnonzero(self.neighbours[broker]), self.long_links[broker])
            hops[broker] = links[np.argmin(self.distances[links], axis=0)]
            hops[broker, broker] = broker
        return hops

    @cached_property
    def trees(self) -> RootedTrees:
        """The tree of each root: the ways of subscriptions to it, backwards."""
        return RootedTrees.of_requests(self.next_hops)


def draw_geo_overlay(cells: NDArray[np.integer], rng: np.random.Generator, side: int = SIDE) -> GeoOverlay:
    """Return the overlay of brokers in these cells, ``row * side + column``, one broker in each.

    Raises ValueError when the side is not a power of two, a cell is not on the grid, or two brokers are in one.
    """
    if side < 2 or side & (side - 1):
        raise ValueError(f"side is {side}: a power of two from 2 on is needed")
    if len(cells) < 2 or len(np.unique(cells)) < len(cells) or not (0 <= cells.min() <= cells.max() < side * side):
        raise ValueError(f"two brokers at least must stand in different cells from 0 to {side * side - 1}")
    owners = _owners(cells, side)
    neighbours = np.zeros((len(cells), len(cells)), dtype=np.bool_)
    plane = owners.reshape(side, side)
    for one, other in ((plane[1:], plane[:-1]), (plane[:, 1:], plane[:, :-1])):
        neighbours[one, other] = neighbours[other, one] = True
    np.fill_diagonal(neighbours, False)
    return GeoOverlay(side, owners, neighbours, owners[rng.integers(side * side, size=len(cells))])


def _owners(cells: NDArray[np.integer], side: int) -> Positions:
    """Return the broker nearest to each cell, the first one among equals, shape (side * side,)."""
    rows, columns = np.divmod(np.arange(side * side), side)
    away = (rows[:, None] - cells // side) ** 2 + (columns[:, None] - cells % side) ** 2
    nearest: Positions = np.argmin(away, axis=1).astype(np.int32)
    return nearest
