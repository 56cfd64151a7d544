"""Swaps that a planner wants -> its proposals: costed alike for all planners, best first, independent of each other.

The paper's brokers act as messages happen to arrive, so it gives no order. Here the order is the true gain: a swap
that only looks good locally then cannot stand in the way of a good one, whatever the judge says of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from controller.planner_interface import OverlayState, PlannerSettings
from overlay.configuration import Link
from overlay.swap_cost import LinkSwap
from schemas.plan import Proposal


def rank_swaps(
    state: OverlayState, settings: PlannerSettings, planner: str, reasons: Mapping[LinkSwap, str]
) -> list[Proposal]:
    """Return proposals for the swaps (keys of ``reasons``), at most ``proposals_max``, best true gain first.

    Costs are those of ``overlay.cost`` over the horizon with that swap alone. No proposal removes a link of another's
    cycle, so any subset of them, in any order, leaves a tree. Swaps that break ``degree_max`` are left out. Cost: one
    :meth:`SwapCosts.cost_after_per_s` a swap.
    """
    costs = state.swap_costs
    degrees = {broker: len(peers) for broker, peers in state.configuration.neighbours.items()}
    ranked = sorted(
        (costs.cost_after_per_s(swap), swap) for swap in reasons if _keeps_cap(swap, degrees, settings.degree_max)
    )
    proposals: list[Proposal] = []
    taken: list[tuple[Link, frozenset[Link]]] = []
    for cost_after_per_s, swap in ranked:
        if len(proposals) == settings.proposals_max:
            break
        cycle = frozenset(costs.cycle(swap.added))
        if any(removed in cycle or swap.removed in other for removed, other in taken):
            continue
        taken.append((swap.removed, cycle))
        proposals.append(
            Proposal(
                planner=planner,
                link_removed=swap.removed,
                link_added=swap.added,
                cost_before_per_s=costs.cost_per_s,
                cost_after_per_s=cost_after_per_s,
                price_per_s=0.0,
                reason=reasons[swap],
            )
        )
    return proposals


def _keeps_cap(swap: LinkSwap, degrees: Mapping[str, int], degree_max: int | None) -> bool:
    return degree_max is None or all(degrees[end] + (end not in swap.removed) <= degree_max for end in swap.added)
