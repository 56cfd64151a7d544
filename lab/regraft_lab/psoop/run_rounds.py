"""Run traffic over several overlays at once and adapt each in its own way, round by round.

All overlays see the same traffic and start from the same tree.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from regraft.api.overlays import DeliverySets, Inventory, WeightedSets, fill_in
from regraft.api.planning import ClosedWindow, TreeState
from regraft.api.trees import TreeConfiguration, overlay_cost
from regraft_lab.psoop.adapt_overlay import Round, Variant, adapt
from regraft_lab.psoop.broker_caches import CacheReader, Caches
from regraft_lab.psoop.evaluation_tasks import ROUND_TICKS
from regraft_lab.psoop.paper_workload import Workload

CACHE_IDS_MAX = 8192  # The paper's cache.

CostsAt = Callable[[float], Inventory]
CachesAt = Callable[[CacheReader, Workload, float], Caches]


@dataclass
class OverlayRun:
    """One overlay: how it adapts, its costs of links and brokers, and its cost in each round."""

    variant: Variant
    costs_at: CostsAt
    configuration: TreeConfiguration
    rng: random.Random
    forwarding: list[float] = field(default_factory=list)
    broadcast: list[float] = field(default_factory=list)
    request: list[float] = field(default_factory=list)
    exchange: list[float] = field(default_factory=list)
    exchanges: list[int] = field(default_factory=list)
    degree_max: list[int] = field(default_factory=list)

    def forward(self, sets: DeliverySets, tick: float) -> None:
        """Add the cost of a round's notifications on the current tree."""
        cost = overlay_cost(self.configuration, self.costs_at(tick), sets)
        self.forwarding.append(cost.total_per_s * sets.span_s)
        self.degree_max.append(self.configuration.degree_max)

    def adapt(self, knowledge: CacheKnowledge, tick: float, members: NDArray[np.int64], payback_ticks: float) -> None:
        """Change the tree for the next round, and add the cost of the messages."""
        if len(self.forwarding) % self.variant.every_rounds:
            self._note(Round(self.configuration))
            return
        state = knowledge.state(self.configuration, self.costs_at(tick))
        self._note(adapt(self.variant, state, members, payback_ticks, self.rng))

    def _note(self, done: Round) -> None:
        self.configuration = done.configuration
        self.broadcast.append(done.broadcast)
        self.request.append(done.request)
        self.exchange.append(done.exchange)
        self.exchanges.append(done.exchanges)


class CacheKnowledge:
    """The caches at the end of a round in the planners' form, computed once for all overlays."""

    def __init__(self, caches: Caches, brokers: Sequence[str], span_ticks: float) -> None:
        sets = caches.delivery_sets(brokers, span_ticks)
        self._window = ClosedWindow(0, round(span_ticks), sets)
        self._sets, self._weighted, self._interest = sets, WeightedSets.over_all([sets]), caches.interest

    def state(self, configuration: TreeConfiguration, inventory: Inventory) -> TreeState:
        """Return the state of this knowledge on one tree with the current costs."""
        state = TreeState(configuration, inventory, (self._window,))
        fill_in(state, TreeState.sets, self._sets)
        fill_in(state, TreeState.weighted, self._weighted)
        fill_in(state, TreeState.interest, self._interest)
        return state


def paper_caches(reader: CacheReader, workload: Workload, tick: float) -> Caches:
    """Return the caches of the paper's size."""
    return reader.newest(workload.first_id_at(tick), CACHE_IDS_MAX)


def run_rounds(
    workload: Workload,
    overlays: Sequence[OverlayRun],
    ticks: tuple[int, int],
    caches_at: CachesAt = paper_caches,
    report_rounds: Callable[[int], None] = lambda count: None,
) -> None:
    """Run every overlay from one time to another in rounds of 250 ticks.

    A tree decided on at the end of a round carries the notifications of the next one, so every cost is that of traffic
    after the decision. If costs change at the end of a round, its decisions still use the old costs.
    """
    settings = workload.settings
    reader = CacheReader(workload)
    per_tick = settings.type_count * settings.publications_per_tick * (1 + settings.subscribers_per_type)
    brokers = overlays[0].configuration.brokers
    for start in range(ticks[0], ticks[1], ROUND_TICKS):
        end = start + ROUND_TICKS
        sets = workload.delivery_sets(brokers, workload.first_id_at(start), workload.first_id_at(end), ROUND_TICKS)
        for overlay in overlays:
            overlay.forward(sets, start)
        caches = caches_at(reader, workload, end)
        # Caches cover different spans; with their mean span, the rate of the cached ids is right.
        span_ticks = max(float(caches.counts @ caches.holds.sum(axis=1)) / per_tick, 1.0)
        knowledge = CacheKnowledge(caches, brokers, span_ticks)
        decided_at = np.nextafter(end, start)  # Before costs that change now.
        members = workload.members_at(end)
        for overlay in overlays:
            overlay.adapt(knowledge, decided_at, members, settings.lifetime_ticks)
        report_rounds(len(overlays))
