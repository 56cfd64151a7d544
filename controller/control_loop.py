"""The control loop: read state, carry on the plan under way, verify, decide, show. One step at a time, at its own pace.

Level-triggered: each step looks at what is there (windows, plans, answers) and does what is missing, so a restarted
controller needs no other way in. Time comes in as an argument and everything else through ports. Which steps there are
is put together in :mod:`controller.compose_loop`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from regraft.controller.execute.carry_out_plan import PlanRunner
from regraft.controller.loop_state import LoopState

Step = Callable[[LoopState, int], None]  # Takes the loop's state, which it may change, and the time in ms.


@dataclass(frozen=True)
class LoopSteps:
    """What one step of the loop consists of, in this order.

    ``start`` reads what was stored; before it could, nothing else is done. ``decide`` are the steps that may begin
    something: none is taken any more when a plan has begun, nor when the loop winds down.
    """

    start: Step
    carry_on: tuple[Step, ...]
    decide: tuple[Step, ...]
    show: tuple[Step, ...]


class ControlLoop:
    """One controller of one overlay."""

    def __init__(self, state: LoopState, steps: LoopSteps, runner: PlanRunner) -> None:
        self.state = state
        self._steps = steps
        self._runner = runner

    def wind_down(self) -> None:
        """Start nothing new; a plan under way continues, so keep stepping while ``is_transition_running``."""
        self.state.is_winding_down = True

    @property
    def is_transition_running(self) -> bool:
        """Return True if brokers are between two configurations because of a plan of ours."""
        return self._runner.is_busy or self.state.plan_log.moving is not None

    @property
    def deposed_by_term(self) -> int:
        """The higher term that brokers have heard of, 0 when there is none: with one, this loop does nothing more."""
        return self._runner.deposed_by_term

    def step(self, now_ms: int) -> bool:
        """Do what is due now; return True if the next step should follow at once.

        A plan that is decided in one step is executed from the next, so its times are those of the deed. Nothing is
        done once it is known that another controller leads (``deposed_by_term``).
        """
        state, steps = self.state, self._steps
        if self.deposed_by_term:
            return False
        steps.start(state, now_ms)
        if not state.has_plans:
            return False
        for step in steps.carry_on:
            step(state, now_ms)
            if self._runner.deposed_by_term:
                return False
        state.has_begun = False
        for step in () if state.is_winding_down else steps.decide:
            step(state, now_ms)
            if state.has_begun:
                break
        for step in steps.show:
            step(state, now_ms)
        return state.has_begun
