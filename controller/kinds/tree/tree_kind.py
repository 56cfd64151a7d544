"""TreeKind: what the controller asks of a tree, whose links are exchanged and whose publishers move."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from regraft.controller.kinds.overlay_kind import Objection
from regraft.controller.kinds.place_publishers import PublisherKind
from regraft.controller.kinds.repair import Repair, RepairTask
from regraft.controller.kinds.tree.charge_access import access_by_span_per_s, access_costs_per_s, bill_of
from regraft.controller.kinds.tree.evacuate_publishers import publishers_leaving, subscribers_leaving
from regraft.controller.kinds.tree.reached_tree import ReachedTree
from regraft.controller.kinds.tree.repair_tree import repaired_tree
from regraft.controller.kinds.tree.tree_state import TreeContext, TreeState
from regraft.controller.settings.decision_settings import DecisionSettings
from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.cost_breakdown import CostBreakdown
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.tree.compiled_costs import prepare_compiled
from regraft.overlay.tree.least_cost import least_cost_per_s
from regraft.overlay.tree.overlay_cost import overlay_cost
from regraft.overlay.tree.publisher_placement import ROUNDING_SHARE
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.schemas.arrays import Floats
from regraft.schemas.live_view import ShownBill
from regraft.schemas.plan import Proposal, Verdict
from regraft.schemas.texts import figure


@dataclass(frozen=True, eq=False)
class TreeKind(PublisherKind[TreeConfiguration, TreeState, ReachedTree]):
    """A tree over the inventory's brokers."""

    EMPTIES_BROKERS: ClassVar[bool] = True

    def prepare(self) -> str:
        """Compile the search over links, or load what was compiled before; until then decisions take longer."""
        return prepare_compiled()

    def state_of(self, configuration: TreeConfiguration, windows: Sequence[ClosedWindow]) -> TreeState:
        """Return the state for planners of a tree."""
        return TreeState(configuration, self.inventory, tuple(windows))

    def planner_context(self, proposals_max: int, settings: DecisionSettings) -> TreeContext:
        """Return the context of planners on a tree."""
        return TreeContext(
            proposals_max=proposals_max,
            moves_max=self.moves_max(settings),
            links_max=settings.changes_per_plan_max,
            degree_max=self.degree_max,
            frailty_weight=settings.frailty_weight,
            subscribers_max=0 if self.inventory.clients_stay else settings.users_per_plan_max,
            single_max=settings.users_per_plan_max if self.inventory.clients_stay else self.moves_max(settings),
        )

    def reached(self, state: TreeState) -> ReachedTree:
        """Return the tree of the state."""
        return ReachedTree(state)

    def costs_by_publisher_per_s(self, before: ReachedTree, after: ReachedTree) -> tuple[Floats, Floats] | None:
        """Return the cost on links of each publisher of the horizon; None if homes are unknown or access changes.

        Publishers whose home is unknown are left out: no change saves anything on them. None, too, if only one of them
        moves: across publishers, a gain on one is never larger than its error. Cost O(brokers * words).
        """
        here, there = before.state, after.state
        if not here.can_move_publishers or not np.array_equal(here.access_by_span_per_s, there.access_by_span_per_s):
            return None
        if here.windows is there.windows and _is_one_move(here.configuration, there.configuration):
            return None
        costs_per_s = here.costs_at_homes_per_s
        here.hand_on_publishers(there)
        return costs_per_s, there.costs_at_homes_per_s

    def judge_caps(self, before: ReachedTree, after: ReachedTree) -> Objection | None:
        """Return the refusal that names a broker that would get more links or notifications than its cap, or None."""
        names, loads = self.inventory.brokers, self.inventory.load_max_per_s
        degrees_before, degrees = before.degrees, after.degrees
        for position in (degrees > max(self.degree_max, 0)).nonzero()[0]:
            if degrees[position] > degrees_before[position]:
                reason = f"{names[position]} would have {degrees[position]} links, but the limit is {self.degree_max}"
                return Verdict.DEGREE, reason
        if loads is None:
            return None
        now, then = before.loads_per_s, after.loads_per_s
        for position in (then > loads * (1 + ROUNDING_SHARE)).nonzero()[0]:
            if then[position] > now[position] * (1 + ROUNDING_SHARE):
                return Verdict.CAPACITY, (
                    f"{names[position]} would pass {figure(then[position])} notifications/s, "
                    f"but the limit is {figure(loads[position])}"
                )
        return None

    def choices_in(self, proposal: Proposal) -> int:
        """Return how many links and homes change: each was selected by what the windows cost."""
        return len(proposal.links_added) + len(proposal.moves) + len(proposal.subscribers_moved)

    def evacuate(
        self, state: TreeState, avoided: Collection[str], left: Collection[str], moves_max: int
    ) -> list[Proposal]:
        """Return moves of publishers to their cheapest homes elsewhere."""
        return publishers_leaving(state, avoided, left, moves_max)

    def evacuate_subscribers(
        self, state: TreeState, avoided: Collection[str], left: Collection[str], subscribers_max: int
    ) -> list[Proposal]:
        """Return moves of all subscribers of each broker to the nearest other one; if clients stay, of those that may.

        Moves by name are limited as in a repair.
        """
        return subscribers_leaving(state, avoided, left, min(subscribers_max, self.LOST_MOVES_MAX))

    def repaired(self, present: TreeConfiguration, task: RepairTask) -> Repair:
        """Return the tree with its fragments joined by the cheapest links, and new brokers as leaves."""
        overlay = self.with_homes(present, task.windows) if task.windows else present
        return repaired_tree(overlay, task, self.degree_max)

    def cost_per_s(self, configuration: TreeConfiguration, window: ClosedWindow) -> float:
        """Return the cost of the window's notifications (Jaeger07, Eq. 1-2), of hand-overs and of clients' ways."""
        links = overlay_cost(configuration, self.inventory, window.sets_at(configuration.home_of))
        return links.total_per_s + float(access_costs_per_s(self.inventory, window, configuration.home_of).sum())

    def least_cost_per_s(self, windows: Sequence[ClosedWindow]) -> float | None:
        """Return a lower bound of the cost on any tree, with subscribers where they are; None without windows."""
        sets = [window.sets for window in windows]
        access_per_s = access_by_span_per_s(self.inventory, windows, 1, {}, {})
        return least_cost_per_s(self.inventory, sets) + float(access_per_s.mean()) if sets else None

    def bill(self, configuration: TreeConfiguration, windows: Sequence[ClosedWindow]) -> ShownBill | None:
        """Return the cost of links and hand-overs at the inventory's prices; delays are not charged."""
        return bill_of(configuration, self.inventory, windows)

    def breakdown(self, configuration: TreeConfiguration, windows: Sequence[ClosedWindow]) -> CostBreakdown:
        """Return the cost by link and broker."""
        sets = DeliverySets.joined(window.sets_at(configuration.home_of) for window in windows)
        breakdown = overlay_cost(configuration, self.inventory, sets)
        homes = configuration.home_of
        access = np.mean([access_costs_per_s(self.inventory, window, homes) for window in windows], axis=0)
        if not access.any():
            return breakdown
        at_brokers = zip(self.inventory.brokers, access.tolist(), strict=True)
        brokers = {broker: breakdown.brokers_per_s[broker] + handed for broker, handed in at_brokers}
        return replace(breakdown, brokers_per_s=brokers)

    def counted_cost_per_s(self, window: ClosedWindow) -> float | None:
        """Return the cost by counters of notifications on each link end and broker; None if no broker sent any.

        It includes what crossed links that a transition was retiring.
        """
        inventory = self.inventory
        queues = [queue for queue in window.queues if queue.broker in inventory.index]
        if not queues:
            return None
        access_per_s = float(access_costs_per_s(inventory, window, {}).sum())
        return access_per_s + sum(
            queue.notifications_out_per_s * inventory.cost_of_link(queue.broker, queue.peer)
            if queue.peer in inventory.index
            else queue.notifications_out_per_s * float(inventory.processing_cost[inventory.index[queue.broker]])
            for queue in queues
        )

    def transition_messages_min(self, configuration: TreeConfiguration) -> int:
        """Return the markers of a drain: one each way over every link."""
        return 2 * (len(configuration.brokers) - 1)


def _is_one_move(before: TreeConfiguration, after: TreeConfiguration) -> bool:
    """Return True if two configurations differ only in the home of one publisher."""
    return before.links == after.links and len(set(before.homes).symmetric_difference(after.homes)) == 2
