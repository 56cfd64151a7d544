"""Follow the review of the plan that waits for an operator: execute it once it is approved, refuse it once it is stale.

Judging it belongs to :mod:`controller.execute.review_plans`.
"""

from __future__ import annotations

from dataclasses import replace

from regraft.controller.decide.judge_proposals import Situation
from regraft.controller.decide.loop_state import LoopState
from regraft.controller.execute.execute_plan import PlanRunner
from regraft.controller.execute.review_plans import PlanReviewer
from regraft.controller.execute.take_orders import OrderTaker
from regraft.controller.loop.find_situation import SituationFinder


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
    """Follows the one plan that waits."""

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
