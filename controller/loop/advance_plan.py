"""Advance what has begun: process people's orders, then continue the plan under way.

In: orders, answers of brokers. Out: commands, stored plans, events.
"""

from __future__ import annotations

from regraft.controller.decide.loop_state import LoopState
from regraft.controller.execute.execute_plan import PlanRunner
from regraft.controller.execute.review_plans import PlanReviewer
from regraft.controller.execute.take_orders import OrderTaker


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
