"""A Chord ring: node positions with fixed IDs, their finger tables and the routes that greedy lookup takes.

Positions are 0 .. n - 1 in the order of the IDs. Which broker stands at which position is unknown here
(:mod:`overlay.chord_configuration`).

Source: Stoica et al., Chord, SIGCOMM 2001; Zhao13, section 3. A finger that is the target counts as a hit (inclusive
lookup), as Zhao13's Fig. 2 needs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.int32]

BITS_MAX = 60  # IDs and sums of two of them are signed 64-bit integers.
DEFAULT_BITS = 32
NO_PARENT = -1
RINGS_KEPT_MAX = 8  # One for each set of IDs in use; a thousand nodes take some 12 MB.


class RingError(ValueError):
    """The IDs make no ring; the message says which one is wrong."""


@dataclass(frozen=True)
class ChordRing:
    """Nodes on a ring of 2^``bits`` IDs; ``ids`` are theirs, rising. Raises RingError when they are not."""

    bits: int
    ids: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= BITS_MAX:
            raise RingError(f"a ring has from 1 to {BITS_MAX} bits, got {self.bits}")
        if not self.ids:
            raise RingError("a ring needs at least one node, got none")
        if any(a >= b for a, b in zip(self.ids, self.ids[1:], strict=False)):
            raise RingError("the IDs of a ring must rise, each once")
        if self.ids[0] < 0 or self.ids[-1] >= 1 << self.bits:
            raise RingError(f"IDs {self.ids[0]} to {self.ids[-1]} do not fit on a ring of {self.bits} bits")

    @property
    def node_count(self) -> int:
        """How many nodes there are."""
        return len(self.ids)

    def owner(self, key: int) -> int:
        """Return the position responsible for a key: the first node at or after it."""
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
        """The next node on the way from a to b, shape (nodes, nodes): the finger farthest clockwise, not past b.

        The node itself on the diagonal. Cost O(nodes^2 log bits).
        """
        size, ids = 1 << self.bits, self._ids
        hops = np.empty((self.node_count, self.node_count), dtype=np.int32)
        for node in range(self.node_count):
            fingers = np.unique(self.fingers[node])
            reach = (ids[fingers] - ids[node]) % size
            fingers, reach = fingers[reach > 0], reach[reach > 0]
            order = np.argsort(reach)
            distance = (ids - ids[node]) % size
            found = np.searchsorted(reach[order], distance, side="right") - 1
            hops[node] = fingers[order][np.maximum(found, 0)] if len(fingers) else node
            hops[node, node] = node
        return hops

    @cached_property
    def parents(self) -> Positions:
        """The last node before t on the way from r to t, shape (nodes r, nodes t); NO_PARENT where t is r.

        Routes from one node share their beginnings, so row r is a tree that hangs from r: the one that every topic
        with rendezvous r spans a part of. Cost O(nodes^2 log nodes).
        """
        return self._walk[0]

    @cached_property
    def depths(self) -> Positions:
        """The links on the way from r to t, shape (nodes r, nodes t)."""
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
        """Walk all routes at once, one hop in each turn."""
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
    """Return the ring with these rising IDs; the same one again, since a reassignment of IDs keeps them."""
    return ChordRing(bits, ids)


@lru_cache(maxsize=100_000)
def ring_key(name: str, bits: int) -> int:
    """Return the key of a name on a ring: the first bits of its SHA-1, as Chord takes it."""
    return int.from_bytes(hashlib.sha1(name.encode(), usedforsecurity=False).digest()) >> (160 - bits)


def hashed_ids(names: Iterable[str], bits: int) -> tuple[int, ...]:
    """Return an ID for each name by consistent hashing; a name whose ID is taken gets the next free one.

    Raises RingError when there are more names than IDs.
    """
    wanted: Sequence[str] = list(names)
    if len(wanted) > 1 << bits:
        raise RingError(f"{len(wanted)} names do not fit on a ring of {bits} bits")
    taken: set[int] = set()
    found = []
    for name in wanted:
        key = ring_key(name, bits)
        while key in taken:
            key = (key + 1) % (1 << bits)
        taken.add(key)
        found.append(key)
    return tuple(found)
