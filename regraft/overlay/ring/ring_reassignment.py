"""The assignment of ring IDs to brokers as a problem: the cost of a mapping, and of the reassignment to it.

In: a ring, the topics' roots, who wants what, and how often topics are published over a period. Out: costs of mappings,
each computed from scratch. Pricing many swaps at once belongs to :mod:`overlay.ring.ring_swaps`, the search to the
controller.

Source: Zhao13 (DYNATOPS), section 5: SSBR, Eq. 5-7 and 10-12, and the reconfigurability test of Algorithm 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.ring.chord_ring import ChordRing
from regraft.overlay.ring.ring_arcs import RingArcs, ring_arcs
from regraft.overlay.ring.ring_costs import topic_costs
from regraft.schemas.arrays import Flags, Floats

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Mapping = NDArray[np.int64]  # X of the paper: the broker at each position.

EXACT_BITS = 52  # Integers of this many bits, and their sums, are exact in 64-bit floats.
SUMS_MAX = 4  # One number is the sum of at most this many total costs.


@dataclass(frozen=True, eq=False)
class RingProblem:
    """SSBR: find the mapping of brokers to ring positions that disseminates a period's events at least cost.

    Broker b is the one at position b at present. ``roots`` (topics,) are positions; ``wanted`` (brokers, topics) marks
    subscriptions; ``events`` (topics,) is N_p, the events published over the period; ``delay_weight`` is w_d, messages
    per hop. ``hop_delays`` (brokers, brokers) is the delay of a hop between two brokers, 1 if not given. A mapping
    holds at index v the broker at position v. Costs are in messages over the period. Raises ValueError if shapes do not
    fit.
    """

    ring: ChordRing
    roots: NDArray[np.integer]
    wanted: Flags
    events: Floats
    delay_weight: float = 1.0
    hop_delays: Floats | None = None

    def __post_init__(self) -> None:
        nodes, topics = self.ring.node_count, len(self.roots)
        if self.wanted.shape != (nodes, topics) or self.events.shape != (topics,):
            raise ValueError(
                f"{nodes} positions and {topics} roots need interests of shape ({nodes}, {topics}) and events of "
                f"shape ({topics},), got {self.wanted.shape} and {self.events.shape}"
            )
        if self.hop_delays is not None and self.hop_delays.shape != (nodes, nodes):
            raise ValueError(f"hop delays need the shape ({nodes}, {nodes}), got {self.hop_delays.shape}")

    @property
    def broker_count(self) -> int:
        """The number of brokers, and of positions."""
        return self.ring.node_count

    @property
    def topic_count(self) -> int:
        """The number of topics, wanted or not: \\|P\\|."""
        return len(self.roots)

    @cached_property
    def present(self) -> Mapping:
        """The mapping in use."""
        return np.arange(self.broker_count)

    @cached_property
    def interest(self) -> csr_array:
        """Subscriptions as a sparse matrix of ones, (brokers, topics)."""
        from scipy.sparse import csr_array  # Takes a third of a second to load; most commands do not need it.

        return csr_array(self.wanted, dtype=np.float64)

    @cached_property
    def arcs(self) -> RingArcs:
        """The trees of routes from the topics' roots."""
        return ring_arcs(self.ring, self.roots)

    @cached_property
    def relay_weights(self) -> Floats:
        """The cost of a relay of each topic: N_p, rounded so that sums are exact, (topics,)."""
        return self._exact(self.events)

    @cached_property
    def delay_weights(self) -> Floats:
        """The cost of a unit of delay of each topic: w_d * N_p, rounded so that sums are exact in hops, (topics,)."""
        return self._exact(self.delay_weight * self.events)

    def cost(self, mapping: Mapping) -> float:
        """Return C of a mapping (Eq. 5): relayed messages plus the weighted delay."""
        each = topic_costs(self.ring, self.roots, self.wanted[mapping], self.hop_delays_at(mapping))
        return float(self.relay_weights @ each.relay + self.delay_weights @ each.delay)

    def broker_costs(self, mapping: Mapping) -> Floats:
        """Return c_b of the broker at each position (Eq. 10-12): relayed messages plus weighted delay, (positions,).

        They add up to :meth:`cost`. Cost O(topics * positions * depth).
        """
        parents, depths = self.ring.parents[self.roots], self.ring.depths[self.roots]  # (topics, positions)
        members = self.wanted[mapping].T
        topics = np.arange(self.topic_count)[:, None]
        hop_delays = self.hop_delays_at(mapping)
        covered, delays = members.copy(), np.zeros(members.shape)
        reached = np.where(members, np.arange(self.broker_count), -1)
        for _ in range(int(depths.max(initial=0))):
            above = np.where(reached >= 0, parents[topics, reached], -1)
            delays += np.where(above >= 0, 1.0 if hop_delays is None else hop_delays[above, reached], 0.0)
            rows, columns = np.nonzero(above >= 0)
            covered[rows, above[rows, columns]] = True
            reached = above
        relays = covered & ~members & (parents >= 0)
        return np.asarray((relays * self.relay_weights[:, None] + delays * self.delay_weights[:, None]).sum(axis=0))

    def hop_delays_at(self, mapping: Mapping) -> Floats | None:
        """Return the delay of a hop between two positions, or None if every hop takes 1."""
        return None if self.hop_delays is None else self.hop_delays[np.ix_(mapping, mapping)]

    def moved_count(self, mapping: Mapping) -> int:
        """Return Gamma: the number of brokers at another position than at present."""
        return int(np.count_nonzero(mapping != self.present))

    @property
    def move_price(self) -> float:
        """What each moved broker adds to the cost of a reassignment, in messages: log2^2 V + P * log2 V."""
        hops = math.log2(self.broker_count)
        return hops * hops + self.topic_count * hops

    def reassignment_cost(self, moved: int) -> float:
        """Return Cst for this many moved brokers (Eq. 7), in messages; 0 if none moved.

        Eq. 7 is damaged in print. We use the protocol's bound from section 5.1.2, V + (log^2 V + P log V) * Gamma, with
        logarithms to base 2 and no hidden constants.
        """
        return self.broker_count + self.move_price * moved if moved else 0.0

    def benefit(self, mapping: Mapping) -> float:
        """Return Bft of a reassignment to a mapping (Eq. 6)."""
        return self.cost(self.present) - self.cost(mapping)

    def net_benefit(self, mapping: Mapping) -> float:
        """Return Bft - Cst, which Algorithm 4 maximises."""
        return self.benefit(mapping) - self.reassignment_cost(self.moved_count(mapping))

    def is_worth_computing(self, cost: float, share_min: float) -> bool:
        """Return True if ``cost`` is above beta times the most expensive reassignment (the reconfigurability test).

        ``share_min`` is beta (0.1 in the paper).
        """
        return cost > share_min * self.reassignment_cost(self.broker_count)

    def _exact(self, weights: Floats) -> Floats:
        """Round weights to multiples of a power of two, so that no sum of costs depends on the order of its terms.

        Two mappings of equal cost then have equal numbers, however they were computed. The rounding error is below 1e-9
        of a topic with the mean events.
        """
        depth = int(self.ring.depths[self.roots].max(initial=0)) + 1
        bound = SUMS_MAX * self.broker_count * depth * (1 + self.delay_weight) * float(self.events.sum())
        if bound == 0.0:
            return np.asarray(weights, dtype=np.float64)
        grain = 2.0 ** (math.frexp(bound)[1] - EXACT_BITS)
        return np.asarray(np.round(weights / grain) * grain)
