"""ScotKind: what the controller asks of a structured cyclic overlay, whose publishers move and whose slots change."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from regraft.controller.kinds.overlay_kind import EVACUATION, Objection
from regraft.controller.kinds.place_publishers import PublisherKind
from regraft.controller.kinds.repair import Repair, RepairTask
from regraft.controller.kinds.scot.reached_scot import ReachedScot
from regraft.controller.kinds.scot.repair_scot import repaired_scot
from regraft.controller.kinds.scot.scot_state import ScotState
from regraft.controller.settings.decision_settings import DecisionSettings
from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.state.planner_interface import PlannerContext, moving_proposal
from regraft.overlay.cost_breakdown import CostBreakdown, mean_breakdown
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.scot.scot_costs import scot_breakdown
from regraft.overlay.tree.publisher_placement import ROUNDING_SHARE
from regraft.schemas.plan import OFF_RING, ClientMove, Proposal, Verdict, slot_text
from regraft.schemas.texts import figure


def publishers_leaving(
    state: ScotState, avoided: Collection[str], left: Collection[str], moves_max: int
) -> list[Proposal]:
    """Return moves of at most ``moves_max`` publishers from brokers ``left`` to any that are not ``avoided``."""
    open_to = np.array([broker not in avoided for broker in state.configuration.brokers])
    if not left or not state.can_move_publishers or not open_to.any():
        return []
    costs, homes = state.costs, state.configuration.home_of
    proposals: list[Proposal] = []
    cost_per_s = costs.total_per_s(homes)
    for name in costs.publishers:
        home = homes.get(name)
        if home is None or home not in left or len(proposals) == moves_max:
            continue
        by_home = np.where(open_to, costs.by_home(name), np.inf)
        best = int(np.argmin(by_home))
        move = ClientMove(name, home, state.configuration.brokers[best])
        before = float(costs.by_home(name)[state.configuration.brokers.index(home)])
        after_per_s = cost_per_s - before + float(by_home[best])
        reason = f"{home} is in maintenance; {move.home_to} is the cheapest home elsewhere"
        proposals.append(moving_proposal(EVACUATION, (move,), cost_per_s, after_per_s, reason))
        cost_per_s = after_per_s
    return proposals


@dataclass(frozen=True, eq=False)
class ScotKind(PublisherKind[ScotConfiguration, ScotState, ReachedScot]):
    """A structured cyclic overlay over the inventory's brokers. Its links follow from slots."""

    def state_of(self, configuration: ScotConfiguration, windows: Sequence[ClosedWindow]) -> ScotState:
        """Return the state for planners of this kind."""
        return ScotState(configuration, self.inventory, tuple(windows))

    def planner_context(self, proposals_max: int, settings: DecisionSettings) -> PlannerContext:
        """Return the bounds of a plan."""
        return PlannerContext(proposals_max=proposals_max, moves_max=self.moves_max(settings))

    def reached(self, state: ScotState) -> ReachedScot:
        """Return the overlay of the state."""
        return ReachedScot(state)

    def judge_caps(self, before: ReachedScot, after: ReachedScot) -> Objection | None:
        """Return the refusal that names a broker that would get more links or notifications than its cap, or None."""
        now, then = before.configuration.neighbours, after.configuration.neighbours
        for broker, peers in then.items():
            if len(peers) > max(self.degree_max, len(now.get(broker, ()))):
                reason = f"{broker} would have {len(peers)} links, but the limit is {self.degree_max}"
                return Verdict.DEGREE, reason
        return None if self.inventory.load_max_per_s is None else self._judge_loads(before, after)

    def _judge_loads(self, before: ReachedScot, after: ReachedScot) -> Objection | None:
        assert self.inventory.load_max_per_s is not None
        now, then = (self._loads_per_s(one.configuration, one.state.windows) for one in (before, after))
        for broker, load_max in zip(self.inventory.brokers, self.inventory.load_max_per_s, strict=True):
            if then.get(broker, 0.0) > max(load_max, now.get(broker, 0.0)) * (1 + ROUNDING_SHARE):
                return Verdict.CAPACITY, (
                    f"{broker} would pass {figure(then[broker])} notifications/s, but the limit is {figure(load_max)}"
                )
        return None

    def _loads_per_s(self, configuration: ScotConfiguration, windows: Sequence[ClosedWindow]) -> Mapping[str, float]:
        """Return how many notifications pass each broker: the cost at a price of 1 per notification."""
        counting = replace(self.inventory, processing_cost=np.ones(len(self.inventory.brokers)))
        return replace(self, inventory=counting).breakdown(configuration, windows).brokers_per_s

    def additions_by(self, present: ScotConfiguration, proposal: Proposal) -> Iterable[tuple[str, str]]:
        """Return the slots that brokers would get, and the links that follow from slots and regions' links."""
        exchanged = proposal.links_removed, proposal.links_added
        try:
            target = present.replaced(present.epoch + 1, proposal.id_moves, *exchanged)
        except ValueError:  # An invalid overlay is judged elsewhere.
            return []
        placed = [(slot_text(move.id_to), move.broker) for move in proposal.id_moves if move.id_to != OFF_RING]
        links = sorted(set(target.links) - set(present.links))
        return [*placed, *((f"link {a}-{b}", broker) for a, b in links for broker in (a, b))]

    def choices_in(self, proposal: Proposal) -> int:
        """Return how many homes and links between regions change, and how many pairs of brokers exchange slots."""
        return len(proposal.moves) + (len(proposal.id_moves) + 1) // 2 + len(proposal.links_added)

    def evacuate(
        self, state: ScotState, avoided: Collection[str], left: Collection[str], moves_max: int
    ) -> list[Proposal]:
        """Return moves of publishers to their cheapest homes elsewhere."""
        return publishers_leaving(state, avoided, left, moves_max)

    def repaired(self, present: ScotConfiguration, task: RepairTask) -> Repair:
        """Return the overlay with neighbours standing in for lost brokers, and new brokers at their own slots."""
        overlay = self.with_homes(present, task.windows) if task.windows else present
        return repaired_scot(overlay, task, self.degree_max)

    def cost_per_s(self, configuration: ScotConfiguration, window: ClosedWindow) -> float:
        """Return the overlay's cost of the window's notifications with static routing."""
        return self._breakdown_of(configuration, window).total_per_s

    def _breakdown_of(self, overlay: ScotConfiguration, window: ClosedWindow) -> CostBreakdown:
        named = {**window.homes, **overlay.home_of}
        here = {name: home for name, home in named.items() if home in overlay.neighbours}
        return scot_breakdown(overlay.with_homes(here), self.inventory, window.sets_at(overlay.home_of))

    def breakdown(self, configuration: ScotConfiguration, windows: Sequence[ClosedWindow]) -> CostBreakdown:
        """Return the cost by link and broker, the mean over the windows, weighted by length."""
        parts = [self._breakdown_of(configuration, window) for window in windows]
        return mean_breakdown(parts, [window.sets.span_s for window in windows])

    def counted_cost_per_s(self, window: ClosedWindow) -> float | None:
        """Return None: around congested links, notifications take detours that the model does not have."""
        return None

    def transition_messages_min(self, configuration: ScotConfiguration) -> int:
        """Return the markers of a drain: each way over every link, for each number of crossings possible there."""
        within, clusters = len(configuration.cluster_links), configuration.cluster_count
        across = len(configuration.links) - within
        return 2 * within * clusters + 2 * across * (clusters - 1)
