"""Choose among accepted proposals and make one plan of them, judging each again on the tree the earlier ones leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from controller.controller_settings import DecisionSettings
from controller.judge_proposals import judge_gain
from controller.planner_interface import OverlayState
from overlay.configuration import Configuration, NotATreeError
from overlay.swap_cost import LinkSwap
from schemas.plan import Plan, PlanPhase, Proposal, Verdict


@dataclass(frozen=True, eq=False)
class Choice:
    """What was chosen: the proposals of the plan (costed one on top of the other), all others with their refusal."""

    chosen: tuple[Proposal, ...]
    refused: tuple[Proposal, ...]
    target: Configuration
    cost_before_per_s: float
    cost_predicted_per_s: float


def choose_proposals(
    state: OverlayState, judged: Sequence[Proposal], epoch_next: int, degree_max: int, settings: DecisionSettings
) -> Choice:
    """Return the accepted proposals that go together, best first, at most ``changes_per_plan_max``.

    Two swaps may each be good and together be worth nothing or cut the tree, so each is costed and checked again on
    the tree after the ones chosen before it.
    """
    refused = [proposal for proposal in judged if proposal.verdict is not Verdict.ACCEPTED]
    accepted = [proposal for proposal in judged if proposal.verdict is Verdict.ACCEPTED]
    accepted.sort(key=lambda proposal: (-proposal.gain_per_s, proposal.link_removed, proposal.link_added))
    before_per_s = state.swap_costs.cost_per_s
    chosen: list[Proposal] = []
    reached = state
    for proposal in accepted:
        if len(chosen) == settings.changes_per_plan_max:
            reason = f"{len(chosen)} changes are chosen already, the limit of a plan"
            refused.append(_refused(proposal, Verdict.CHANGES_PER_PLAN, reason))
            continue
        following, result = _added(reached, proposal, degree_max, settings)
        if following is None:
            refused.append(result)
        else:
            reached = following
            chosen.append(result)
    after_per_s = chosen[-1].cost_after_per_s if chosen else before_per_s
    target = Configuration(epoch_next, state.configuration.brokers, reached.configuration.links)
    return Choice(tuple(chosen), tuple(refused), target, before_per_s, after_per_s)


def plan_of(choice: Choice, state: OverlayState, undoes: str = "") -> Plan:
    """Return the plan that leads from the state's configuration to the target of the choice, not yet begun.

    The plan is named by the epoch it leads to, so the same decisions give the same names.
    """
    present, target = set(state.configuration.links), set(choice.target.links)
    return Plan(
        plan=f"plan-{choice.target.epoch}",
        epoch_from=state.configuration.epoch,
        epoch_to=choice.target.epoch,
        window_end_ms=state.newest.end_ms,
        proposals=choice.chosen,
        links_removed=tuple(sorted(present - target)),
        links_added=tuple(sorted(target - present)),
        links_target=choice.target.links,
        cost_before_per_s=choice.cost_before_per_s,
        cost_predicted_per_s=choice.cost_predicted_per_s,
        phase=PlanPhase.PREPARING,
        history=(),
        undoes=undoes,
    )


def _added(
    reached: OverlayState, proposal: Proposal, degree_max: int, settings: DecisionSettings
) -> tuple[OverlayState, Proposal] | tuple[None, Proposal]:
    """Return the state after one more proposal and the proposal as costed there, or None and its refusal."""
    swap = LinkSwap(proposal.link_removed, proposal.link_added)
    tree = reached.configuration
    try:
        cost_after_per_s = reached.swap_costs.cost_after_per_s(swap)
        after = Configuration.of(tree.epoch, tree.brokers, (set(tree.links) - {swap.removed}) | {swap.added})
    except NotATreeError as error:
        return None, _refused(proposal, Verdict.CONFLICT, f"after the earlier changes: {error}")
    for end in swap.added:
        if len(tree.neighbours[end]) < len(after.neighbours[end]) and len(after.neighbours[end]) > degree_max:
            reason = (
                f"after the earlier changes {end} would have {len(after.neighbours[end])} links, limit {degree_max}"
            )
            return None, _refused(proposal, Verdict.CONFLICT, reason)
    costed = msgspec.structs.replace(
        proposal, cost_before_per_s=reached.swap_costs.cost_per_s, cost_after_per_s=cost_after_per_s
    )
    too_small = judge_gain(costed, reached.window_swap_costs, settings)
    if too_small:
        return None, _refused(proposal, Verdict.CONFLICT, f"after the earlier changes it {too_small[1]}")
    return reached.with_configuration(after), costed


def _refused(proposal: Proposal, verdict: Verdict, reason: str) -> Proposal:
    return msgspec.structs.replace(proposal, verdict=verdict, verdict_reason=reason)
