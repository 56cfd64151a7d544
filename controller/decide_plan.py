"""State to at most one plan: plan, judge, choose. Pure: the same state and settings give the same decision."""

from __future__ import annotations

import random
from dataclasses import dataclass

from controller.choose_proposals import choose_proposals, plan_of
from controller.controller_settings import ControllerSettings
from controller.judge_proposals import Situation, judge_state
from controller.planner_interface import Planner
from schemas.plan import Plan, Proposal, Verdict


@dataclass(frozen=True, eq=False)
class Decision:
    """What came of one window: a plan or None, and every proposal that was refused.

    ``state_verdict`` and ``state_reason`` are set when the state as a whole was refused; then no planner was asked.
    """

    window_end_ms: int
    plan: Plan | None = None
    refused: tuple[Proposal, ...] = ()
    state_verdict: Verdict | None = None
    state_reason: str = ""


def decide_plan(situation: Situation, planner: Planner, epoch_next: int, settings: ControllerSettings) -> Decision:
    """Return the decision on the situation's newest window.

    The planner draws from a generator seeded by the settings and the window, so that a restart changes nothing.
    """
    state = situation.state
    end_ms = state.newest.end_ms
    unfit = judge_state(situation, settings.decision)
    if unfit:
        return Decision(end_ms, state_verdict=unfit[0], state_reason=unfit[1])
    rng = random.Random(f"{settings.seed}/{end_ms}")
    proposals = planner(state, settings.planner_settings(state.inventory.degree_max), rng)
    if not proposals:
        return Decision(end_ms)  # Most windows of a settled overlay: nothing to cost window by window.
    choice = choose_proposals(proposals, situation, epoch_next, settings.decision)
    plan = plan_of(choice, state) if choice.chosen else None
    return Decision(end_ms, plan, choice.refused)
