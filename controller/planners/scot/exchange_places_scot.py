"""Exchange slots of brokers on a structured cyclic overlay by its cost: who shares a cluster, who a region.

The search is in :mod:`controller.planners.scot.steps.search_slots`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from regraft.controller.kinds.scot.scot_state import ScotState
from regraft.controller.planners.scot.steps.search_slots import SlotBudget, SlotExchange, search_places
from regraft.controller.planners.shared_settings import ExchangeSettings
from regraft.controller.state.planner_interface import PlannerContext, PlannerSpec
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.scot.scot_slots import Regions, id_moves_between, slots_of
from regraft.overlay.scot.slot_costs import SlotCosts
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.schemas.plan import Proposal
from regraft.schemas.texts import figure

PLANNER = "exchange_places_scot"


@dataclass(frozen=True)
class SlotSettings(ExchangeSettings):
    """How far to search for exchanges of slots: the default takes less than two seconds at 40 brokers."""


def exchange_places_scot(
    state: ScotState, settings: SlotSettings, context: PlannerContext, rng: random.Random
) -> list[Proposal]:
    """Return exchanges of slots, best first, each saving its share after the earlier ones.

    Two brokers exchange region and cluster, including all slots at which one stands in for others. Publishers stay at
    their brokers, and so come to other slots with them. Source: none, Shafique keeps the clusters that an overlay is
    made with; the cost is Jaeger07, Eq. 1-2, on the trees that static routing makes of the overlay. Cost: pricing an
    exchange evaluates two clusters, O(brokers * columns) on words. Guarantee: given enough budget, it returns nothing
    only if no exchange saves its share; none of the optimum, because the problem contains quadratic assignment.
    """
    if not state.can_move_publishers:
        return []
    overlay = state.configuration
    sets = DeliverySets.joined([window.sets for window in state.windows])
    prices = SlotCosts(state.inventory, sets, overlay.home_of)
    exchanges_max = min(settings.exchanges_max, context.proposals_max)
    budget = SlotBudget(settings.evaluations_max, exchanges_max, settings.gain_share_min)
    proposals, regions = [], overlay.regions
    for exchange in search_places(prices, overlay.regions, overlay.region_links, budget, rng):
        proposals.append(_proposal(exchange, regions))
        regions = exchange.regions
    return proposals


def _proposal(exchange: SlotExchange, before: Regions) -> Proposal:
    id_moves = id_moves_between(slots_of(before), slots_of(exchange.regions))
    saved = exchange.before_per_s - exchange.after_per_s
    reason = (
        f"{exchange.one} and {exchange.other} exchange slots, "
        f"which saves {figure(saved)} of {figure(exchange.before_per_s)}/s"
    )
    return Proposal(PLANNER, (), (), exchange.before_per_s, exchange.after_per_s, 0.0, reason, id_moves=id_moves)


SPEC = PlannerSpec(
    PLANNER,
    ScotConfiguration.KIND,
    exchange_places_scot,
    SlotSettings,
    summary="which brokers of a structured cyclic overlay share a cluster and a region, by the one cost",
    source="ours",
)
