"""Estimates of one broker of the distributed protocol: Eq. 6-10 of Jaeger07, from its own point of view.

Pure; gathering the inputs belongs to :mod:`experiments.psoop.distributed_broker`. The central planner
(:mod:`controller.planners.tree.swap_links_ci`) computes the same for all brokers at once; neither depends on the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from regraft_lab.psoop.distributed_messages import Cycle

TIE_SHARE = 1e-9  # Cycle costs closer than this count as equal: sums of floats depend on their order.

SharedWith = Callable[[str, str], float]  # (B_k, B_j) -> I_ikj, as this broker estimates it.
CommonWith = Callable[[str], int]  # B_j -> I_ij, as this broker estimates it.


def indirect_costs(
    line: Sequence[str],
    link_costs: Sequence[float],
    processing_costs: Sequence[float],
    common_with: CommonWith,
    shared_with: SharedWith,
) -> list[float]:
    """Return C from the line's first broker, which estimates, to every broker on it (Eq. 7).

    ``link_costs[m]`` is the link between brokers m and m + 1. If the first broker has no common interest with a broker,
    the full cost of the path to it counts.
    """
    costs = [0.0]
    for place in range(1, len(line)):
        link_cost = link_costs[place - 1]
        if place == 1:
            costs.append(link_cost)
            continue
        before, here = line[place - 1], line[place]
        common = common_with(here)
        share = (common - shared_with(before, here)) / common if common else 1.0
        costs.append(share * (costs[-1] + processing_costs[place - 1]) + link_cost)
    return costs


def cycle_share(cycle: Cycle, position: int, common_with: CommonWith, shared_with: SharedWith) -> list[float]:
    """Return cost_R(e, B_i) for every link e of the cycle, where B_i is the broker at ``position`` (Eq. 8).

    Without link t the cycle is a line that ends at t in both directions, and the costs up to there do not depend on
    where it ends, so one walk in each direction gives all entries. Cost O(cycle).
    """
    size = len(cycle.brokers)
    ahead = [(position + step) % size for step in range(size)]
    behind = [(position - step) % size for step in range(size)]
    onward = _running_sums(cycle, ahead, [cycle.link_costs[place] for place in ahead], common_with, shared_with)
    # The link behind a broker is the link ahead of its predecessor.
    back = _running_sums(cycle, behind, [cycle.link_costs[place - 1] for place in behind], common_with, shared_with)
    shares = []
    for removed in range(size):
        reached = (removed - position) % size
        shares.append(onward[reached] + back[size - 1 - reached])
    return shares


def _running_sums(
    cycle: Cycle, places: Sequence[int], link_costs: Sequence[float], common_with: CommonWith, shared_with: SharedWith
) -> list[float]:
    """Return the sums of I_ij * C_ij over the first 0, 1, 2, ... brokers of a walk."""
    line = [cycle.brokers[place] for place in places]
    processing = [cycle.processing_costs[place] for place in places]
    costs = indirect_costs(line, link_costs, processing, common_with, shared_with)
    sums = [0.0]
    for broker, cost in zip(line[1:], costs[1:], strict=True):
        sums.append(sums[-1] + common_with(broker) * cost)
    return sums


def removals(costs: Sequence[float]) -> tuple[int, ...]:
    """Return the places of the cycle's links that may be removed, empty to keep the tree (Eq. 10).

    The last entry is the new link's: if it is the least, or ties with the least, nothing is exchanged. All links that
    tie are returned, in the cycle's order; brokers take the first.
    """
    least = min(costs[:-1])
    if least >= costs[-1] * (1 - TIE_SHARE):
        return ()
    return tuple(place for place, cost in enumerate(costs[:-1]) if cost <= least * (1 + TIE_SHARE))
