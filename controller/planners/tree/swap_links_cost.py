"""Swap links of the tree by true cost: ours, in place of the local estimate of Jaeger07."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from regraft.controller.kinds.tree.tree_state import TreeContext, TreeState
from regraft.controller.planners.tree.steps.escape_links import escape
from regraft.controller.planners.tree.steps.price_every_tree import BROKERS_MAX, best_tree
from regraft.controller.planners.tree.steps.price_frailty import FrailtyPrice
from regraft.controller.planners.tree.steps.search_swaps import Search, descend, is_worth_its_frailty
from regraft.controller.settings.planner_settings import PlannerSettings
from regraft.controller.state.planner_interface import PlannerSpec
from regraft.overlay.overlay_configuration import Link
from regraft.overlay.tree.swap_sequences import lent_costs
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.overlay.tree.tree_costs import LinkSwap, TreeCosts
from regraft.schemas.arrays import Floats
from regraft.schemas.plan import Proposal

PLANNER = "swap_links_cost"
# With 40 brokers, a quarter of the default budget ends 0.5% above the best trees found, all of it 0.1%; but each window
# searches again.
FEW_BROKERS, MANY_BROKERS, FEW_SHARE = 40, 100, 0.25


@dataclass(frozen=True)
class SearchSettings(PlannerSettings):
    """How much is evaluated, in 64-bit words of delivery sets."""

    # Bounds the search for swaps. 4e9, some seconds: less than the default window, and who has too many brokers for it
    # needs longer windows for everything else as well.
    search_words_max: int = 4_000_000_000
    # The same once no single swap helps, for 100 brokers; few get a quarter. Default 3e7, some 60 ms compiled, 150 ms
    # with numpy.
    escape_words_max: int = 30_000_000


def swap_links_cost(
    state: TreeState, settings: SearchSettings, context: TreeContext, rng: random.Random
) -> list[Proposal]:
    """Return swaps in the order of a steepest descent on the true cost, under the caps of degree and load.

    Each evaluation prices every swap of the tree at once (:mod:`overlay.tree.walk_cuts`) and finds the best one for
    each link to remove. They are made best first, each repriced first, until the rest warrants a new evaluation. If no
    single swap helps, random kicks, each followed by a descent, look for a better tree within what one plan may
    exchange, and of up to six brokers every such tree is priced instead; all swaps to it form one proposal, because no
    part of them need pay. The penalty for the worst single death cutting off more (``context.frailty_weight``) is
    subtracted from each gain, and from that of the tree so reached as a whole. Source: the cost is Eq. 1-2 of Jaeger07;
    the neighbourhood is all link swaps, not those within a horizon. Cost O(brokers^2 * words) for an evaluation, about
    one for every few swaps. Guarantee: each proposal lowers the true cost over the horizon; if none is left and the
    budget is not used up, the tree is optimal among all trees one swap away (with a cap of load, among the best swaps
    of each link), for up to six brokers and without frailty among all that one plan may reach. Deterministic: the
    budgets are counted in words evaluated, not in time, and kicks are drawn from ``rng``. Any-time: when a budget ends,
    the best found so far is returned.
    """
    with lent_costs(state.tree_costs) as (costs, made):
        return _search(state, settings, context, rng, costs, made)


def _search(
    state: TreeState,
    settings: SearchSettings,
    context: TreeContext,
    rng: random.Random,
    costs: TreeCosts,
    made: list[tuple[LinkSwap, Floats]],
) -> list[Proposal]:
    """Return the proposals, and make their swaps on ``costs``, listed in ``made``, except those of the last group."""
    degree_max = len(state.inventory.brokers) if context.degree_max is None else context.degree_max
    search = Search(settings.search_words_max, degree_max, state.inventory.load_max_per_s)
    search.frailty = FrailtyPrice.of(state, context.frailty_weight)
    proposals = []
    before_per_s, before = costs.cost_per_s, costs.costs_by_span
    for swap in descend(costs, search, context.proposals_max):
        (a, b), (i, j) = swap.removed, swap.added
        reason = f"of all swaps of the tree, {i}-{j} for {a}-{b} saves most"
        proposals.append(_proposal([swap.removed], [swap.added], before_per_s, costs.cost_per_s, reason))
        made.append((swap, before))
        before_per_s, before = costs.cost_per_s, costs.costs_by_span
    if len(proposals) < context.proposals_max and not search.is_over:
        share = np.interp(len(costs.degrees), (FEW_BROKERS, MANY_BROKERS), (FEW_SHARE, 1.0))
        search.words_left = int(settings.escape_words_max * share)
        search.present, search.links_max = frozenset(costs.links), context.links_max
        is_small = len(costs.degrees) <= BROKERS_MAX and not search.is_over
        better = best_tree(costs, search) if is_small else escape(costs, search, rng)
        if better is not None and is_worth_its_frailty(costs, better, search.frailty):
            removed, added = sorted(set(costs.links) - set(better.links)), sorted(set(better.links) - set(costs.links))
            reason = f"no single swap helps, these {len(added)} together do"
            proposals.append(_proposal(removed, added, before_per_s, better.cost_per_s, reason))
    return proposals


def _proposal(removed: list[Link], added: list[Link], before_per_s: float, after_per_s: float, why: str) -> Proposal:
    return Proposal(PLANNER, tuple(removed), tuple(added), before_per_s, after_per_s, 0.0, why)


SPEC = PlannerSpec(
    PLANNER,
    TreeConfiguration.KIND,
    swap_links_cost,
    SearchSettings,
    summary="links of a tree, by true cost",
    source="ours, on the cost of Jaeger07, Eq. 1-2",
)
