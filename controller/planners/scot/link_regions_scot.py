"""Exchange links between regions of a structured cyclic overlay by its cost: the tree that all clusters share.

Slots of brokers belong to :mod:`controller.planners.scot.exchange_places_scot`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import networkx as nx

from regraft.controller.kinds.scot.scot_state import ScotState
from regraft.controller.planners.shared_settings import ExchangeSettings
from regraft.controller.state.planner_interface import PlannerContext, PlannerSpec
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.scot.scot_slots import region_link_names
from regraft.overlay.scot.slot_costs import RegionLinks, SlotCosts
from regraft.overlay.scot.structured_cyclic import OverlayShapeError
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.schemas.plan import Proposal
from regraft.schemas.texts import figure

PLANNER = "link_regions_scot"


@dataclass(frozen=True)
class RegionLinkSettings(ExchangeSettings):
    """How far to search for other links between regions: each evaluation prices all clusters."""

    # Exchanges in one plan, of two brokers' slots (some 2 * (regions + clusters) links change) or of a link between
    # regions (one in every cluster).
    exchanges_max: int = 2
    # Exchanges that are priced in one call.
    evaluations_max: int = 1_000


def link_regions_scot(
    state: ScotState, settings: RegionLinkSettings, context: PlannerContext, rng: random.Random
) -> list[Proposal]:
    """Return exchanges of links between regions, best first, each saving its share after the earlier ones.

    Each link is removed in turn, and all links that reconnect the two parts are priced, in random order within the
    budget. Source: none, Shafique keeps the tree; the cost is Jaeger07, Eq. 1-2, on the trees that static routing makes
    of the overlay. Cost O(regions^3) evaluations, each pricing all clusters, O(brokers * columns) on words. Guarantee:
    given enough budget and exchanges, no single exchange is left that saves its share.
    """
    if not state.can_move_publishers:
        return []
    overlay = state.configuration
    sets = DeliverySets.joined([window.sets for window in state.windows])
    prices = SlotCosts(state.inventory, sets, overlay.home_of)
    links, now_per_s = overlay.region_links, prices.cost_per_s(overlay.regions, overlay.region_links)
    evaluations_left, proposals = settings.evaluations_max, list[Proposal]()
    while evaluations_left and len(proposals) < min(settings.exchanges_max, context.proposals_max):
        tried = list(_exchanges(overlay, links))
        tried = rng.sample(tried, min(len(tried), evaluations_left))
        evaluations_left -= len(tried)
        priced = [(prices.cost_per_s(overlay.regions, after), after) for after in sorted(tried)]
        after_per_s, after = min(priced, default=(now_per_s, links))
        if now_per_s - after_per_s <= settings.gain_share_min * now_per_s:
            break
        proposals.append(_proposal(links, after, now_per_s, after_per_s))
        links, now_per_s = after, after_per_s
    return proposals


def _exchanges(overlay: ScotConfiguration, links: RegionLinks) -> Iterator[RegionLinks]:
    """Yield the links between regions after each exchange of one link that leaves a valid overlay."""
    for removed in links:
        tree: nx.Graph[int] = nx.Graph(links)
        tree.remove_edge(*removed)
        one, other = (sorted(nx.node_connected_component(tree, end)) for end in removed)
        for first, second in product(one, other):
            added = min(first, second), max(first, second)
            after = tuple(sorted({*links, added} - {removed}))
            if added != removed and _is_overlay(overlay, after):
                yield after


def _is_overlay(overlay: ScotConfiguration, links: RegionLinks) -> bool:
    """Return True if the overlay stays valid: the slots of a broker that stands in for others must stay adjacent."""
    try:
        ScotConfiguration(overlay.epoch, overlay.regions, links)
    except OverlayShapeError:
        return False
    return True


def _proposal(before: RegionLinks, after: RegionLinks, before_per_s: float, after_per_s: float) -> Proposal:
    removed, added = (region_link_names(set(one) - set(other)) for one, other in ((before, after), (after, before)))
    reason = f"saves {figure(before_per_s - after_per_s)} of {figure(before_per_s)}/s in all clusters together"
    return Proposal(PLANNER, removed, added, before_per_s, after_per_s, 0.0, reason)


SPEC = PlannerSpec(
    PLANNER,
    ScotConfiguration.KIND,
    link_regions_scot,
    RegionLinkSettings,
    summary="which regions of a structured cyclic overlay are linked, by the one cost",
    source="ours",
)
