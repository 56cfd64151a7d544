"""Measure how far the distributed protocol decides like Cost and Interest with exact knowledge of the same caches.

In: a running distributed overlay. Out: counts in both directions: how many exchanges that its brokers agree on the
central rule also makes, and how many that the central planner makes the brokers would agree on.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from regraft.api.brokers import BrokerPhase
from regraft.api.overlays import Inventory, Link
from regraft.api.planners import cycle_costs, wanting_paths
from regraft.api.planning import TreeContext, TreeState
from regraft.api.records import Proposal
from regraft.api.trees import TreeConfiguration, paths_within
from regraft_lab.planners.swap_links_ci_paper import InterestSettings, local_knowledge, swap_links_ci_paper
from regraft_lab.psoop.distributed_central import cached_state
from regraft_lab.psoop.distributed_estimates import removals
from regraft_lab.psoop.distributed_messages import Cycle, Exchange, Step
from regraft_lab.psoop.distributed_overlay import DistributedOverlay
from regraft_lab.psoop.distributed_settings import CommonInterest


@dataclass(slots=True)
class Agreement:
    """The results of the comparison.

    ``agreed``: exchanges agreed by brokers; ``agreed_wanted``: those that add a link that the exact rule also wants;
    ``agreed_taken``: those that in addition remove the same link. ``proposed``: exchanges of the central planner;
    ``proposed_known``: those among brokers that have heard from each other; ``proposed_taken``: those that these
    would agree on.
    """

    agreed: int = 0
    agreed_wanted: int = 0
    agreed_taken: int = 0
    proposed: int = 0
    proposed_known: int = 0
    proposed_taken: int = 0

    @property
    def agreed_taken_share(self) -> float:
        """The share of the brokers' exchanges that the exact rule makes; 0 without any."""
        return self.agreed_taken / max(self.agreed, 1)

    @property
    def proposed_taken_share(self) -> float:
        """The share of the central exchanges that the brokers would agree on; 0 without any."""
        return self.proposed_taken / max(self.proposed, 1)


class AgreementMeter:
    """Compares while an overlay runs: every agreed exchange at once, the planner's proposals once per broadcast period.

    It only observes: caches are copied, and no message is sent or counted.
    """

    def __init__(self, overlay: DistributedOverlay) -> None:
        self.found = Agreement()
        self._overlay = overlay
        settings = overlay.settings
        is_counted = settings.common_interest is CommonInterest.CONJUNCTION
        self._settings = InterestSettings(
            horizon_hops=settings.horizon_hops,
            order="arrival",
            path_interest="conjunction" if is_counted else "estimate",
        )
        self._rng = random.Random(overlay.virtual.settings.seed)
        self._is_running = True
        overlay.on_agreed = self._compare_agreed
        overlay.call_every(settings.broadcast_ms, settings.broadcast_ms, self._on_period)

    def stop(self) -> None:
        """Stop comparing proposals."""
        self._is_running = False

    def _compare_agreed(self, exchange: Exchange) -> None:
        cycle = exchange.cycle
        tree = self._overlay.view(cycle.brokers[-1]).trees[cycle.epoch]
        state = cached_state(self._overlay).with_configuration(tree)
        is_wanted, removed = exact_decision(state, self._settings, cycle.brokers)
        self.found.agreed += 1
        self.found.agreed_wanted += is_wanted
        self.found.agreed_taken += is_wanted and exchange.link_removed in removed

    def _on_period(self) -> bool:
        if not self._is_running:
            return False
        cores = self._overlay.virtual.cores.values()
        if all(core.phase is BrokerPhase.STEADY for core in cores) and any(
            len(cache.ids) for cache in self._overlay.caches.values()
        ):
            state = cached_state(self._overlay)
            for proposal in swap_links_ci_paper(state, self._settings, TreeContext(), self._rng):
                self._compare_proposed(state.configuration, proposal)
        return True

    def _compare_proposed(self, tree: TreeConfiguration, proposal: Proposal) -> None:
        (removed,), (added,) = proposal.links_removed, proposal.links_added
        decisions = [
            brokers_decision(self._overlay, path) for path in (tree.path(*added), tree.path(added[1], added[0]))
        ]
        self.found.proposed += 1
        self.found.proposed_known += any(decision is not None for decision in decisions)
        self.found.proposed_taken += any(decision is not None and removed in decision for decision in decisions)


def exact_decision(
    state: TreeState, settings: InterestSettings, path: tuple[str, ...]
) -> tuple[bool, tuple[Link, ...]]:
    """Return True if an end of the path wants the direct link by exact interests, and the links its cycle may remove.

    All links that tie for removal are returned; none if the cycle would keep the tree.
    """
    index = state.inventory.index
    known = local_knowledge(state, settings, paths_within(state.configuration, settings.horizon_hops))
    there = np.array([[index[broker] for broker in path]], dtype=np.intp)
    is_wanted = any(len(wanting_paths(places, known)) for places in (there, there[:, ::-1]))
    links = cycle_of(state.inventory, path).path_links
    return is_wanted, tuple(links[place] for place in removals(cycle_costs(there, known)[0].tolist()))


def brokers_decision(overlay: DistributedOverlay, path: tuple[str, ...]) -> tuple[Link, ...] | None:
    """Return the links that the brokers of a path may remove for a link between its ends that the first one asks for.

    Empty if the first one does not want the link or the cycle refuses it; None if not all have heard from each other.
    """
    cycle = cycle_of(overlay.inventory, path)
    # The path that the first broker would have received in a broadcast of the last one.
    link_costs = (0.0, *reversed(cycle.link_costs[:-1]))
    steps = zip(reversed(path), reversed(cycle.processing_costs), link_costs, strict=True)
    indirect_cost = overlay.brokers[path[0]].indirect_cost(tuple(Step(*step) for step in steps))
    shares = [share for share in (overlay.brokers[broker].share_of(cycle) for broker in path) if share is not None]
    if indirect_cost is None or len(shares) < len(path):
        return None
    if cycle.link_costs[-1] >= indirect_cost:
        return ()
    return tuple(cycle.path_links[place] for place in removals([sum(entries) for entries in zip(*shares, strict=True)]))


def cycle_of(inventory: Inventory, path: tuple[str, ...]) -> Cycle:
    """Return the reconfiguration cycle of a path, with the inventory's costs."""
    pairs = zip(path, (*path[1:], path[0]), strict=True)
    return Cycle(
        "asked",
        0,
        path,
        tuple(inventory.cost_of_link(a, b) for a, b in pairs),
        tuple(float(inventory.processing_cost[inventory.index[broker]]) for broker in path),
    )
