"""What swapping two brokers on a ring changes, kept up from swap to swap: the same numbers as from scratch, fast.

In: a problem whose hops all take 1, and a mapping. Out: what each broker costs and what each swap would change,
exactly. Which swap is made is not decided here.

Only topics that one of the two brokers wants and the other does not change by a swap: there a subscriber moves from one
position to the other. What that changes follows from three numbers of each topic at each position: how many nodes on
the way to the root have no subscriber below them (a subscriber moved here would make them relays), how many have just
one below (they relay for it alone, or are it), and which one it is.
"""

from __future__ import annotations

from copy import copy

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.ring_reassignment import Mapping, RingProblem

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]

ONE = np.int64(1 << 32)  # A subtree's code: its subscribers times this, plus the sum of their positions.
TWO = 2 * ONE
UNCOUNTED = np.int64(1 << 60)  # The code of the root, which is not a relay, and of what lies above it.


class RingSwaps:
    """A mapping, what its brokers cost, and what swapping two of them would change. ``mapping`` None is the present.

    Raises ValueError when the problem has hop delays. Memory O(topics * positions + positions^2 + roots * positions *
    depth).

    Of each topic t at each position v: ``_joins`` is what it costs to have a subscriber there, where there is none,
    and what it saves not to have it, where there is one; ``_lone`` (flat) the weight of the nodes on the way from v
    that serve one subscriber alone; ``_pairs`` (flat) is where that one stands, times the positions, plus v.
    ``_costs``, c_b, and ``_savings``, what would be saved without the subscriptions at v, are sums over topics of
    ``_cost_parts`` and ``_saving_parts`` (flat). ``_shared`` (positions, positions), the sums of ``_lone``, is what of
    both does not change when the subscriber at the first moves to the second: the nodes that both ways have in common.
    """

    def __init__(self, problem: RingProblem, mapping: Mapping | None = None) -> None:
        if problem.hop_delays is not None:
            raise ValueError("swaps are priced fast only where every hop takes 1: use ScratchSwaps for hop delays")
        self.problem = problem
        self.arcs = problem.arcs
        self._wanted = np.ascontiguousarray(problem.wanted)
        self._subscribers, self._topics = self._wanted.nonzero()
        self._first_topic = np.concatenate(([0], self._wanted.sum(axis=1).cumsum()))
        relay_weights, is_root = problem.relay_weights[:, None], self.arcs.depths == 0
        self._weights = problem.relay_weights
        self._delay_costs = (problem.delay_weights[:, None] * self.arcs.depths).ravel()
        # A subscriber is not a relay, and the root never is: a subscriber there saves one less than elsewhere.
        self._fixed = self._delay_costs + (relay_weights * is_root).ravel()
        self._relay_costs = (relay_weights * ~is_root).ravel()
        self._first_code = np.arange(problem.topic_count) * (problem.broker_count + 1)
        self._begin(problem.present if mapping is None else mapping)

    def at(self, mapping: Mapping) -> RingSwaps:
        """Return swaps of another mapping of the same problem; what does not depend on the mapping is shared."""
        other = copy(self)
        other._begin(mapping)
        return other

    def _begin(self, mapping: Mapping) -> None:
        self.mapping = mapping.copy()
        topics, positions = self.problem.topic_count, self.problem.broker_count
        codes = np.full((topics, positions + 1), UNCOUNTED)
        codes[:, :-1] = self.arcs.arc_sums(np.where(self._wanted[self.mapping].T, ONE + np.arange(positions), 0))
        codes[np.arange(topics), self.problem.roots] = UNCOUNTED
        self._codes = codes.ravel()
        self._seen = np.empty(topics * positions, dtype=np.int32)
        self._count_all()

    @property
    def broker_costs(self) -> Floats:
        """c_b of the broker at each position (Eq. 12)."""
        return np.array(self._costs)

    @property
    def cost(self) -> float:
        """C of the mapping (Eq. 5)."""
        return float(self._costs.sum())

    def changes(self, position: int) -> Floats:
        """Return what C changes by when the broker at a position swaps with that at each other, inf at its own.

        Cost O(topics + subscriptions + positions * topics that this one wants).
        """
        count, broker = self.problem.broker_count, self.mapping[position]
        own = self._topics[self._first_topic[broker] : self._first_topic[broker + 1]]
        # What the subscriptions of each other broker would cost here.
        here = np.bincount(self._subscribers, self._joins[:, position].take(self._topics), count)
        found = np.add.reduce(self._joins[own], axis=0)
        found += here[self.mapping]
        found += self._shared[position]
        found += self._shared[:, position]
        found -= self._savings
        found -= self._savings[position]
        found[position] = np.inf
        return np.asarray(found)

    def all_changes(self) -> Floats:
        """Return what C changes by for each pair of positions, inf on the diagonal: all of :meth:`changes` at once.

        Cost O((positions + subscriptions) * positions), as one product of matrices.
        """
        found = (self.problem.interest @ self._joins)[self.mapping]
        found += self._shared
        found += found.T.copy()
        found -= self._savings
        found -= self._savings[:, None]
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
        places = np.where(np.concatenate((leaves, ~leaves)), position, other)
        topics = np.concatenate((topics, topics))
        tops, lengths = self._move_subscribers(topics, places)
        self._count_again(*self._below(topics, tops, lengths))

    def _move_subscribers(self, topics: Positions, places: Positions) -> tuple[Positions, Positions]:
        """Take one from each place of the first half and put one at each of the second, in the codes.

        Return of each place the highest position above it that has less than two below before or after, and how many
        positions are below it; the place alone where it has more. Relays elsewhere are relays as before.
        """
        half = len(topics) // 2
        ways = self.arcs.ways.take(topics * self.problem.broker_count + places, axis=1)
        before = self._codes.take(ways)
        one = ONE + places
        np.negative(one[:half], out=one[:half])
        # Flat, each with its own value: in numpy 2.4 add.at reads beyond values that it has to spread over rows itself.
        np.add.at(self._codes, ways.ravel(), one[None].repeat(len(ways), axis=0).ravel())
        # Nodes above both places have as many below as before, and change only if that one is the one that moves.
        changing = np.minimum(before, self._codes.take(ways)) < TWO
        tops = ways[_count_true(changing[1:]), np.arange(len(places))] - self._first_code[topics]
        return tops, np.where(changing[0], self.arcs.sizes[self.arcs.rows[topics] + tops], 1)

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
        joins, lone, pairs, cost, saving = self._count(topics, nodes, keys)
        self._joins.ravel()[keys] = joins
        np.add.at(self._costs, nodes, cost - self._cost_parts[keys])
        self._cost_parts[keys] = cost
        np.add.at(self._savings, nodes, saving - self._saving_parts[keys])
        self._saving_parts[keys] = saving
        shared = self._shared.ravel()
        np.subtract.at(shared, self._pairs[keys], self._lone[keys])
        np.add.at(shared, pairs, lone)
        self._lone[keys] = lone
        self._pairs[keys] = pairs

    def _count(
        self, topics: Positions, nodes: Positions, keys: Positions
    ) -> tuple[Floats, Floats, Positions, Floats, Floats]:
        """Return joins, lone, pairs, cost and saving parts of these topics at these positions, from the codes."""
        codes = self._codes.take(self.arcs.ways.take(keys, axis=1))
        none = _count_true(codes < ONE)
        alone = _count_true(codes < TWO) - none
        # Behind the nodes with none below come those with one, whose position is what the code has left.
        served = np.where(alone, codes.ravel()[none * np.intp(len(nodes)) + np.arange(len(nodes))] - ONE, 0)
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
        savings = members * self._joins
        self._cost_parts, self._costs = cost.ravel(), cost.sum(axis=0)
        self._saving_parts, self._savings = savings.ravel(), savings.sum(axis=0)
        self._shared = np.bincount(self._pairs, self._lone, positions**2).reshape(positions, positions)


def _count_true(flags: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return how many of each column are true; summed as bytes, several times as fast as numpy sums flags."""
    return np.asarray(np.add.reduce(flags.view(np.uint8), axis=0, dtype=np.uint8))
