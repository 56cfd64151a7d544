"""Reassign ring IDs by linear assignment, then by swaps that mind the move price: ours, for the problem of Zhao13.

In: a problem. Out: a reassignment. Whether it is proposed is the planner's affair.
"""

from __future__ import annotations

import numpy as np

from regraft.controller.planners.steps.search_ring_ids import (
    Reassignment,
    SwapPrices,
    best_on_path,
    descend,
    improve_greedily,
    swaps_of,
)
from regraft.overlay.ring_reassignment import Mapping, RingProblem
from regraft.overlay.ring_swaps import RingSwaps


def assign_ids(problem: RingProblem, swaps: SwapPrices | None = None, *, is_guarded: bool = True) -> Reassignment:
    """Return the better of a linear assignment followed by swaps and of DYNATOPS-Greedy, by Bft - Cst.

    ``is_guarded`` False leaves DYNATOPS-Greedy out, and with it the guarantee: Bft - Cst is neither below 0 nor below
    that of Algorithm 4. None of the optimum: the problem is NP-hard. Cost O(positions^3) for the assignment, next to
    the swaps. With hop delays no swaps follow the assignment. ``swaps`` are those of the present mapping, priced by
    :func:`swaps_of` when None, which with hop delays takes long beyond some ten brokers.
    """
    swaps = swaps_of(problem) if swaps is None else swaps
    cost = swaps.cost
    found = [Reassignment.of(problem, problem.present, 0.0)]
    if cost == 0.0:
        return found[0]
    found.append(_improved(swaps, cost, assigned_mapping(problem, cost)))
    if is_guarded:
        greedy = best_on_path(problem, improve_greedily(swaps))
        found.append(greedy)
        if greedy.net_benefit > found[1].net_benefit:
            found.append(_improved(swaps, cost, greedy.mapping))
    return max(found, key=lambda one: one.net_benefit)


def assigned_mapping(problem: RingProblem, cost: float) -> Mapping:
    """Return the mapping of least C + Cst were every relay saved along with the hops, as far as all hops are saved.

    ``cost`` is C at present. What the hops of a broker's topics cost at a position depends on no other broker: a linear
    assignment. Relays depend on where all the others are; they are taken to fall in proportion to hops, so what hops
    cost is raised to the whole of C. A broker that stays saves the move price. As ``w_d`` is the same for all topics,
    without a move price the assignment is the exact optimum of the delay in hops.
    """
    from scipy.optimize import linear_sum_assignment  # Half a second to load, which no other command needs to wait for.

    hops = problem.interest @ (problem.relay_weights[:, None] * problem.arcs.depths)  # (brokers, positions)
    present = float(hops.trace())
    if present == 0.0:
        return problem.present
    values = hops * (cost / present)
    np.fill_diagonal(values, values.diagonal() - problem.move_price)
    # The solver's own prices begin at 0: from these it has half as far to go, and to the same end.
    values -= values.min(axis=0)
    values -= values.min(axis=1, keepdims=True)
    _, positions = linear_sum_assignment(values)
    mapping = np.empty_like(problem.present)
    mapping[positions] = problem.present
    return mapping


def _improved(swaps: SwapPrices, cost: float, mapping: Mapping) -> Reassignment:
    """Return a mapping after swaps that lower C + Cst; ``cost`` is C at present."""
    problem = swaps.problem
    if not isinstance(swaps, RingSwaps):
        return Reassignment.of(problem, mapping, cost - problem.cost(mapping))
    better = swaps.at(mapping)
    descend(better)
    return Reassignment.of(problem, better.mapping, cost - better.cost)
