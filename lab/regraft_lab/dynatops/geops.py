"""GeoPS: publish/subscribe on a geographic grid, after GeoServ: neighbour links, one long link each, geocast to a cell.

Source: Ahnn, Lee, Moon, GeoServ, CCGrid 2011; Zhao13, section 6.2: a grid of a power of two on both edges, 32 x 32.
Verified in the list of figures of GeoServ's thesis: "each node has neighbor links and one long link to a random
location", and a packet takes both kinds. The rest is our reading, because the text was not available:

- a cell without a broker belongs to the broker whose cell is nearest, so every cell has an owner;
- brokers are neighbours if cells that they own share a side;
- a node forwards to the neighbour, or the end of its long link, that is the fewest neighbour links away from the target
  (on a full grid this is the Manhattan distance); ties go to the lowest number;
- a long link leads to the owner of a uniformly random cell, and is used in this direction only;
- a subscription is geocast to its cell, which has one owner, and notifications take the same path back.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from regraft_lab.dynatops.dissemination import Flags, Positions, RootedTrees

SIDE = 32  # Cells on each edge (Zhao13).
UNREACHED = -1


@dataclass(frozen=True, eq=False)
class GeoOverlay:
    """Brokers on a grid of ``side`` by ``side`` cells.

    ``owners`` (cells,): the broker that owns each cell. ``neighbours`` (brokers, brokers): True if two share a side.
    ``long_links`` (brokers,): the target of each broker's long link; the broker itself if its random cell is its own.
    """

    side: int
    owners: Positions
    neighbours: Flags
    long_links: Positions

    @cached_property
    def distances(self) -> Positions:
        """The distance of brokers in neighbour links, shape (brokers, brokers)."""
        count = len(self.neighbours)
        links = self.neighbours.astype(np.float32)
        distances = np.where(np.eye(count, dtype=np.bool_), 0, UNREACHED).astype(np.int32)
        frontier = np.eye(count, dtype=np.float32)
        step = 0
        while frontier.any():
            step += 1
            new = (frontier @ links > 0) & (distances == UNREACHED)
            distances[new] = step
            frontier = new.astype(np.float32)
        return distances

    @cached_property
    def next_hops(self) -> Positions:
        """The next broker on the route from one to another, shape (brokers, brokers).

        Each hop reduces the distance, so every route ends. Cost O(brokers * links).
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
        """The tree of each root: the reversed routes of subscriptions to it."""
        return RootedTrees.of_requests(self.next_hops)


def draw_geo_overlay(cells: NDArray[np.integer], rng: np.random.Generator, side: int = SIDE) -> GeoOverlay:
    """Return the overlay with one broker in each of these cells, which are ``row * side + column``.

    Raises ValueError if the side is not a power of two, a cell is not on the grid, or two brokers share a cell.
    """
    if side < 2 or side & (side - 1):
        raise ValueError(f"side is {side}: must be a power of two, at least 2")
    if len(cells) < 2 or len(np.unique(cells)) < len(cells) or not (0 <= cells.min() <= cells.max() < side * side):
        raise ValueError(f"at least two brokers must be in different cells from 0 to {side * side - 1}")
    owners = _owners(cells, side)
    neighbours = np.zeros((len(cells), len(cells)), dtype=np.bool_)
    plane = owners.reshape(side, side)
    for one, other in ((plane[1:], plane[:-1]), (plane[:, 1:], plane[:, :-1])):
        neighbours[one, other] = neighbours[other, one] = True
    np.fill_diagonal(neighbours, False)
    return GeoOverlay(side, owners, neighbours, owners[rng.integers(side * side, size=len(cells))])


def _owners(cells: NDArray[np.integer], side: int) -> Positions:
    """Return the broker nearest to each cell, shape (side * side,); ties go to the first."""
    rows, columns = np.divmod(np.arange(side * side), side)
    away = (rows[:, None] - cells // side) ** 2 + (columns[:, None] - cells % side) ** 2
    nearest: Positions = np.argmin(away, axis=1).astype(np.int32)
    return nearest
