"""Reassign ring IDs by linear assignment, then by swaps that consider the move price: ours, for the problem of Zhao13.

In: a problem. Out: a reassignment. Whether to propose it belongs to the planner.
"""

from __future__ import annotations

import numpy as np

from regraft.controller.planners.ring.steps.search_ring_ids import (
    Reassignment,
    SwapPrices,
    best_on_path,
    descend,
    improve_greedily,
    swaps_of,
)
from regraft.overlay.ring.ring_reassignment import Mapping, RingProblem
from regraft.overlay.ring.ring_swaps import RingSwaps


def assign_ids(problem: RingProblem, swaps: SwapPrices | None = None, *, is_guarded: bool = True) -> Reassignment:
    """Return a linear assignment followed by swaps or DYNATOPS-Greedy, whichever has the higher Bft - Cst.

    ``is_guarded`` False skips DYNATOPS-Greedy and with it the guarantee that Bft - Cst is not below that of Algorithm
    4; it is never below 0. None of the optimum: the problem is NP-hard. Cost O(positions^3) for the assignment, plus
    the swaps. With hop delays no swaps follow the assignment. ``swaps`` are those of the present mapping, by default
    priced by :func:`swaps_of`, which with hop delays takes long beyond some ten brokers.
    """
    swaps = swaps_of(problem) if swaps is None else swaps
    cost = swaps.cost
    candidates = [Reassignment.of(problem, problem.present, 0.0)]
    if cost == 0.0:
        return candidates[0]
    candidates.append(_improved(swaps, cost, assigned_mapping(problem, cost)))
    if is_guarded:
        greedy = best_on_path(problem, improve_greedily(swaps))
        candidates.append(greedy)
        if greedy.net_benefit > candidates[1].net_benefit:
            candidates.append(_improved(swaps, cost, greedy.mapping))
    return max(candidates, key=lambda one: one.net_benefit)


def assigned_mapping(problem: RingProblem, cost: float) -> Mapping:
    """Return the mapping with the least C + Cst if relays were saved in proportion to hops.

    ``cost`` is C at present. What the hops of a broker's topics cost at a position depends on no other broker, so this
    is a linear assignment. Relays depend on where all the others are; they are assumed to fall in proportion to hops,
    so the cost of hops is scaled up to all of C. A broker that stays saves the move price. As ``w_d`` is the same for
    all topics, without a move price the assignment is the exact optimum of the delay in hops.
    """
    from scipy.optimize import linear_sum_assignment  # Half a second to load, only needed here.

    hops = problem.interest @ (problem.relay_weights[:, None] * problem.arcs.depths)  # (brokers, positions)
    present = float(hops.trace())
    if present == 0.0:
        return problem.present
    values = hops * (cost / present)
    np.fill_diagonal(values, values.diagonal() - problem.move_price)
    # The solver's own prices begin at 0; starting from these halves its work and gives the same result.
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
