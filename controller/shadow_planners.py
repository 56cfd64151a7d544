"""Let planners decide beside the acting one: on the same windows, by the same judge, on a tree that exists only here.

In: closed windows and the situations the acting planner decides on. Out: what the traffic would have cost and which
plans would have been made. Nothing here sends, stores or tells; which planner acts belongs to the control loop.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from collections.abc import Callable, Sequence

import msgspec
import structlog

from controller.closed_window import ClosedWindow
from controller.controller_settings import ControllerSettings
from controller.decide_plan import decide_plan
from controller.find_homes import homes_after, homes_before
from controller.judge_proposals import Situation
from controller.planner_interface import Planner
from controller.verify_gain import verify_gain
from overlay.configuration import Configuration
from overlay.cost import overlay_cost
from overlay.inventory import Inventory
from schemas.plan import Plan

log = structlog.get_logger(__name__)

PLANS_KEPT_MAX = 50
HOMES_KEPT_MAX = 100_000

Price = Callable[[Configuration], float]


class ShadowPlanner:
    """A chain of planners and the overlay that they would have made, from the configuration in force at the start on.

    What a broker delivers depends neither on the links nor on the publishers' homes, so the cost of this overlay on a
    real window is exact. The rules
    are those of the acting planner: judge, choice, cool-down, one plan at a time until it is verified, a plan that
    made things worse taken back and its planner muted. Only transitions are missing: a plan holds at once and costs no
    message. So a shadow keeps the pace of the same planner at work whose transitions are over within a window; where
    they take longer, it is quicker. A restarted controller begins again at the
    configuration then in force. What the planner raises is counted and goes no further.
    """

    def __init__(
        self,
        name: str,
        planners: Sequence[Planner],
        start: Configuration,
        inventory: Inventory,
        settings: ControllerSettings,
    ) -> None:
        self.name = name
        self.tree = Configuration(0, start.brokers, start.links)
        self.plans: deque[Plan] = deque(maxlen=PLANS_KEPT_MAX)
        self.plans_made = 0
        self.plans_taken_back = 0
        self.links_exchanged = 0
        self.publishers_moved = 0
        self._moved: set[str] = set()
        self.refusals: Counter[str] = Counter()
        self.faults = 0
        self.fault_text = ""
        self._planners = tuple(planners)
        self._inventory = inventory
        self._settings = settings
        self._before: Configuration | None = None  # The tree before the plan that is not verified yet.
        self._verify_on: list[ClosedWindow] = []
        self._closed_on: ClosedWindow | None = None  # The window that ended the verification.
        self._planned_ms: int | None = None
        self._windows_since_plan = 0
        self._lifetime_s: float | None = None
        self._muted_until_ms: dict[str, int] = {}

    @property
    def homes_moved(self) -> dict[str, str]:
        """Where the publishers are that it has moved."""
        return {publisher: home for publisher, home in self.tree.homes if publisher in self._moved}

    def add_window(self, window: ClosedWindow, now_ms: int) -> float:
        """Return what the tree costs on the window, per second; verify the last plan when enough have come after it."""
        self._learn_homes(window)
        cost_per_s = overlay_cost(self.tree, self._inventory, window.sets_at(self.tree.home_of)).total_per_s
        if self._planned_ms is not None and window.start_ms >= self._planned_ms:
            self._windows_since_plan += 1
            self._verify(window, now_ms)
        return cost_per_s

    def _learn_homes(self, window: ClosedWindow) -> None:
        """Take publishers that are new here as they are; where the acting planner moves them does not count."""
        known = self.tree.home_of
        new = {publisher: home for publisher, home in window.homes.items() if publisher not in known}
        if new:
            kept = dict(list(known.items())[max(len(known) + len(new) - HOMES_KEPT_MAX, 0) :])
            self.tree = Configuration.of(self.tree.epoch, self.tree.brokers, self.tree.links, kept | new)

    def decide(self, acting: Situation, price_of: Price) -> bool:
        """Decide on the acting planner's situation as if this planner's tree were in force; return False on a fault.

        ``price_of`` says what a transition from a tree would cost, per second.
        """
        self._lifetime_s = acting.subscription_lifetime_s
        try:
            situation = self._situation(acting, price_of)
            decision = decide_plan(situation, self._planners, self.tree.epoch + 1, self._settings)
        # A planner that only looks on must not stop the one that acts, whatever it raises.
        except Exception as error:
            self.faults += 1
            self.fault_text = f"{type(error).__name__}: {error}"
            if self.faults == 1:
                log.exception("shadow_planner_failed", planner=self.name)
            return False
        if decision.state_verdict is not None:
            self.refusals[decision.state_verdict] += 1
        self.refusals.update(str(proposal.verdict) for proposal in decision.refused)
        if decision.plan is not None:
            self._adopt(decision.plan, acting.now_ms)
        return True

    def _situation(self, acting: Situation, price_of: Price) -> Situation:
        # The real window may be of another epoch or of two: here it only has to be one of the tree's own.
        newest = acting.state.newest
        own = dataclasses.replace(newest, epoch_min=self.tree.epoch, epoch_max=self.tree.epoch)
        windows = (*acting.state.windows[:-1], own)
        # As at work, a plan whose verification ends with a window is closed too late for a decision on that window.
        is_running = self._before is not None or self._closed_on is newest
        return dataclasses.replace(
            acting,
            state=dataclasses.replace(acting.state, configuration=self.tree, windows=windows),
            price_per_s=price_of(self.tree),
            plan_running=self.plans[-1].plan if is_running else "",
            windows_since_plan=None if self._planned_ms is None else self._windows_since_plan,
            muted_until_ms=self._muted_until_ms,
        )

    def _adopt(self, plan: Plan, now_ms: int) -> None:
        self.plans.append(plan)
        self.plans_made += 1
        self.links_exchanged += len(plan.links_added)
        self.publishers_moved += len(plan.moves)
        self._moved.update(move.client for move in plan.moves)
        self._before = self.tree
        homes = self.tree.home_of | homes_after([plan])
        self.tree = Configuration.of(plan.epoch_to, self.tree.brokers, plan.links_target, homes)
        self._verify_on = []
        self._planned_ms, self._windows_since_plan = now_ms, 0

    def _verify(self, window: ClosedWindow, now_ms: int) -> None:
        if self._before is None or self._planned_ms is None:
            return
        if window.is_complete:
            self._verify_on.append(window)
        if len(self._verify_on) < self._settings.verify_windows:
            if now_ms - self._planned_ms > self._settings.verify_ms_max:
                self._before = None  # As the acting planner's plans are closed unverified.
            return
        plan, before = self.plans[-1], self._before
        self._before, self._closed_on = None, window
        found = verify_gain(plan, before, self.tree, self._verify_on, self._inventory, self._lifetime_s)
        self.plans[-1] = msgspec.structs.replace(plan, cost_observed_per_s=found.cost_observed_per_s)
        if found.made_worse(self._settings.decision):
            self.plans_taken_back += 1
            homes = self.tree.home_of | homes_before([plan])
            self.tree = Configuration.of(self.tree.epoch + 1, before.brokers, before.links, homes)
            self._planned_ms, self._windows_since_plan = now_ms, 0
            for proposal in plan.proposals:
                self._muted_until_ms[proposal.planner] = now_ms + self._settings.decision.mute_ms
