"""Which broker should have which ring ID, as a problem: what a mapping costs, and what going over to it costs.

In: a ring, the topics' roots, who wants what and how often topics are published over a period. Out: costs of mappings,
each from scratch. Prices of many swaps at once are in :mod:`overlay.ring_swaps`, the search is the controller's.

Source: Zhao13 (DYNATOPS), section 5: SSBR, Eq. 5-7 and 10-12, and the reconfigurability test of Algorithm 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.chord_ring import ChordRing
from regraft.overlay.ring_arcs import RingArcs, ring_arcs
from regraft.overlay.ring_costs import topic_costs

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Mapping = NDArray[np.int64]  # X of the paper: which broker stands at each position.

EXACT_BITS = 52  # Integers of this many bits and their sums are exact in 64-bit floats.
SUMS_MAX = 4  # How many whole costs are added up at most in one number.


@dataclass(frozen=True, eq=False)
class RingProblem:
    """SSBR: the mapping of brokers to ring positions that disseminates a period's events at least cost.

    Broker b is the one that stands at position b at present. ``roots`` (topics,) are positions; ``wanted`` (brokers,
    topics) marks who subscribes; ``events`` (topics,) is N_p, what is published over the period; ``delay_weight`` is
    w_d, messages per hop. ``hop_delays`` (brokers, brokers) is the delay of a hop between two brokers, 1 when not
    given. A mapping holds at position v the broker that stands there. Costs are messages over the period. Raises
    ValueError when shapes do not fit.
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
        """How many brokers there are, and positions."""
        return self.ring.node_count

    @property
    def topic_count(self) -> int:
        """How many topics there are, wanted or not: \\|P\\|."""
        return len(self.roots)

    @cached_property
    def present(self) -> Mapping:
        """The mapping in use."""
        return np.arange(self.broker_count)

    @cached_property
    def interest(self) -> csr_array:
        """Who wants what as a sparse matrix of ones, (brokers, topics)."""
        from scipy.sparse import csr_array  # A third of a second to load, which most commands need not wait for.

        return csr_array(self.wanted, dtype=np.float64)

    @cached_property
    def arcs(self) -> RingArcs:
        """The trees that the topics span parts of."""
        return ring_arcs(self.ring, self.roots)

    @cached_property
    def relay_weights(self) -> Floats:
        """What a relay of each topic costs: N_p, rounded so that sums are exact, (topics,)."""
        return self._exact(self.events)

    @cached_property
    def delay_weights(self) -> Floats:
        """What a unit of delay of each topic costs: w_d * N_p, rounded so that sums are exact in hops, (topics,)."""
        return self._exact(self.delay_weight * self.events)

    def cost(self, mapping: Mapping) -> float:
        """Return C of a mapping (Eq. 5): relayed messages plus the weighted delay."""
        each = topic_costs(self.ring, self.roots, self.wanted[mapping], self.hop_delays_at(mapping))
        return float(self.relay_weights @ each.relay + self.delay_weights @ each.delay)

    def broker_costs(self, mapping: Mapping) -> Floats:
        """Return c_b of the broker at each position (Eq. 10-12): what it relays plus its weighted delay, (positions,).

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
        """Return the delay of a hop between two positions, None when every hop is 1."""
        return None if self.hop_delays is None else self.hop_delays[np.ix_(mapping, mapping)]

    def moved_count(self, mapping: Mapping) -> int:
        """Return Gamma: how many brokers stand elsewhere than at present."""
        return int(np.count_nonzero(mapping != self.present))

    @property
    def move_price(self) -> float:
        """What one moved broker adds to the cost of a reassignment, messages: log2^2 V + P * log2 V."""
        hops = math.log2(self.broker_count)
        return hops * hops + self.topic_count * hops

    def reassignment_cost(self, moved: int) -> float:
        """Return Cst for this many moved brokers (Eq. 7), in messages: 0 for none.

        Eq. 7 is printed damaged; section 5.1.2 says the bound of the protocol once: V + (log^2 V + P log V) * Gamma,
        logarithms to base 2 and without hidden constants.
        """
        return self.broker_count + self.move_price * moved if moved else 0.0

    def benefit(self, mapping: Mapping) -> float:
        """Return Bft of going over to a mapping (Eq. 6)."""
        return self.cost(self.present) - self.cost(mapping)

    def net_benefit(self, mapping: Mapping) -> float:
        """Return Bft - Cst, what Algorithm 4 maximises."""
        return self.benefit(mapping) - self.reassignment_cost(self.moved_count(mapping))

    def is_worth_computing(self, cost: float, share_min: float) -> bool:
        """Return True if the present cost passes the test of reconfigurability: above beta times the costliest.

        ``share_min`` is beta (the paper's: 0.1).
        """
        return cost > share_min * self.reassignment_cost(self.broker_count)

    def _exact(self, weights: Floats) -> Floats:
        """Round weights to multiples of one power of two, so that no sum of costs depends on its order.

        Two mappings that cost the same then have equal numbers, however they were found. What is lost is below 1e-9 of
        a topic with the mean events.
        """
        depth = int(self.ring.depths[self.roots].max(initial=0)) + 1
        bound = SUMS_MAX * self.broker_count * depth * (1 + self.delay_weight) * float(self.events.sum())
        if bound == 0.0:
            return np.asarray(weights, dtype=np.float64)
        grain = 2.0 ** (math.frexp(bound)[1] - EXACT_BITS)
        return np.asarray(np.round(weights / grain) * grain)
