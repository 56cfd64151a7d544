"""Swap links of the tree towards a minimum spanning tree by local knowledge: the lMST benchmark of paper 000."""

from __future__ import annotations

import random

import numpy as np

from controller.planner_interface import OverlayState, PlannerSettings
from controller.rank_swaps import rank_swaps
from overlay.configuration import link
from overlay.horizon_paths import paths_within
from overlay.swap_cost import LinkSwap
from schemas.plan import Proposal

PLANNER = "swap_links_lmst"


def swap_links_lmst(state: OverlayState, settings: PlannerSettings, rng: random.Random) -> list[Proposal]:
    """Return swaps of the dearest link of a path for a cheaper direct one between brokers within eta hops.

    Source: paper 000, sections 3.1.2 and 5, which describe it without a formula. Cost O(pairs within eta * eta).
    Guarantee: each swap lowers the sum of link costs; none for the overlay's cost, which
    the proposals carry. Departures: those of :mod:`controller.rank_swaps`. ``rng`` is not drawn from.
    """
    names = state.inventory.brokers
    cost = state.inventory.link_cost
    reasons: dict[LinkSwap, str] = {}
    for hops, paths in paths_within(state.configuration, settings.horizon_hops).items():
        if hops < 2:
            continue
        ascending = paths[paths[:, 0] < paths[:, -1]]
        on_path = cost[ascending[:, :-1], ascending[:, 1:]]
        direct = cost[ascending[:, 0], ascending[:, -1]]
        dearest = on_path.argmax(axis=1)
        for row in np.flatnonzero(on_path.max(axis=1) > direct):
            path = [names[position] for position in ascending[row]]
            cut = int(dearest[row])
            swap = LinkSwap(link(path[cut], path[cut + 1]), link(path[0], path[-1]))
            reasons[swap] = f"the link costs {direct[row]:.4g}, the dearest of its path {on_path[row, cut]:.4g}"
    return rank_swaps(state, settings, PLANNER, reasons)
