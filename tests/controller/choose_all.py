"""Judge and choose the proposals of a single planner."""

from collections.abc import Sequence

from controller.decide.choose_proposals import Choice, PlanDraft
from controller.decide.judge_proposals import Situation
from controller.decision_settings import DecisionSettings
from schemas.plan import Proposal


def choose_proposals(
    proposals: Sequence[Proposal], situation: Situation, epoch_next: int, settings: DecisionSettings
) -> Choice:
    """Which of the proposals make a plan, in their order, and why the others do not."""
    draft = PlanDraft(situation, settings)
    draft.consider(proposals)
    return draft.choice(epoch_next)
