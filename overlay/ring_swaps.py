"""What swapping two brokers on a ring changes, kept up from swap to swap: the same numbers as from scratch, fast.

In: a problem whose hops all take 1, and a mapping. Out: what each broker costs and what each swap would change,
exactly. Which swap is made is not decided here.

Only topics that one of the two brokers wants and the other does not change by a swap: there a subscriber moves from one
position to the other. What that changes follows from three numbers of each topic at each position: how many nodes on
the way to the root have no subscriber below them (one that came here would make them relays), how many have just one
below (they relay for that one alone, or are it), and which one that is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from overlay.ring_reassignment import Mapping, RingProblem

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]

ONE = np.int64(1 << 32)  # A subtree's code: its subscribers times this, plus the sum of their positions.
TWO = 2 * ONE
# Relays change where up to two are below before one leaves, and where up to one is below before one comes.
LEAVING_AND_COMING = np.array([3 * ONE, TWO])
UNCOUNTED = np.int64(1 << 60)  # The code of the root, which is no relay, and of what lies above it.


class RingSwaps:
    """A mapping, what its brokers cost, and what swapping two of them would change. ``mapping`` None is the present.

    Raises ValueError when the problem has hop delays. Memory O(topics * positions + positions^2 + roots * positions *
    depth).

    Of each topic t at each position v: ``_joins`` is what it costs to have a subscriber there, where there is none,
    and what it saves not to have it, where there is one; ``_lone`` (flat) the weight of the nodes on the way from v
    that serve one subscriber alone; ``_pairs`` (flat) is where that one stands, times the positions, plus v. ``_parts``
    holds what v adds to c_b, and what would be saved without v's subscription; ``_sums`` are their sums over topics.
    ``_shared`` (positions, positions), the sums of ``_lone``, is what of both does not change when the subscriber at
    the first moves to the second: the nodes both ways have in common.
    """

    def __init__(self, problem: RingProblem, mapping: Mapping | None = None) -> None:
        if problem.hop_delays is not None:
            raise ValueError("swaps are priced fast only where every hop takes 1: use ScratchSwaps for hop delays")
        self.problem = problem
        self.arcs = problem.arcs
        self.mapping = (problem.present if mapping is None else mapping).copy()
        topics, positions = problem.topic_count, problem.broker_count
        self._wanted = np.ascontiguousarray(problem.wanted)
        self._subscribers, self._topics = self._wanted.nonzero()
        self._first_topic = np.concatenate(([0], self._wanted.sum(axis=1).cumsum()))
        relay_weights, is_root = problem.relay_weights[:, None], self.arcs.depths == 0
        self._weights = problem.relay_weights
        self._delay_costs = (problem.delay_weights[:, None] * self.arcs.depths).ravel()
        # Whoever subscribes is no relay, but the root is none anyway: a subscriber there saves one less than elsewhere.
        self._fixed = self._delay_costs + (relay_weights * is_root).ravel()
        self._relay_costs = (relay_weights * ~is_root).ravel()
        codes = np.full((topics, positions + 1), UNCOUNTED)
        codes[:, :-1] = self.arcs.arc_sums(np.where(self._wanted[self.mapping].T, ONE + np.arange(positions), 0))
        codes[np.arange(topics), problem.roots] = UNCOUNTED
        self._codes = codes.ravel()
        self._first_code = np.arange(topics) * (positions + 1)
        self._seen = np.zeros(topics * positions, dtype=np.int64)
        self._count_all()

    @property
    def broker_costs(self) -> Floats:
        """c_b of the broker at each position (Eq. 12)."""
        return np.array(self._sums[: self.problem.broker_count])

    @property
    def cost(self) -> float:
        """C of the mapping (Eq. 5)."""
        return float(self.broker_costs.sum())

    def changes(self, position: int) -> Floats:
        """Return what C changes by when the broker at a position swaps with that at each other, inf at its own.

        Cost O(topics + subscriptions + positions * topics that this one wants).
        """
        count, broker = self.problem.broker_count, self.mapping[position]
        saved = self._sums[count:]
        own = self._topics[self._first_topic[broker] : self._first_topic[broker + 1]]
        # What the subscriptions of each other broker would cost here.
        here = np.bincount(self._subscribers, self._joins[:, position].take(self._topics), count)
        found = np.add.reduce(self._joins[own], axis=0)
        found += here[self.mapping]
        found += self._shared[position]
        found += self._shared[:, position]
        found -= saved
        found -= saved[position]
        found[position] = np.inf
        return np.asarray(found)

    def all_changes(self) -> Floats:
        """Return what C changes by for each pair of positions, inf on the diagonal: all of :meth:`changes` at once.

        Cost O((positions + subscriptions) * positions), as one product of matrices.
        """
        saved = self._sums[self.problem.broker_count :]
        found = (self.problem.interest @ self._joins)[self.mapping]
        found += self._shared
        found += found.T.copy()
        found -= saved
        found -= saved[:, None]
        np.fill_diagonal(found, np.inf)
        return np.asarray(found)

    def swap(self, position: int, other: int) -> None:
        """Let the brokers at two positions change places.

        Cost O(depth) for each subscription that only one of them has and each position whose numbers that changes.
        """
        mapping = self.mapping
        wanted, by_other = self._wanted[mapping[position]], self._wanted[mapping[other]]
        mapping[position], mapping[other] = mapping[other], mapping[position]
        topics = (wanted != by_other).nonzero()[0]
        if not len(topics):
            return
        leaves = wanted[topics]
        origins = np.where(leaves, position, other)
        places, topics = np.concatenate((origins, position + other - origins)), np.concatenate((topics, topics))
        tops, lengths = self._move_subscribers(topics, places)
        self._count_again(*self._below(topics, tops, lengths))

    def _move_subscribers(self, topics: Positions, places: Positions) -> tuple[Positions, Positions]:
        """Take one from each place of the first half and put one at each of the second, in the codes.

        Return of each place the highest position above it whose relays change with that, and how many positions are
        below it; the place alone where none do.
        """
        half = len(topics) // 2
        rows = self.arcs.rows[topics]
        ways = self.arcs.ancestors.take(rows + places, axis=1)
        at = ways + self._first_code[topics]
        changing = self._codes.take(at) < LEAVING_AND_COMING.repeat(half)
        one = ONE + places
        one[:half] *= -1
        # Flat, each with its own value: in numpy 2.4 add.at reads beyond values that it has to spread over rows itself.
        np.add.at(self._codes, at.ravel(), one[None].repeat(len(at), axis=0).ravel())
        count = np.add.reduce(changing, axis=0, dtype=np.int64)
        tops = ways[np.maximum(count - 1, 0), np.arange(len(places))]
        return tops, np.where(count, self.arcs.sizes[rows + tops], 1)

    def _below(self, topics: Positions, tops: Positions, lengths: Positions) -> tuple[Positions, Positions, Positions]:
        """Return topic, position and place in the flat arrays of all in these arcs, each once."""
        ends = lengths.cumsum()
        number = np.arange(int(ends[-1]))
        nodes = ((tops - ends + lengths).repeat(lengths) + number) % self.problem.broker_count
        topics = topics.repeat(lengths)
        keys = topics * self.problem.broker_count + nodes
        self._seen[keys] = number
        first = (self._seen[keys] == number).nonzero()[0]
        return topics[first], nodes[first], keys[first]

    def _count_again(self, topics: Positions, nodes: Positions, keys: Positions) -> None:
        joins, lone, pairs, cost, saved = self._count(topics, nodes, keys)
        self._joins.ravel()[keys] = joins
        both, parts = np.concatenate((keys, keys + len(self._lone))), np.concatenate((cost, saved))
        np.add.at(self._sums, np.concatenate((nodes, nodes + self.problem.broker_count)), parts - self._parts[both])
        self._parts[both] = parts
        changed = np.concatenate((self._pairs[keys], pairs))
        np.add.at(self._shared.ravel(), changed, np.concatenate((-self._lone[keys], lone)))
        self._lone[keys] = lone
        self._pairs[keys] = pairs

    def _count(
        self, topics: Positions, nodes: Positions, keys: Positions
    ) -> tuple[Floats, Floats, Positions, Floats, Floats]:
        """Return joins, lone, pairs and both parts of these topics at these positions, from the codes."""
        ways = self.arcs.ancestors.take(self.arcs.rows[topics] + nodes, axis=1) + self._first_code[topics]
        codes = self._codes.take(ways)
        none = np.add.reduce(codes < ONE, axis=0, dtype=np.int64)
        alone = np.add.reduce(codes < TWO, axis=0, dtype=np.int64) - none
        # Behind the nodes with none below come those with one, whose position is what the code has left.
        served = np.where(alone, codes[none, np.arange(len(nodes))] - ONE, 0)
        members = self._wanted.ravel().take(self.mapping[nodes] * self.problem.topic_count + topics)
        weights = self._weights[topics]
        lone = weights * alone
        joins = self._fixed[keys] + weights * none + members * lone
        cost = np.where(members, self._delay_costs[keys], self._relay_costs[keys] * (codes[0] >= ONE))
        return joins, lone, served * self.problem.broker_count + nodes, cost, members * joins

    def _count_all(self) -> None:
        """Find the same for all topics and positions, level by level of the trees."""
        topics, positions = self.problem.topic_count, self.problem.broker_count
        codes = self._codes.reshape(topics, positions + 1)[:, :-1]
        weights = self._weights[:, None]
        is_one = (codes >= ONE) & (codes < TWO)
        none, alone = self.arcs.way_sums(codes < ONE), self.arcs.way_sums(is_one)
        served = self.arcs.way_sums(np.where(is_one, codes - ONE, 0)) // np.maximum(alone, 1)
        self._pairs = (served * positions + np.arange(positions)).ravel()
        self._lone = (weights * alone).ravel()
        members = self._wanted[self.mapping].T
        fixed, delays = self._fixed.reshape(codes.shape), self._delay_costs.reshape(codes.shape)
        self._joins = fixed + weights * np.where(members, alone, none)
        cost = np.where(members, delays, self._relay_costs.reshape(codes.shape) * (codes >= ONE))
        parts = np.stack((cost, members * self._joins))
        self._parts, self._sums = parts.ravel(), parts.sum(axis=1).ravel()
        self._shared = np.bincount(self._pairs, self._lone, positions**2).reshape(positions, positions)
