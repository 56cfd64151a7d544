"""Bayeux: topic trees along the prefix routes of a Tapestry mesh.

In: the number of brokers, a generator for their IDs, round-trip times for proximity neighbour selection. Out: routes as
:class:`RootedTrees`, and roots of topics. Users' homes do not belong here: Bayeux does not choose them.

Source: Zhuang et al., Bayeux, NOSSDAV 2001, on Zhao et al., Tapestry, 2001; Zhao13, section 6.2: "brokers join the
Tapestry Overlay with random Ids uniformly distributed over the Id space".

Verified in public descriptions and in the code of a simulator by one of Tapestry's authors (p2psim):

- IDs are digits, by default of base 16; each hop resolves at least one more digit of the target, so a route has at most
  as many hops as there are digits;
- entry (l, d) of a routing table is the nearest known node that shares l digits and has d as the next one;
- surrogate routing: a node without an entry for the key's digit takes the next filled entry, wrapping around; if that
  is its own digit, it continues with the next digit of the key. The end does not depend on the starting point;
- a topic's root is the surrogate of its hashed name; the root sends along the routes to the members, and the message is
  copied where these differ in the next digit.

Our readings:

- digits are resolved from the first to the last, not in reverse as in the original text; with random IDs this makes no
  difference;
- without proximity neighbour selection an entry is a uniformly random one of the nodes that fit;
- IDs have eight digits of base 16, since 32 bits distinguish all our brokers;
- a join or leave travels to the root and is answered down the tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from regraft.api.rings import ring_key
from regraft_lab.dynatops.dissemination import Floats, Positions, RootedTrees

BASE = 16
DIGITS = 8
BASES = (2, 4, 16)  # A digit has 1, 2 or 4 bits.


@dataclass(frozen=True, eq=False)
class TapestryMesh:
    """Brokers with IDs of ``digit_count`` digits and the routes between them.

    ``ids`` (brokers,) are distinct; ``next_hops`` (brokers, brokers) is the next broker on the route to another one.
    """

    base: int
    digit_count: int
    ids: NDArray[np.int64]
    next_hops: Positions

    @property
    def digit_bits(self) -> int:
        """The number of bits of a digit."""
        return self.base.bit_length() - 1

    @cached_property
    def trees(self) -> RootedTrees:
        """The tree of each root: routes from it share prefixes, because they split at the first differing digit."""
        return RootedTrees.of_routes(self.next_hops)

    def digits(self, key: int) -> tuple[int, ...]:
        """Return the digits of an ID or key, first digit first."""
        bits = self.digit_bits
        return tuple(
            key >> (self.digit_count - 1 - place) * bits & (self.base - 1) for place in range(self.digit_count)
        )

    def surrogate(self, key: int) -> int:
        """Return the broker at which routing towards a key ends. Cost O(digits * base log brokers)."""
        order, first, end = self._order, 0, len(self.ids)
        ids, prefix = self.ids[order], 0
        for place, digit in enumerate(self.digits(key)):
            rest_bits = (self.digit_count - 1 - place) * self.digit_bits
            for step in range(self.base):
                wanted = prefix + ((digit + step) % self.base << rest_bits)
                low, high = np.searchsorted(ids, [wanted, wanted + (1 << rest_bits)]).tolist()
                if low < high:
                    prefix, first, end = wanted, low, high
                    break
            if end - first == 1:
                break
        return int(order[first])

    def topic_roots(self, topics: Sequence[str]) -> Positions:
        """Return the root of each topic: the surrogate of its hashed name, shape (topics,)."""
        bits = self.digit_count * self.digit_bits
        return np.array([self.surrogate(ring_key(topic, bits)) for topic in topics], dtype=np.int32)

    @cached_property
    def _order(self) -> NDArray[np.int64]:
        return np.argsort(self.ids)


def draw_mesh(
    broker_count: int,
    rng: np.random.Generator,
    base: int = BASE,
    digit_count: int = DIGITS,
    rtt_ms: Floats | None = None,
) -> TapestryMesh:
    """Return a mesh of brokers with random IDs; ``rtt_ms`` (brokers, brokers) turns proximity neighbour selection on.

    Raises ValueError unless the base is 2, 4 or 16 and the digits suffice to distinguish the brokers.
    """
    if base not in BASES:
        raise ValueError(f"base is {base}: expected one of {', '.join(map(str, BASES))}")
    if base**digit_count < broker_count:
        raise ValueError(
            f"digit_count is {digit_count}: {base}^{digit_count} IDs do not distinguish {broker_count} brokers"
        )
    drawn: set[int] = set()
    while len(drawn) < broker_count:
        drawn.update(rng.integers(base**digit_count, size=broker_count - len(drawn)).tolist())
    ids = rng.permutation(np.array(sorted(drawn), dtype=np.int64))
    return TapestryMesh(base, digit_count, ids, _next_hops(ids, base, digit_count, rng, rtt_ms))


def _next_hops(
    ids: NDArray[np.int64], base: int, digit_count: int, rng: np.random.Generator, rtt_ms: Floats | None
) -> Positions:
    """Fill all routing tables, digit by digit.

    Sorted by ID, brokers with a common prefix are contiguous and form a group. The next hop of a broker that shares l
    digits with the target is its entry for the group that shares l + 1 digits with the target.
    """
    count = len(ids)
    order = np.argsort(ids)
    digit_bits = base.bit_length() - 1
    hops = np.repeat(np.arange(count, dtype=np.int32)[:, None], count, axis=1)
    shared = np.ones((count, count), dtype=np.bool_)
    for place in range(digit_count):
        prefixes = ids >> (digit_count - 1 - place) * digit_bits
        starts = np.flatnonzero(np.diff(prefixes[order], prepend=-1))
        sizes = np.diff(np.append(starts, count))
        entries = _drawn_entries(starts, sizes, order, rng) if rtt_ms is None else _nearest(starts, order, rtt_ms)
        group = np.searchsorted(prefixes[order][starts], prefixes)
        same = prefixes[:, None] == prefixes[None, :]
        leaving = shared & ~same
        hops[leaving] = entries[:, group][leaving]
        shared = same
        if (sizes == 1).all():
            break
    return hops


def _drawn_entries(
    starts: NDArray[np.int64], sizes: NDArray[np.int64], order: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return a random member of each group for each broker, shape (brokers, groups)."""
    return order[starts + (rng.random((len(order), len(starts))) * sizes).astype(np.int64)]


def _nearest(starts: NDArray[np.int64], order: NDArray[np.int64], rtt_ms: Floats) -> NDArray[np.int64]:
    """Return the nearest member of each group for each broker, shape (brokers, groups); ties go to the lowest ID."""
    ends = np.append(starts[1:], len(order))
    members = (order[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True))
    return np.column_stack([group[np.argmin(rtt_ms[:, group], axis=1)] for group in members])
