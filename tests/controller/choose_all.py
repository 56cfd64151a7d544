"""Judge and choose the proposals of a single planner."""

from collections.abc import Sequence

from regraft.controller.decide.choose_proposals import Choice, PlanDraft
from regraft.controller.decide.judge_proposals import Situation
from regraft.controller.settings.decision_settings import DecisionSettings
from regraft.schemas.plan import Proposal


def choose_proposals(
    proposals: Sequence[Proposal], situation: Situation, epoch_next: int, settings: DecisionSettings
) -> Choice:
    """Return the proposals that make a plan, in their order, and why the others do not."""
    draft = PlanDraft(situation, settings)
    draft.consider(proposals)
    return draft.choice(epoch_next)
