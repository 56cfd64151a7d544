"""A Chord ring: node positions with fixed IDs, their finger tables, and the routes of greedy lookup.

Positions are 0 .. n - 1 in the order of the IDs. Which broker is at which position belongs to
:mod:`overlay.ring.ring_configuration`.

Source: Stoica et al., Chord, SIGCOMM 2001; Zhao13, section 3. A finger that is the target counts as a hit (inclusive
lookup), as Zhao13's Fig. 2 requires.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.int32]

BITS_MAX = 60  # IDs, and sums of two IDs, must fit into signed 64-bit integers.
DEFAULT_BITS = 32
NO_PARENT = -1
RINGS_KEPT_MAX = 8  # One for each set of IDs in use; some 12 MB each at a thousand nodes.


class RingError(ValueError):
    """The IDs do not form a ring; the message names the wrong one."""


@dataclass(frozen=True)
class ChordRing:
    """Nodes on a ring of 2^``bits`` IDs; ``ids`` are the nodes' IDs, ascending. Raises RingError if they are not."""

    bits: int
    ids: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= BITS_MAX:
            raise RingError(f"a ring has from 1 to {BITS_MAX} bits, got {self.bits}")
        if not self.ids:
            raise RingError("a ring needs at least one node, got none")
        if any(a >= b for a, b in zip(self.ids, self.ids[1:], strict=False)):
            raise RingError("the IDs of a ring must be unique and ascending")
        if self.ids[0] < 0 or self.ids[-1] >= 1 << self.bits:
            raise RingError(f"IDs {self.ids[0]} to {self.ids[-1]} do not fit on a ring of {self.bits} bits")

    @property
    def node_count(self) -> int:
        """The number of nodes."""
        return len(self.ids)

    def owner(self, key: int) -> int:
        """Return the position responsible for a key: that of the first node at or after it."""
        position = int(np.searchsorted(self._ids, key % (1 << self.bits)))
        return position % self.node_count

    @cached_property
    def fingers(self) -> Positions:
        """Finger tables, shape (nodes, bits): entry i of node n is the first node at or after ID(n) + 2^i."""
        starts = (self._ids[:, None] + (np.int64(1) << np.arange(self.bits, dtype=np.int64))[None, :]) % (
            1 << self.bits
        )
        return (np.searchsorted(self._ids, starts) % self.node_count).astype(np.int32)

    @cached_property
    def next_hops(self) -> Positions:
        """The next node on the route from a to b, shape (nodes, nodes): the finger farthest clockwise, not past b.

        The diagonal holds the node itself. Cost O(nodes^2 log bits).
        """
        size, ids = 1 << self.bits, self._ids
        hops = np.empty((self.node_count, self.node_count), dtype=np.int32)
        for node in range(self.node_count):
            fingers = np.unique(self.fingers[node])
            reach = (ids[fingers] - ids[node]) % size
            fingers, reach = fingers[reach > 0], reach[reach > 0]
            order = np.argsort(reach)
            distance = (ids - ids[node]) % size
            nearest = np.searchsorted(reach[order], distance, side="right") - 1
            hops[node] = fingers[order][np.maximum(nearest, 0)] if len(fingers) else node
            hops[node, node] = node
        return hops

    @cached_property
    def parents(self) -> Positions:
        """The last node before t on the route from r to t, shape (nodes r, nodes t); NO_PARENT if t is r.

        Routes from one node share prefixes, so row r is a tree rooted at r; each topic with rendezvous r spans a part
        of it. Cost O(nodes^2 log nodes).
        """
        return self._walk[0]

    @cached_property
    def depths(self) -> Positions:
        """The number of links on the route from r to t, shape (nodes r, nodes t)."""
        return self._walk[1]

    def route(self, start: int, target: int) -> tuple[int, ...]:
        """Return the positions from start to target, both included."""
        route = [start]
        while route[-1] != target:
            route.append(int(self.next_hops[route[-1], target]))
        return tuple(route)

    @cached_property
    def _ids(self) -> NDArray[np.int64]:
        return np.array(self.ids, dtype=np.int64)

    @cached_property
    def _walk(self) -> tuple[Positions, Positions]:
        """Walk all routes at once, one hop per iteration; return the parents and depths."""
        count = self.node_count
        everywhere = np.arange(count, dtype=np.int32)
        targets = np.broadcast_to(everywhere, (count, count))
        parents = np.repeat(everywhere[:, None], count, axis=1)
        at = self.next_hops.copy()
        depths = (at != everywhere[:, None]).astype(np.int32)
        while True:
            rest = at != targets
            if not rest.any():
                break
            parents[rest] = at[rest]
            at[rest] = self.next_hops[at[rest], targets[rest]]
            depths[rest] += 1
        np.fill_diagonal(parents, NO_PARENT)
        return parents, depths


@lru_cache(maxsize=RINGS_KEPT_MAX)
def chord_ring(bits: int, ids: tuple[int, ...]) -> ChordRing:
    """Return the ring with these ascending IDs, cached because reassigning IDs does not change the set."""
    return ChordRing(bits, ids)


@lru_cache(maxsize=100_000)
def ring_key(name: str, bits: int) -> int:
    """Return the key of a name on a ring: the first bits of its SHA-1 hash, as in Chord."""
    return int.from_bytes(hashlib.sha1(name.encode(), usedforsecurity=False).digest()) >> (160 - bits)


def hashed_ids(names: Iterable[str], bits: int) -> tuple[int, ...]:
    """Return an ID for each name by consistent hashing; a name whose ID is taken gets the next free one.

    Raises RingError if there are more names than IDs.
    """
    wanted: Sequence[str] = list(names)
    if len(wanted) > 1 << bits:
        raise RingError(f"{len(wanted)} names do not fit on a ring of {bits} bits")
    taken: set[int] = set()
    ids = []
    for name in wanted:
        key = ring_key(name, bits)
        while key in taken:
            key = (key + 1) % (1 << bits)
        taken.add(key)
        ids.append(key)
    return tuple(ids)
