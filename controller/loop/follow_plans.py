"""The steps of the loop that concern stored plans: read them once, continue the one under way, follow a review.

Judging a plan that waits for an operator belongs to :mod:`controller.execute.review_plans`.
"""

from __future__ import annotations

from dataclasses import replace

import structlog

from regraft.controller.control_ports import EventSink, PlanStore
from regraft.controller.decide.judge_proposals import Situation
from regraft.controller.decide.loop_state import LoopState
from regraft.controller.execute.execute_plan import PlanRunner
from regraft.controller.execute.review_plans import PlanReviewer
from regraft.controller.execute.take_orders import OrderTaker
from regraft.controller.loop.begin_shadows import ShadowStarter
from regraft.controller.loop.find_situation import SituationFinder
from regraft.infra.process.stack_error import StackError
from regraft.schemas.event import AdaptationEvent, EventKind, Severity
from regraft.schemas.plan import Plan
from regraft.schemas.plan_life import LIFE

log = structlog.get_logger(__name__)


class StartLoop:
    """Tries to read members and plans, and starts the shadow planners; meanwhile the state has no plans."""

    def __init__(self, shadows: ShadowStarter, orders: OrderTaker, plans: PlanStore, events: EventSink) -> None:
        self._shadows = shadows
        self._orders = orders
        self._plans = plans
        self._events = events

    def __call__(self, state: LoopState, now_ms: int) -> None:
        """Start unless that is done. Raises StackError if a plan cannot be resumed, and as :meth:`PlanLog.record`."""
        members = None if state.has_plans else self._plans.load_members()
        plans = None if members is None else self._plans.load()
        samples = None if plans is None else self._plans.load_sample()
        if plans is None or members is None or samples is None:
            return
        state.asked = samples[-1] if samples else state.asked
        state.fleet = state.fleet.with_records(members)
        self._orders.members = state.fleet.members
        plan_log = state.plan_log
        for plan in plans:
            _check_history(plan)
            plan_log.record(plan)
        for plan in plan_log.plans:
            if plan.history:  # The plan is first stored within milliseconds of its first command.
                state.add_first_command(plan, plan.history[0].time_ms)
        state.has_plans, state.started_ms = True, now_ms
        self._shadows.begin(state)
        moving = f", {plan_log.moving.plan} is unfinished" if plan_log.moving else ""
        text = f"controller started: epoch {plan_log.present.epoch}, {len(plan_log.plans)} plans so far{moving}"
        log.info("controller_started", epoch=plan_log.present.epoch, plans=len(plan_log.plans), moving=moving)
        self._events.emit(AdaptationEvent("controller", EventKind.CONTROLLER_STARTED, Severity.INFO, now_ms, text))


def _check_history(plan: Plan) -> None:
    """Raise StackError if a plan cannot be resumed because its history does not lead to its phase."""
    last = plan.history[-1].phase if plan.history else None
    if not LIFE[plan.phase].is_final and last is not plan.phase:
        error = "is empty" if last is None else f"ends with {last}"
        raise StackError(
            f"The stored {plan.plan} is {plan.phase}, but its history {error}: it cannot be resumed. "
            "Check at the brokers which overlay is in force, then write a record without a value under its key to "
            "delete it."
        )


class AdvancePlan:
    """Takes orders, and continues the plan under way."""

    def __init__(self, orders: OrderTaker, reviewer: PlanReviewer, runner: PlanRunner) -> None:
        self._orders = orders
        self._reviewer = reviewer
        self._runner = runner

    def __call__(self, state: LoopState, now_ms: int) -> None:
        """Process orders first, so that an order can still cancel a plan."""
        self._orders.read(state.plan_log, now_ms)
        self._reviewer.cancel(state, now_ms)
        self._runner.advance(now_ms)


class FollowReview:
    """Follows the one plan that waits: begins it once it is approved, refuses it once it is stale."""

    def __init__(self, reviewer: PlanReviewer, situations: SituationFinder) -> None:
        self._reviewer = reviewer
        self._situations = situations

    def __call__(self, state: LoopState, now_ms: int) -> None:
        """Begin or refuse the plan if its review is over."""

        def situation() -> Situation | None:
            if state.newest is None:
                return None
            situation = self._situations.find(state.newest, state, now_ms)
            proposed = state.plan_log.proposed
            # The plan that this one undoes counts as running until it is rolled back.
            is_undo = proposed is not None and bool(proposed.undoes)
            return replace(situation, plan_in_review="", plan_running="" if is_undo else situation.plan_running)

        state.has_begun = self._reviewer.advance_review(state, situation, now_ms)
