"""The control loop: read state, continue the plan under way, verify, decide, show, one step at a time.

Level-triggered: each step looks at what there is (windows, plans, answers) and does what is missing, so a restarted
controller needs no special start. Time comes in as an argument and everything else through ports.
:mod:`controller.loop.compose_loop` puts the steps together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from regraft.controller.decide.loop_state import LoopState
from regraft.controller.execute.execute_plan import PlanRunner

Step = Callable[[LoopState, int], None]  # Takes the loop's state, which it may change, and the time in ms.


@dataclass(frozen=True)
class LoopSteps:
    """The parts of one step of the loop, in order.

    ``start`` reads what was stored; until it has succeeded, nothing else is done. ``decide`` are the steps that may
    begin something: they are skipped once a plan has begun, and while the loop winds down.
    """

    start: Step
    advance: tuple[Step, ...]
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
        """Return True if one of our plans has brokers between two configurations."""
        return self._runner.is_busy or self.state.plan_log.moving is not None

    @property
    def deposed_by_term(self) -> int:
        """The higher term that brokers have heard of, else 0; once there is one, this loop does nothing any more."""
        return self._runner.deposed_by_term

    @property
    def is_deposed_by_one(self) -> bool:
        """Return True if a single broker, or the brokers of one agent, have named that term."""
        return self._runner.is_deposed_by_one

    def doubt_single_terms(self) -> None:
        """Believe no single broker, nor one agent's brokers alone, that another controller leads."""
        self._runner.believes_one = False

    def step(self, now_ms: int) -> bool:
        """Do what is due now; return True if the next step should follow at once.

        A plan decided in one step is executed from the next, so that its times are those of the execution. Nothing is
        done once it is known that another controller leads (``deposed_by_term``).
        """
        state, steps = self.state, self._steps
        now_ms += state.behind_ms
        if self.deposed_by_term:
            return False
        steps.start(state, now_ms)
        if not state.has_plans:
            return False
        for step in steps.advance:
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
