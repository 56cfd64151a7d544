"""Move publishers off links of a structured cyclic overlay that have been congested for long.

Short congestion is left to the brokers, which send notifications around it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from regraft.controller.kinds.overlay_kind import RELIEF
from regraft.controller.kinds.scot.scot_state import ScotState
from regraft.controller.settings.planner_settings import PlannerSettings
from regraft.controller.state.hot_spots import HotSpots, LinkEnd
from regraft.controller.state.planner_interface import PlannerContext, PlannerSpec, moving_proposal
from regraft.overlay.overlay_configuration import link
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.tree.overlay_cost import link_crossings
from regraft.schemas.plan import ClientMove, Proposal
from regraft.schemas.texts import figure


@dataclass(frozen=True)
class ReliefSettings(PlannerSettings):
    """When a link is a persistent hot spot."""

    # When it has been congested (controller.decision.link_congestion_max) in this many windows in a row, up to the
    # newest.
    congested_windows: int = 6
    # The share of its load on such links that a publisher's move must remove.
    relief_share_min: float = 0.2


def relieve_links_scot(
    state: ScotState, settings: ReliefSettings, context: PlannerContext, rng: random.Random
) -> list[Proposal]:
    """Return moves that take half of the load off links that have been congested for long, if moves can.

    Publishers are tried in the order of their load on such links under static routing. Each goes to the home at which
    it loads them least, the cheapest of several, unless a link that is congested now would get more load. A link is
    considered in the direction in which its queue waits. Source: none, Shafique moves no publishers. Cost O(brokers *
    links) for each publisher on such a link. Guarantee: none, heuristic; a notification wanted on both sides of a link
    within a cluster crosses it wherever it is published. The judge requires no gain of these moves, because the cost
    ignores queues, and does not check whether congested links carry more, because it ignores directions.
    """
    hot = _ends(state, context.hot, 1)
    persistent = _ends(state, context.hot, settings.congested_windows)
    if not persistent or not state.can_move_publishers:
        return []
    # Deliveries behind a congested link are mostly missing from the windows in which it is congested.
    windows = state.windows[:-1] or state.windows
    sets = DeliverySets.joined([window.sets for window in windows[-settings.congested_windows :]])
    relief = _Relief(state, persistent, hot, sets)
    published = {name for name, _ in sets.columns}
    homes = {name: home for name, home in state.configuration.homes if name in published}
    loads = {name: relief.load_per_s(name, home) for name, home in homes.items()}
    left_per_s = sum(loads.values()) / 2
    proposals: list[Proposal] = []
    cost_per_s = state.costs.total_per_s(state.configuration.home_of)
    for name in sorted(loads, key=lambda name: (-loads[name], name)):
        if left_per_s <= 0 or len(proposals) == min(context.proposals_max, context.moves_max):
            break
        best, load_per_s = relief.best_home(name)
        if best == homes[name] or load_per_s > (1 - settings.relief_share_min) * loads[name]:
            continue
        after_per_s = cost_per_s + state.costs.at_home(name, best) - state.costs.at_home(name, homes[name])
        reason = (
            f"congested for {settings.congested_windows} windows: {_named(persistent)}; {name} sends "
            f"{figure(load_per_s)} instead of {figure(loads[name])} notifications/s there"
        )
        moves = (ClientMove(name, homes[name], best),)
        proposals.append(moving_proposal(RELIEF, moves, cost_per_s, after_per_s, reason))
        cost_per_s, left_per_s = after_per_s, left_per_s - (loads[name] - load_per_s)
    return proposals


def _named(directed: frozenset[LinkEnd]) -> str:
    return ", ".join(f"{broker}>{peer}" for broker, peer in sorted(directed))


def _ends(state: ScotState, hot: HotSpots, window_count: int) -> frozenset[LinkEnd]:
    """Return the link ends that have been congested in each of the newest ``window_count`` windows."""
    here = state.configuration.neighbours
    return frozenset(end for end, count in hot.ends.items() if count >= window_count and end[1] in here.get(end[0], ()))


@dataclass(frozen=True, eq=False)
class _Relief:
    """The load of publishers at each home on links that have been congested for long, and on those congested now."""

    state: ScotState
    persistent: frozenset[LinkEnd]
    hot: frozenset[LinkEnd]
    sets: DeliverySets

    def load_per_s(self, publisher: str, home: str) -> float:
        """Return the notifications per second of a publisher at a home over all links congested for long."""
        loads = self._loads_per_s(publisher, home)
        return sum(loads.get(pair, 0.0) for pair in self.persistent)

    def _loads_per_s(self, publisher: str, home: str) -> dict[LinkEnd, float]:
        own = self.sets.of_publishers(frozenset({publisher})).at_homes({publisher: home})
        tree = self.state.configuration.static_tree(home)
        crossing, parents = link_crossings(tree, own), tree.parents_from(home)
        span_s = max(self.sets.span_s, 1e-9)
        return {
            (broker, peer): float(np.bitwise_count(crossing[link(broker, peer)]).sum()) / span_s
            for broker, peer in self.persistent | self.hot
            if parents.get(peer) == broker
        }

    def best_home(self, publisher: str) -> tuple[str, float]:
        """Return the home at which a publisher loads these links least (the cheapest of several), and that load."""
        overlay = self.state.configuration
        now, candidates = self._loads_per_s(publisher, overlay.home_of[publisher]), []
        for home in overlay.brokers:
            loads = self._loads_per_s(publisher, home)
            if all(loads.get(pair, 0.0) <= now.get(pair, 0.0) for pair in self.hot):
                load_per_s = sum(loads.get(pair, 0.0) for pair in self.persistent)
                candidates.append((load_per_s, self.state.costs.at_home(publisher, home), home))
        load_per_s, _, best = min(candidates)  # Never empty: at its present home it adds no load.
        return best, load_per_s


SPEC = PlannerSpec(
    RELIEF,
    ScotConfiguration.KIND,
    relieve_links_scot,
    ReliefSettings,
    summary="a publisher's home on a structured cyclic overlay, away from links that stay congested",
    source="ours",
)
