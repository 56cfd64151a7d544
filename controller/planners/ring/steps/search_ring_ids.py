"""Search ring IDs by swaps of two brokers: the improvement path of Zhao13, and descents that consider the move price.

In: priced swaps of a mapping. Out: the swaps that were made, or the mapping moved. Where to begin and what to propose
does not belong here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from regraft.overlay.ring.ring_reassignment import Mapping, RingProblem
from regraft.overlay.ring.ring_swaps import RingSwaps
from regraft.schemas.arrays import Floats


class ScratchSwaps:
    """A mapping, its cost, and the change that each swap would cause; ``mapping`` None means the present one."""

    def __init__(self, problem: RingProblem, mapping: Mapping | None = None) -> None:
        self.problem = problem
        self.mapping = (problem.present if mapping is None else mapping).copy()
        self.broker_costs = problem.broker_costs(self.mapping)

    @property
    def cost(self) -> float:
        """C of the mapping."""
        return self.problem.cost(self.mapping)

    def changes(self, position: int) -> Floats:
        """Return the change of C if the broker at a position swaps with the one at each other; inf at its own."""
        now = self.cost
        changes = np.full(self.problem.broker_count, np.inf)
        for other in range(len(changes)):
            if other != position:
                changes[other] = self.problem.cost(_swapped(self.mapping, position, other)) - now
        return changes

    def swap(self, position: int, other: int) -> None:
        """Swap the brokers at two positions."""
        self.mapping = _swapped(self.mapping, position, other)
        self.broker_costs = self.problem.broker_costs(self.mapping)


def _swapped(mapping: Mapping, position: int, other: int) -> Mapping:
    swapped = mapping.copy()
    swapped[[position, other]] = mapping[[other, position]]
    return swapped


TIE_SHARE = 1e-9  # Gains below this share of the cost are rounding: the move price is not an integer.
PAIRS_SEEN_MAX = 1_000_000  # Evaluated in one descent: all of 1,000 brokers once, of 100 a hundred times.


class SwapPrices(Protocol):
    """A mapping, the costs of its brokers, and what swapping two of them would change."""

    @property
    def problem(self) -> RingProblem:
        """The problem that is searched."""

    @property
    def mapping(self) -> Mapping:
        """The present state of the mapping."""

    @property
    def broker_costs(self) -> Floats:
        """c_b of the broker at each position."""

    @property
    def cost(self) -> float:
        """C of the mapping."""

    def changes(self, position: int) -> Floats:
        """Return the change of C if the broker at a position swaps with that at each other one; inf at its own."""

    def swap(self, position: int, other: int) -> None:
        """Swap the brokers at two positions."""


def swaps_of(problem: RingProblem, mapping: Mapping | None = None) -> SwapPrices:
    """Return priced swaps of a mapping (default: the present one): fast if all hops take 1, else from scratch."""
    return RingSwaps(problem, mapping) if problem.hop_delays is None else ScratchSwaps(problem, mapping)


@dataclass(frozen=True, eq=False)
class Reassignment:
    """A new mapping, with its Bft and Cst (Eq. 6-7) in messages, and how many brokers move."""

    mapping: Mapping
    benefit: float
    cost: float
    moved: int

    @classmethod
    def of(cls, problem: RingProblem, mapping: Mapping, benefit: float) -> Reassignment:
        """Return the reassignment to a mapping of known Bft."""
        moved = problem.moved_count(mapping)
        return cls(mapping, benefit, problem.reassignment_cost(moved), moved)

    @property
    def net_benefit(self) -> float:
        """Bft - Cst."""
        return self.benefit - self.cost


@dataclass(frozen=True, eq=False)
class ImprovementPath:
    """A sequence of swaps that each lower C: List of Algorithm 3.

    ``costs`` and ``moved`` begin with the mapping at the start of the path: C, and how many brokers are away from their
    present positions.
    """

    start: Mapping
    swaps: tuple[tuple[int, int], ...]
    costs: tuple[float, ...]
    moved: tuple[int, ...]

    def mapping(self, steps: int) -> Mapping:
        """Return the mapping after this many swaps."""
        mapping = self.start.copy()
        for position, other in self.swaps[:steps]:
            mapping[[position, other]] = mapping[[other, position]]
        return mapping


def improve_greedily(
    swaps: SwapPrices, *, is_persistent: bool = False, steps_max: int | None = None
) -> ImprovementPath:
    """Repeatedly swap the costliest broker with the partner with which that saves most, until it saves nothing.

    SSBR-Greedy of Zhao13, Algorithm 3. Reading: two variables are both printed minC; the best of the neighbourhood is
    taken if it is better than the mapping so far. Among equals the one at the lowest position is taken, as broker and
    as partner. ``is_persistent`` is the tabu variant: a broker that finds no partner is skipped and the next costliest
    is tried, until all have been; it ends when no swap of any two brokers helps. ``steps_max`` ends it earlier. Cost:
    one evaluation of all partners of a broker, and one swap, for each step. Guarantee: none, heuristic.
    """
    start, cost = swaps.mapping.copy(), swaps.cost
    moved = swaps.problem.moved_count(start)
    made: list[tuple[int, int]] = []
    costs, moves = [cost], [moved]
    failed, made_before = np.zeros(len(start), dtype=np.bool_), 0  # By broker, since the last round began.
    while steps_max is None or len(made) < steps_max:
        ranked = np.where(failed[swaps.mapping], -np.inf, swaps.broker_costs) if is_persistent else swaps.broker_costs
        position = int(ranked.argmax())
        changes = swaps.changes(position)
        other = int(changes.argmin())
        if changes[other] < 0:
            cost += float(changes[other])
            moved += _moved_change(swaps.mapping, position, other)
            swaps.swap(position, other)
            made.append((position, other))
            costs.append(cost)
            moves.append(moved)
            continue
        failed[swaps.mapping[position]] = True
        if not is_persistent or (failed.all() and len(made) == made_before):
            break
        if failed.all():
            failed[:], made_before = False, len(made)
    return ImprovementPath(start, tuple(made), tuple(costs), tuple(moves))


def best_on_path(problem: RingProblem, path: ImprovementPath) -> Reassignment:
    """Return the mapping with the highest Bft - Cst on a path from the present one, the first among equals.

    With the path of Algorithm 3, this is DYNATOPS-Greedy of Zhao13, Algorithm 4.
    """
    net_benefits = [
        path.costs[0] - cost - problem.reassignment_cost(moved)
        for cost, moved in zip(path.costs, path.moved, strict=True)
    ]
    steps = max(range(len(net_benefits)), key=net_benefits.__getitem__)
    return Reassignment.of(problem, path.mapping(steps), path.costs[0] - path.costs[steps])


class PaidSwaps:
    """Swaps of a mapping by C + Cst: their savings must also pay for the brokers that then have moved.

    The part of Cst that does not depend on how many move is left out.
    """

    def __init__(self, swaps: RingSwaps) -> None:
        self.swaps = swaps
        self._price = swaps.problem.move_price
        self._paid = self._price * (swaps.mapping != swaps.problem.present)  # By position.
        self._position_of = np.argsort(swaps.mapping)

    def changes(self, position: int) -> Floats:
        """Return the change of C + Cst if the broker at a position swaps with that at each other one."""
        changes = self.swaps.changes(position)
        changes -= self._paid
        changes += 2 * self._price - self._paid[position]
        changes[self._position_of[position]] -= self._price  # A broker from there would return to its present position,
        changes[self.swaps.mapping[position]] -= self._price  # and at this position so would this broker.
        return changes

    def all_changes(self) -> Floats:
        """Return the changes of all pairs, shape (positions, positions)."""
        changes, present, mapping = self.swaps.all_changes(), self.swaps.problem.present, self.swaps.mapping
        changes -= self._paid
        changes += (2 * self._price - self._paid)[:, None]
        changes[mapping, present] -= self._price
        changes[present, mapping] -= self._price
        return changes

    def swap(self, position: int, other: int) -> None:
        """Swap the brokers at two positions."""
        self.swaps.swap(position, other)
        for place in (position, other):
            broker = int(self.swaps.mapping[place])
            self._paid[place] = self._price * (broker != place)
            self._position_of[broker] = place


def descend(swaps: RingSwaps) -> None:
    """Make swaps that lower C + Cst until none is found: of brokers with the largest gains, then of those swapped.

    Cost O(subscriptions * positions) for an evaluation of all pairs, and one of all partners of a broker for each swap
    or try. Guarantee: C + Cst does not rise; up to some hundred positions no swap of any two lowers it further. Beyond
    that ``PAIRS_SEEN_MAX`` bounds the evaluations of all pairs, and later swaps are sought only among the brokers
    swapped.
    """
    least, paid = TIE_SHARE * swaps.cost, PaidSwaps(swaps)
    for _ in range(max(1, PAIRS_SEEN_MAX // swaps.problem.broker_count**2)):
        gains = -paid.all_changes().min(axis=1)
        order = np.argsort(-gains, kind="stable")
        waiting = order[gains[order] > least].tolist()
        if not waiting:
            return
        while waiting:
            touched: dict[int, None] = {}  # Used as an ordered set.
            for position in waiting:
                if position in touched:
                    continue
                changes = paid.changes(position)
                other = int(changes.argmin())
                if changes[other] < -least:
                    paid.swap(position, other)
                    touched |= {position: None, other: None}
            waiting = list(touched)


def _moved_change(mapping: Mapping, position: int, other: int) -> int:
    """Return how many more brokers are away from their present positions after two swap."""
    one, two = int(mapping[position]), int(mapping[other])
    return (two != position) + (one != other) - (one != position) - (two != other)
