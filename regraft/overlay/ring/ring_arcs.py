"""The trees of a ring's routes as arcs: what is above and below each position, for the roots of topics.

A node forwards to its finger f what is addressed to positions from f up to its next finger. So the subtree of a
position is the arc of the ring that begins there, and subtrees are contiguous without any reordering.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.ring.chord_ring import ChordRing

Numbers = NDArray[np.int64]

ARCS_KEPT_MAX = 2  # Positions and topics stay the same across plans; with 1,000 of each, an entry takes some 70 MB.


class RingArcs:
    """For each topic, the route from every position to the root, and the size of every position's subtree.

    ``routes`` (depth + 1, topics * positions): column ``t * positions + v`` is the route from v to the root of topic t,
    padded with one past the last position; entries index a flat array of ``positions + 1`` values per topic. ``sizes``
    (roots * positions,) at ``rows[t] + v`` is the length of the arc below v, v included. ``depths`` has shape (topics,
    positions). Cost O(topics * positions * depth) in time and memory.
    """

    def __init__(self, ring: ChordRing, roots: NDArray[np.integer]) -> None:
        nowhere = positions = ring.node_count
        distinct, self._row_of = np.unique(roots, return_inverse=True)
        count = len(distinct)
        depths = ring.depths[distinct]
        self._parents = np.where(depths > 0, ring.parents[distinct], nowhere)
        self.depths = depths[self._row_of]
        self.rows = self._row_of * positions
        above = np.full((count, positions + 1), nowhere, dtype=np.int32)
        above[:, :-1] = self._parents
        begins = (np.arange(count) * (positions + 1))[:, None]
        ancestors = np.empty((int(depths.max(initial=0)) + 1, count, positions), dtype=np.int32)
        ancestors[0] = np.arange(positions)
        for level in range(1, len(ancestors)):
            ancestors[level] = above.ravel().take(begins + ancestors[level - 1])
        first = (np.arange(len(roots), dtype=np.int32) * (positions + 1))[:, None]
        self.routes = (ancestors[:, self._row_of] + first).reshape(len(ancestors), -1)
        below = np.bincount((begins + ancestors).ravel(), minlength=count * (positions + 1))
        self.sizes = below.reshape(count, positions + 1)[:, :-1].ravel()

    def arc_sums(self, values: Numbers) -> Numbers:
        """Return for each topic and position the sum of ``values`` (topics, positions) over its subtree."""
        sums = values.flatten()
        for places, parents in reversed(self._levels):
            np.add.at(sums, parents, sums[places])
        return sums.reshape(values.shape)

    def route_sums(self, values: NDArray[np.integer | np.bool_]) -> NDArray[np.int32]:
        """Return for each topic and position the sum of ``values`` (topics, positions) along its route to the root."""
        sums = values.astype(np.int32).ravel()
        for places, parents in self._levels:
            sums[places] += sums[parents]
        return sums.reshape(values.shape)

    @cached_property
    def _levels(self) -> list[tuple[Numbers, Numbers]]:
        """Flat places of all topics' nodes at depth 1, 2 and so on, with the places of their parents."""
        depths = self.depths.astype(np.int8).ravel()  # int8, so that numpy uses a radix sort; the root has no parent.
        order = np.argsort(depths, kind="stable")
        topics, positions = self.depths.shape
        parents = (self._parents[self._row_of] + (np.arange(topics) * positions)[:, None]).ravel()
        ends = np.bincount(depths).cumsum()
        return [(order[a:b], parents[order[a:b]]) for a, b in pairwise(ends)]


def ring_arcs(ring: ChordRing, roots: NDArray[np.integer]) -> RingArcs:
    """Return the arcs of these roots, cached because reassigning IDs moves no root."""
    return _kept_arcs(ring, np.asarray(roots, dtype=np.int64).tobytes())


@lru_cache(maxsize=ARCS_KEPT_MAX)
def _kept_arcs(ring: ChordRing, roots: bytes) -> RingArcs:
    return RingArcs(ring, np.frombuffer(roots, dtype=np.int64))
