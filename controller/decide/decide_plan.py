"""State to at most one plan: plan, judge, choose. Pure: the same state and settings give the same decision."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from regraft.controller.controller_settings import ControllerSettings
from regraft.controller.decide.choose_proposals import PlanDraft, plan_of
from regraft.controller.decide.judge_proposals import Situation, judge_state
from regraft.controller.state.planner_interface import Planner
from regraft.schemas.plan import Plan, Proposal, Verdict


@dataclass(frozen=True, eq=False)
class Decision:
    """The outcome of one window: a plan or None, and every refused proposal.

    ``state_verdict`` and ``state_reason`` are set when the state as a whole was refused; then no planner was asked.
    """

    window_end_ms: int
    plan: Plan | None = None
    refused: tuple[Proposal, ...] = ()
    state_verdict: Verdict | None = None
    state_reason: str = ""


def decide_plan(
    situation: Situation, planners: Sequence[Planner], epoch_next: int, settings: ControllerSettings
) -> Decision:
    """Return the decision on the situation's newest window.

    Recent windows are looked at first; where they lead to no plan, all of them are. What is found then is only made
    where it also saves on the recent ones: traffic may be changing too slowly for it to be noticed.
    """
    unfit = judge_state(situation, settings.decision)
    if unfit:
        return Decision(situation.state.newest.end_ms, state_verdict=unfit[0], state_reason=unfit[1])
    recently = situation.recently
    if recently is None:
        return _decision(situation, planners, epoch_next, settings)
    soon = _decision(recently, planners, epoch_next, settings)
    if soon.plan is not None:
        return soon
    later = _decision(situation, planners, epoch_next, settings)
    if later.plan is None or _saves(later.plan, recently):
        return later
    reason = "saves over the whole horizon, not on its recent windows"
    refused = (
        structs.replace(one, verdict=Verdict.GAIN_WITHIN_NOISE, verdict_reason=reason) for one in later.plan.proposals
    )
    return Decision(later.window_end_ms, refused=(*refused, *later.refused))


def _decision(
    situation: Situation, planners: Sequence[Planner], epoch_next: int, settings: ControllerSettings
) -> Decision:
    """Return the decision on all windows of the situation.

    Clients that a person wants away from a broker go first. The planners are asked in their order, each about the
    overlay that the accepted proposals of those before it lead to. They draw from a generator seeded by the settings
    and the window, so that a restart changes nothing.
    """
    state = situation.state
    end_ms = state.newest.end_ms
    rng = random.Random(f"{settings.seed}/{end_ms}")
    bounds = situation.kind.planner_context(settings.proposals_max, settings.decision)
    context = replace(bounds, hot=situation.hot)
    draft = PlanDraft(situation, settings.decision)
    moves_max = situation.kind.moves_max(settings.decision)
    kind, avoided = situation.kind, situation.maintained
    draft.consider(kind.evacuate(state, avoided, situation.evacuated, moves_max))
    draft.consider(kind.evacuate_subscribers(draft.state, avoided, situation.evacuated - situation.leaving))
    for planner in planners:
        draft.consider(planner(draft.state, context, rng))
    if draft.is_empty:
        return Decision(end_ms)  # Most windows of a settled overlay: nothing to cost window by window.
    choice = draft.choice(epoch_next)
    plan = plan_of(choice, state) if choice.chosen else None
    return Decision(end_ms, plan, choice.refused)


def _saves(plan: Plan, situation: Situation) -> bool:
    """Return True if a plan lowers the cost of the situation's windows; clients that a person evacuates go anyway."""
    before = reached = situation.kind.reached(situation.state)
    for proposal in plan.proposals:
        reached = reached.after(proposal)
    return reached.cost_per_s < before.cost_per_s or bool(situation.evacuated)
