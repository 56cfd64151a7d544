"""Swap links of the tree towards a maximum interest tree by local knowledge: the lMIT benchmark of paper 000."""

from __future__ import annotations

import random

import numpy as np

from controller.planner_interface import OverlayState, PlannerSettings
from controller.rank_swaps import rank_swaps
from overlay.configuration import link
from overlay.horizon_paths import paths_within
from overlay.swap_cost import LinkSwap
from schemas.plan import Proposal

PLANNER = "swap_links_lmit"


def swap_links_lmit(state: OverlayState, settings: PlannerSettings, rng: random.Random) -> list[Proposal]:
    """Return swaps of the link with the least common interest of a path for a direct one with more, within eta hops.

    Source: paper 000, sections 3.1.2 and 5, which describe it without a formula. Cost O(pairs within eta * eta).
    Guarantee: each swap raises the sum of common interest over the links; none for the overlay's cost, which
    the proposals carry. Departures: those of :mod:`controller.rank_swaps`. ``rng`` is not drawn from.
    """
    names = state.inventory.brokers
    interest = state.interest
    reasons: dict[LinkSwap, str] = {}
    for hops, paths in paths_within(state.configuration, settings.horizon_hops).items():
        if hops < 2:
            continue
        ascending = paths[paths[:, 0] < paths[:, -1]]
        common = interest[ascending[:, :-1], ascending[:, 1:]]
        direct = interest[ascending[:, 0], ascending[:, -1]]
        least = common.argmin(axis=1)
        for row in np.flatnonzero(common.min(axis=1) < direct):
            path = [names[position] for position in ascending[row]]
            cut = int(least[row])
            swap = LinkSwap(link(path[cut], path[cut + 1]), link(path[0], path[-1]))
            reasons[swap] = f"its ends share {direct[row]} notifications, the least of its path {common[row, cut]}"
    return rank_swaps(state, settings, PLANNER, reasons)
