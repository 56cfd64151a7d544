"""Which plans were made to save cost, and which of them have saved any.

Plans that repair, admit or let go brokers, take another plan back or only relieve something were not made to save.
"""

from __future__ import annotations

from collections.abc import Iterable

from regraft.controller.kinds.overlay_kind import NEEDS_NO_GAIN
from regraft.schemas.live_view import ShownPlan
from regraft.schemas.plan import MEMBER_PLANNERS, Plan, PlanPhase

AnyPlan = Plan | ShownPlan


def serves_members(plan: AnyPlan) -> bool:
    """Return True for a plan made because brokers died, joined or left."""
    return any(proposal.planner in MEMBER_PLANNERS for proposal in plan.proposals)


def is_to_save(plan: AnyPlan) -> bool:
    """Return True for a plan made to save cost."""
    is_relief = all(proposal.planner in NEEDS_NO_GAIN for proposal in plan.proposals) and bool(plan.proposals)
    return not plan.undoes and not serves_members(plan) and not is_relief


def has_saved(plan: AnyPlan) -> bool:
    """Return True for a completed plan that was to save, and whose windows afterwards show that it does.

    A plan that could not be verified has not.
    """
    if plan.phase != PlanPhase.COMPLETED or not is_to_save(plan) or plan.cost_observed_per_s is None:
        return False
    gains = [proposal.gain_observed_per_s for proposal in plan.proposals]
    judged = [gain for gain in gains if gain is not None]
    return (
        sum(judged) > 0 if judged and len(judged) == len(gains) else plan.cost_observed_per_s < plan.cost_before_per_s
    )


def began_after(plans: Iterable[AnyPlan], time_ms: int | None) -> list[AnyPlan]:
    """Return the plans that were made at or after a time; none without one."""
    if time_ms is None:
        return []
    return [plan for plan in plans if plan.history and plan.history[0].time_ms >= time_ms]
