"""Turn a state into at most one plan: plan, judge, choose. Pure: the same state and settings give the same decision."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from regraft.controller.decide.choose_proposals import PlanDraft, plan_of
from regraft.controller.decide.judge_proposals import Situation, judge_state
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.controller.state.planner_interface import Planner
from regraft.schemas.plan import Plan, Proposal, Verdict


@dataclass(frozen=True, eq=False)
class Decision:
    """The outcome of one window: a plan or None, and every refused proposal.

    ``state_verdict`` and ``state_reason`` are set if the state as a whole was refused; then no planner was asked.
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

    It considers the recent windows first. If these lead to no plan, it considers all windows, unless what it found on
    the recent ones would not pay for a transition: then hardly anything does on all of them, and the search costs as
    much again. A plan found on all windows must also save on the recent ones: traffic may be changing too slowly for a
    change to be detected.
    """
    unusable = judge_state(situation, settings.decision)
    if unusable:
        return Decision(situation.state.newest.end_ms, state_verdict=unusable[0], state_reason=unusable[1])
    recently = situation.recently
    if recently is None:
        return _decision(situation, planners, epoch_next, settings)
    on_recent = _decision(recently, planners, epoch_next, settings)
    if on_recent.plan is not None or any(one.verdict is Verdict.GAIN_BELOW_PRICE for one in on_recent.refused):
        return on_recent
    on_all = _decision(situation, planners, epoch_next, settings)
    if on_all.plan is None or _saves(on_all.plan, recently):
        return on_all
    reason = "saves over the whole horizon, not on its recent windows"
    refused = (
        structs.replace(one, verdict=Verdict.GAIN_WITHIN_NOISE, verdict_reason=reason) for one in on_all.plan.proposals
    )
    return Decision(on_all.window_end_ms, refused=(*refused, *on_all.refused))


def _decision(
    situation: Situation, planners: Sequence[Planner], epoch_next: int, settings: ControllerSettings
) -> Decision:
    """Return the decision on all windows of the situation.

    Evacuations ordered by an operator come first. The planners follow in order, each on the overlay that the accepted
    proposals so far lead to. Their random generator is seeded by the settings and the window, so a restart changes
    nothing.
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
    taken_along = frozenset() if kind.inventory.clients_stay else situation.leaving
    left, subscribers_max = situation.evacuated - taken_along, settings.decision.users_per_plan_max
    draft.consider(kind.evacuate_subscribers(draft.state, avoided, left, subscribers_max))
    for planner in planners:
        draft.consider(planner(draft.state, context, rng))
    if draft.is_empty:
        return Decision(end_ms)  # True of most windows of a settled overlay: skip costing each window.
    choice = draft.choice(epoch_next)
    plan = plan_of(choice, state) if choice.chosen else None
    return Decision(end_ms, plan, choice.refused)


def _saves(plan: Plan, situation: Situation) -> bool:
    """Return True if a plan lowers the cost of the situation's windows, or if clients are being evacuated."""
    before = reached = situation.kind.reached(situation.state)
    for proposal in plan.proposals:
        reached = reached.after(proposal)
    return reached.cost_per_s < before.cost_per_s or bool(situation.evacuated)
