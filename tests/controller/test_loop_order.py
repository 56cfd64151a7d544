"""The order of the loop's steps, and what ends them early."""

from collections.abc import Callable
from typing import Any

import pytest

from regraft.controller.decide.loop_state import LoopState
from regraft.controller.execute.execute_plan import PlanRunner
from regraft.controller.loop.control_loop import ControlLoop, LoopSteps
from regraft.controller.ports.memory_ports import MemoryPorts
from regraft.controller.settings.controller_settings import TransitionLimits
from tests.controller.test_control_loop import INVENTORY

ALL = ["start", "advance", "verify", "decide", "shadows", "show"]


class Steps:
    """Steps that only record that they were taken; ``deeds`` are what some of them do."""

    def __init__(self, **deeds: Callable[[LoopState], None]) -> None:
        self.deeds = {"start": lambda state: setattr(state, "has_plans", True)} | deeds
        self.taken: list[str] = []
        state = LoopState.at_start(INVENTORY)
        self.runner = PlanRunner(MemoryPorts().ports, state.plan_log, TransitionLimits())
        steps = LoopSteps(
            self._step("start"),
            (self._step("advance"),),
            (self._step("verify"), self._step("decide"), self._step("shadows")),
            (self._step("show"),),
        )
        self.loop = ControlLoop(state, steps, self.runner)

    def _step(self, name: str) -> Any:
        def take(state: LoopState, now_ms: int) -> None:
            self.taken.append(name)
            if name in self.deeds:
                self.deeds[name](state)

        return take


def begin(state: LoopState) -> None:
    state.has_begun = True


def test_steps_are_taken_in_their_order() -> None:
    """One after the other, and the loop's next step is not urgent."""
    steps = Steps()
    assert steps.loop.step(1) is False
    assert steps.taken == ALL


@pytest.mark.parametrize("name", ["verify", "decide"])
def test_no_further_decision_follows_a_plan_that_has_begun(name: str) -> None:
    """The plan is shown, and the loop steps again at once; the step after that decides again."""
    steps = Steps(**{name: begin})
    assert steps.loop.step(1) is True
    assert steps.taken == [*ALL[: ALL.index(name) + 1], "show"]
    steps.deeds.clear()
    steps.taken.clear()
    assert steps.loop.step(2) is False
    assert steps.taken == ALL


def test_a_loop_that_winds_down_decides_nothing() -> None:
    """What is under way continues and is shown."""
    steps = Steps(decide=begin)
    steps.loop.wind_down()
    assert steps.loop.step(1) is False
    assert steps.taken == ["start", "advance", "show"]


def test_without_the_stored_plans_nothing_is_done() -> None:
    """The start is attempted again with each step."""
    steps = Steps(start=lambda state: None)
    assert [steps.loop.step(now_ms) for now_ms in (1, 2)] == [False, False]
    assert steps.taken == ["start", "start"]


def test_a_deposed_loop_does_nothing_more() -> None:
    """From the step in which it learns of a higher term it neither decides nor shows: another controller leads."""
    steps = Steps()
    steps.deeds["advance"] = lambda state: setattr(steps.runner, "deposed_by_term", 7)
    assert steps.loop.step(1) is False
    assert steps.loop.deposed_by_term == 7
    assert steps.loop.step(2) is False
    assert steps.taken == ["start", "advance"]
