"""Find the situation to decide on: the newest windows, the plan under way, what operators have ordered."""

from __future__ import annotations

from regraft.controller.decide.judge_proposals import Situation, transition_messages_max, transition_price_per_s
from regraft.controller.decide.loop_state import LoopState
from regraft.controller.decide.place_moved import homes_filled
from regraft.controller.decide.recent_changes import RecentChanges
from regraft.controller.execute.execute_plan import PlanRunner
from regraft.controller.execute.find_lost import lost_brokers
from regraft.controller.execute.review_plans import PlanReviewer
from regraft.controller.kinds.overlay_kind import AnyKind
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.state.hot_spots import hot_spots
from regraft.controller.state.plan_log import PlanLog
from regraft.controller.windows.find_shifts import moves_interests_in
from regraft.controller.windows.read_windows import WindowReader
from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.schemas.member import MemberState


class SituationFinder:
    """Combines the state of windows, plans and orders into a situation."""

    def __init__(
        self,
        settings: ControllerSettings,
        kind: AnyKind,
        windows: WindowReader,
        reviewer: PlanReviewer,
        runner: PlanRunner,
    ) -> None:
        self._settings = settings
        self._kind = kind
        self._windows = windows
        self._reviewer = reviewer
        self._runner = runner

    def find(self, newest: ClosedWindow, state: LoopState, now_ms: int) -> Situation:
        """Return the situation at the newest window."""
        plan_log, reviewer = state.plan_log, self._reviewer
        present, ended_ms = plan_log.present, plan_log.transition_ended_ms
        kind = self._kind.over(state.fleet.inventory_over(present.brokers))
        changed_ms = state.changed_since_ms or 0
        leaving = state.fleet.in_state(MemberState.LEAVING)
        seen, horizon = self._windows.horizon(newest, state.changed_since_ms)
        windows = tuple(window.over(present.brokers) for window in seen)
        contiguous = tuple(window.over(present.brokers) for window in self._windows.contiguous(newest))
        state.horizon = horizon or state.horizon
        return Situation(
            state=kind.state_of(kind.with_homes(present, windows), windows),
            now_ms=now_ms,
            kind=kind,
            price_per_s=self.price_per_s(present, state),
            plan_running=self._plan_running(state),
            windows_since_plan=self._windows.windows_since(ended_ms) if ended_ms > changed_ms else None,
            transition_ended_ms=ended_ms,
            muted_until_ms=self._muted_until_ms(plan_log, changed_ms),
            subscription_lifetime_s=self._windows.lifetime_s,
            paused=reviewer.paused(now_ms),
            plan_in_review=plan_log.proposed.plan if plan_log.proposed else "",
            maintained=dict.fromkeys(leaving, "it is being drained") | reviewer.maintained(now_ms),
            evacuated=reviewer.evacuated(now_ms) | frozenset(leaving),
            leaving=frozenset(leaving),
            changed_since_ms=state.changed_since_ms,
            recent=RecentChanges.of(plan_log.in_force),
            hot=hot_spots(contiguous, self._settings.decision),
            recent_windows=self._windows.recent_count(newest),
            moves_interests=moves_interests_in(newest, plan_log.plans, kind),
            unverified={home: plan.plan for plan in plan_log.verifying for home in homes_filled(plan)},
            are_links_priced=bool(state.fleet.measured) or not self._settings.links.estimate_unmeasured,
        )

    def _plan_running(self, state: LoopState) -> str:
        """Name the plan under way, or what must be done before the next decision; empty if there is neither."""
        if state.plan_log.moving is not None:
            return state.plan_log.moving.plan
        if lost_brokers(state.plan_log, state.fleet):
            return "a repair"
        return "the storing of a change" if self._runner.is_busy else ""

    def price_per_s(self, overlay: OverlayConfiguration, state: LoopState) -> float:
        """Return what a transition from an overlay costs, spread over the pay-back time."""
        kind = self._kind.over(state.fleet.inventory_over(overlay.brokers))
        pay_back_s = self._settings.decision.pay_back_within_s(self._windows.lifetime_s)
        messages_mean = state.plan_log.control_messages_mean(
            transition_messages_max(kind, overlay, self._windows.subscription_count)
        )
        return transition_price_per_s(kind, overlay, messages_mean, pay_back_s)

    def _muted_until_ms(self, plan_log: PlanLog, changed_ms: int) -> dict[str, int]:
        refused = self._reviewer.muted_until_ms(plan_log)
        undone = plan_log.muted_until_ms(self._settings.decision.mute_ms, changed_ms)
        return {planner: max(refused.get(planner, 0), undone.get(planner, 0)) for planner in refused | undone}
