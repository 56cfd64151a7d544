"""The changes that swaps on a ring cause, updated from swap to swap: the same numbers as from scratch, but fast.

In: a problem whose hops all take 1, and a mapping. Out: the exact cost of each broker and change of each swap. Choosing
swaps does not belong here.

A swap changes only topics that exactly one of the two brokers wants: their subscriber moves from one position to the
other. The effect follows from three numbers for each topic and position: how many nodes on the route to the root have
no subscriber below them (a subscriber moved here would make them relays), how many have exactly one below (they relay
for it alone, or are it), and which one that is.
"""

from __future__ import annotations

from copy import copy

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.ring.ring_reassignment import Mapping, RingProblem
from regraft.schemas.arrays import Floats

Positions = NDArray[np.int64]

ONE = np.int64(1 << 32)  # A subtree's code: the number of its subscribers times this, plus the sum of their positions.
TWO = 2 * ONE
UNCOUNTED = np.int64(1 << 60)  # The code of the root, which is not a relay, and of the padding above it.


class RingSwaps:
    """A mapping, its cost, and the change that each swap would cause; ``mapping`` None means the present one.

    Raises ValueError if the problem has hop delays. Memory O(topics * positions + positions^2 + roots * positions *
    depth).

    For each topic t and position v: ``_joins`` is the cost of adding a subscriber at v, or the saving of removing it if
    there is one. ``_lone`` (flat) is the weight of the nodes on the route from v that serve only one subscriber, and
    ``_pairs`` (flat) is that subscriber's position times the number of positions, plus v.

    ``_costs`` (c_b) and ``_savings`` (what removing the subscriptions at v would save) are sums over topics of
    ``_cost_parts`` and ``_saving_parts`` (flat). ``_shared`` (positions, positions) sums ``_lone`` over topics: the
    part of both that does not change if the subscriber at the first position moves to the second, because both routes
    have these nodes in common.
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
        # A subscriber is not a relay, and neither is the root: a subscriber at the root saves one relay less than
        # elsewhere.
        self._fixed = self._delay_costs + (relay_weights * is_root).ravel()
        self._relay_costs = (relay_weights * ~is_root).ravel()
        self._first_code = np.arange(problem.topic_count) * (problem.broker_count + 1)
        self._begin(problem.present if mapping is None else mapping)

    def at(self, mapping: Mapping) -> RingSwaps:
        """Return swaps of another mapping of the same problem, sharing what does not depend on the mapping."""
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
        """Return the change of C if the broker at a position swaps with the one at each other; inf at its own.

        Cost O(topics + subscriptions + positions * topics that this one wants).
        """
        count, broker = self.problem.broker_count, self.mapping[position]
        own = self._topics[self._first_topic[broker] : self._first_topic[broker + 1]]
        # The cost of each other broker's subscriptions at this position.
        here = np.bincount(self._subscribers, self._joins[:, position].take(self._topics), count)
        changes = np.add.reduce(self._joins[own], axis=0)
        changes += here[self.mapping]
        changes += self._shared[position]
        changes += self._shared[:, position]
        changes -= self._savings
        changes -= self._savings[position]
        changes[position] = np.inf
        return np.asarray(changes)

    def all_changes(self) -> Floats:
        """Return the change of C for each pair of positions, inf on the diagonal: :meth:`changes` for all at once.

        Cost O((positions + subscriptions) * positions), as one matrix product.
        """
        changes = (self.problem.interest @ self._joins)[self.mapping]
        changes += self._shared
        changes += changes.T.copy()
        changes -= self._savings
        changes -= self._savings[:, None]
        np.fill_diagonal(changes, np.inf)
        return np.asarray(changes)

    def swap(self, position: int, other: int) -> None:
        """Swap the brokers at two positions.

        Cost O(depth) for each subscription that only one of them has, and for each position whose numbers it changes.
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
        self._recount(*self._below(topics, tops, lengths))

    def _move_subscribers(self, topics: Positions, places: Positions) -> tuple[Positions, Positions]:
        """Update the codes: remove a subscriber at each place of the first half, add one at each of the second.

        Return for each place the highest position above it with fewer than two subscribers below, before or after, and
        the size of that position's subtree; if the place itself has more, the place and 1. Relays elsewhere stay
        relays.
        """
        half = len(topics) // 2
        routes = self.arcs.routes.take(topics * self.problem.broker_count + places, axis=1)
        before = self._codes.take(routes)
        lower = ONE + places
        np.negative(lower[:half], out=lower[:half])
        # Flat, with one value per index: in numpy 2.4, add.at reads out of bounds when it has to broadcast values over
        # rows.
        np.add.at(self._codes, routes.ravel(), lower[None].repeat(len(routes), axis=0).ravel())
        # Nodes above both places keep their count, and change only if their one subscriber is the one that moves.
        changing = np.minimum(before, self._codes.take(routes)) < TWO
        tops = routes[_count_true(changing[1:]), np.arange(len(places))] - self._first_code[topics]
        return tops, np.where(changing[0], self.arcs.sizes[self.arcs.rows[topics] + tops], 1)

    def _below(self, topics: Positions, tops: Positions, lengths: Positions) -> tuple[Positions, Positions, Positions]:
        """Return topic, position and index in the flat arrays for all positions of these arcs, each once."""
        ends = lengths.cumsum()
        number = np.arange(int(ends[-1]))
        nodes = ((tops - ends + lengths).repeat(lengths) + number) % self.problem.broker_count
        topics = topics.repeat(lengths)
        keys = topics * self.problem.broker_count + nodes
        self._seen[keys] = number
        first = (self._seen[keys] == number).nonzero()[0]
        return topics[first], nodes[first], keys[first]

    def _recount(self, topics: Positions, nodes: Positions, keys: Positions) -> None:
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
        """Compute joins, lone, pairs, cost parts and saving parts of these topics at these positions from the codes."""
        codes = self._codes.take(self.arcs.routes.take(keys, axis=1))
        none = _count_true(codes < ONE)
        alone = _count_true(codes < TWO) - none
        # On a route, nodes with no subscriber below precede those with one, whose position is the rest of the code.
        served = np.where(alone, codes.ravel()[none * np.intp(len(nodes)) + np.arange(len(nodes))] - ONE, 0)
        members = self._wanted.ravel().take(self.mapping[nodes] * self.problem.topic_count + topics)
        weights = self._weights[topics]
        lone = weights * alone
        joins = self._fixed[keys] + weights * none + members * lone
        cost = np.where(members, self._delay_costs[keys], self._relay_costs[keys] * (codes[0] >= ONE))
        return joins, lone, served * self.problem.broker_count + nodes, cost, members * joins

    def _count_all(self) -> None:
        """Compute the same for all topics and positions, level by level of the trees."""
        topics, positions = self.problem.topic_count, self.problem.broker_count
        codes = self._codes.reshape(topics, positions + 1)[:, :-1]
        weights = self._weights[:, None]
        is_one = (codes >= ONE) & (codes < TWO)
        none, alone = self.arcs.route_sums(codes < ONE), self.arcs.route_sums(is_one)
        served = self.arcs.route_sums(np.where(is_one, codes - ONE, 0)) // np.maximum(alone, 1)
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
    """Count the true values of each column; summing bytes is several times as fast as numpy's sum of bools."""
    return np.asarray(np.add.reduce(flags.view(np.uint8), axis=0, dtype=np.uint8))
