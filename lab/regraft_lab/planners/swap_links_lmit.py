"""Swap links of the tree towards a maximum interest tree by local knowledge: the lMIT benchmark of Jaeger07."""

from __future__ import annotations

import random

from regraft.api.planners import rank_swaps
from regraft.api.planning import HorizonSettings, PlannerSpec, TreeContext, TreeState
from regraft.api.records import Proposal
from regraft.api.trees import TreeConfiguration
from regraft_lab.planners.find_lighter_swaps import lighter_swaps

PLANNER = "swap_links_lmit"


def swap_links_lmit(
    state: TreeState, settings: HorizonSettings, context: TreeContext, rng: random.Random
) -> list[Proposal]:
    """Return swaps of the link with the least common interest of a path for a direct one with more, within eta hops.

    Source: Jaeger07, sections 3.1.2 and 5, which describe it without a formula. Cost O(pairs within eta * eta).
    Guarantee: each swap raises the sum of common interest over the links; none for the overlay's cost, which the
    proposals hold. Departures: those of :mod:`controller.planners.tree.swap_links_ci`. ``rng`` draws the order of
    arrival, if that is chosen.
    """
    # The link with the least interest is the heaviest one by negated interest.
    reasons = {
        swap.swap: f"its ends share {-swap.weight_added} notifications, the least of its path {-swap.weight_removed}"
        for swap in lighter_swaps(state, settings.horizon_hops, -state.interest)
    }
    return rank_swaps(state, settings.order, context, PLANNER, reasons, rng)


SPEC = PlannerSpec(
    PLANNER,
    TreeConfiguration.KIND,
    swap_links_lmit,
    HorizonSettings,
    summary="links of a tree, by common interest alone",
    source="Jaeger07, sections 3.1.2 and 5",
)
