"""Swap links of the tree towards a minimum spanning tree by local knowledge: the lMST benchmark of Jaeger07."""

from __future__ import annotations

import random

from regraft.api.planners import rank_swaps
from regraft.api.planning import HorizonSettings, PlannerSpec, TreeContext, TreeState
from regraft.api.records import Proposal, figure
from regraft.api.trees import TreeConfiguration
from regraft_lab.planners.find_lighter_swaps import lighter_swaps

PLANNER = "swap_links_lmst"


def swap_links_lmst(
    state: TreeState, settings: HorizonSettings, context: TreeContext, rng: random.Random
) -> list[Proposal]:
    """Return swaps of the most expensive link of a path for a cheaper direct one between brokers within eta hops.

    Source: Jaeger07, sections 3.1.2 and 5, which describe it without a formula. Cost O(pairs within eta * eta).
    Guarantee: each swap lowers the sum of link costs; none for the overlay's cost, which the proposals hold.
    Departures: those of :mod:`controller.planners.tree.swap_links_ci`. ``rng`` draws the order of arrival, if that
    is chosen.
    """
    reasons = {
        swap.swap: (
            f"the link costs {figure(swap.weight_added)}, the most expensive of its path {figure(swap.weight_removed)}"
        )
        for swap in lighter_swaps(state, settings.horizon_hops, state.inventory.link_cost)
    }
    return rank_swaps(state, settings.order, context, PLANNER, reasons, rng)


SPEC = PlannerSpec(
    PLANNER,
    TreeConfiguration.KIND,
    swap_links_lmst,
    HorizonSettings,
    summary="links of a tree, by link cost alone",
    source="Jaeger07, sections 3.1.2 and 5",
)
