"""Decide on the newest window, once.

The decision itself belongs to :mod:`controller.decide.decide_plan`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import structlog

from regraft.controller.control_ports import EventSink
from regraft.controller.decide.decide_plan import Decision, decide_plan
from regraft.controller.decide.judge_proposals import Situation, is_of_transition
from regraft.controller.decide.loop_state import LoopState
from regraft.controller.execute.execute_plan import PlanRunner
from regraft.controller.execute.review_plans import PlanReviewer
from regraft.controller.loop.find_situation import SituationFinder
from regraft.controller.report.loop_metrics import LoopMetrics
from regraft.controller.report.report_refusals import RefusalEvents
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.controller.state.planner_interface import Planner
from regraft.overlay.inventory.members import FleetView
from regraft.schemas.event import AdaptationEvent, EventKind, Severity
from regraft.schemas.plan import Plan
from regraft.schemas.texts import name_some

log = structlog.get_logger(__name__)

NAMED_MAX = 5
ACTING, SHADOW = "acting", "shadow"


class DecideOnce:
    """Asks the acting planners for a plan, and the reviewer to begin it."""

    def __init__(
        self,
        settings: ControllerSettings,
        planners: Sequence[Planner],
        situations: SituationFinder,
        reviewer: PlanReviewer,
        runner: PlanRunner,
        timer: DecisionTimer,
        refusals: RefusalEvents,
        events: EventSink,
        metrics: LoopMetrics,
    ) -> None:
        self._settings = settings
        self._planners = planners
        self._situations = situations
        self._reviewer = reviewer
        self._runner = runner
        self._timer = timer
        self._refusals = refusals
        self._events = events
        self._metrics = metrics

    def __call__(self, state: LoopState, now_ms: int) -> None:
        """Decide unless that was done on the newest window. Shadow planners skip it if the one before was skipped."""
        newest = state.newest
        if newest is None or newest.end_ms <= state.decided_until_ms:
            return
        if self._runner.is_storing and state.plan_log.moving is None:
            return  # A verification is being stored; the next step will decide on this window.
        is_behind = 0 <= state.decided_until_ms < newest.start_ms  # Windows came while the last decision was made.
        state.decided_until_ms = newest.end_ms
        situation = self._situations.find(newest, state, now_ms)
        state.for_shadows = None if is_behind else situation
        if is_behind and state.shadows:
            self._metrics.shadow_skips.inc()
        self._reviewer.revalidate(state, situation, now_ms)
        decision = self._decide(situation, state, now_ms)
        if decision is None:
            return
        state.add_decision(decision)
        self._report(decision, now_ms, is_usual=is_of_transition(situation, self._settings.decision))
        if decision.plan is not None:
            self._reviewer.begin(decision.plan, now_ms, _estimates_text(decision.plan, state.fleet))
            state.has_begun = True

    def _decide(self, situation: Situation, state: LoopState, now_ms: int) -> Decision | None:
        """Return the decision, or None if a planner fails: one window must not end the loop, nor each that follows."""
        try:
            with self._timer.timed(state, ACTING, self._settings.planner):
                return decide_plan(situation, self._planners, state.plan_log.epoch_next, self._settings)
        except Exception as error:  # A planner may be anybody's code.
            name, count = self._settings.planner, state.errors["decision that failed"] + 1
            state.errors["decision that failed"] = count
            log.exception("planner_failed", planner=name, count=count)
            if count == 1:
                text = f"planner {name} failed; nothing is decided on that window: {type(error).__name__}: {error}"
                kind = EventKind.PLANNER_FAILED
                self._events.emit(AdaptationEvent(f"planner-{name}", kind, Severity.CRITICAL, now_ms, text))
            return None

    def _report(self, decision: Decision, now_ms: int, *, is_usual: bool) -> None:
        if decision.state_verdict is not None:
            self._metrics.refusals.labels(decision.state_verdict).inc()
        for proposal in decision.refused:
            self._metrics.refusals.labels(proposal.verdict).inc()
        event = self._refusals.about_decision(decision, now_ms, is_usual=is_usual)
        if event is not None:
            self._events.emit(event)


def _estimates_text(plan: Plan, fleet: FleetView) -> str:
    """Name the new links whose cost has not been measured yet; empty if there are none."""
    estimated = [f"{a}-{b}" for a, b in plan.links_added if fleet.is_estimate((a, b))]
    if not estimated:
        return ""
    return f"the cost of {name_some(estimated, NAMED_MAX)} is an estimate until measured"


class DecisionTimer:
    """Measures how long each decision took, by role and planner; no decision depends on it."""

    def __init__(self, stopwatch_s: Callable[[], float], metrics: LoopMetrics) -> None:
        self._stopwatch_s = stopwatch_s
        self._metrics = metrics

    @contextmanager
    def timed(self, state: LoopState, role: str, planner: str) -> Iterator[None]:
        """Record how long the block takes; ``role`` is ACTING or SHADOW."""
        began_s = self._stopwatch_s()
        yield
        duration_ms = (self._stopwatch_s() - began_s) * 1000
        self._metrics.decision_ms.labels(planner, role).observe(duration_ms)
        state.add_decision_time(f"{role}:{planner}", duration_ms)
