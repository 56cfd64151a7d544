"""Judge proposals one after the other on the tree that the accepted ones leave, and make one plan of those."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from controller.controller_settings import DecisionSettings
from controller.judge_proposals import Situation, judge_calm, judge_caps, judge_gain, judge_state
from controller.planner_interface import OverlayState
from overlay.configuration import Configuration, NotATreeError
from overlay.tree_costs import TreeCosts, as_swaps
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
    proposals: Sequence[Proposal], situation: Situation, epoch_next: int, settings: DecisionSettings
) -> Choice:
    """Return which of the proposals make a plan, in their order, and why the others do not.

    Two changes may each be good and together be worth nothing or cut the tree, so each is costed and judged on the
    tree after the ones accepted before it. A plan is one transition however many links it exchanges, so its price is
    held against what all accepted proposals save together.
    """
    state = situation.state
    reached = state.window_tree_costs
    before_per_s = reached.cost_per_s
    about_state = judge_state(situation, settings)
    chosen: list[Proposal] = []
    refused: list[Proposal] = []
    for proposal in proposals:
        priced = msgspec.structs.replace(proposal, price_per_s=situation.price_per_s)
        against = about_state or judge_calm(priced, situation, settings) or _judge_size(priced, chosen, settings)
        if against is None:
            judged, after = _judge_on(reached, priced, situation, settings, is_first=not chosen)
            if after is not None:
                reached = after
                chosen.append(judged)
                continue
            against = judged.verdict, judged.verdict_reason
        refused.append(_refused(priced, *against))
    if chosen and before_per_s - reached.cost_per_s <= situation.price_per_s:
        saved_per_s = before_per_s - reached.cost_per_s
        reason = f"all of the plan saves {saved_per_s:.4g}/s, its price is {situation.price_per_s:.4g}/s"
        refused = [*(_refused(proposal, Verdict.GAIN_BELOW_PRICE, reason) for proposal in chosen), *refused]
        chosen, reached = [], state.window_tree_costs
    target = Configuration(epoch_next, state.configuration.brokers, reached.links)
    return Choice(tuple(chosen), tuple(refused), target, before_per_s, reached.cost_per_s)


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


def _judge_size(
    proposal: Proposal, chosen: Sequence[Proposal], settings: DecisionSettings
) -> tuple[Verdict, str] | None:
    """Return why the proposal is too much for this plan, None when it is not."""
    links = sum(len(one.links_added) for one in chosen)
    if links + len(proposal.links_added) <= settings.changes_per_plan_max:
        return None
    return Verdict.CHANGES_PER_PLAN, (
        f"{links} links are exchanged already and {len(proposal.links_added)} more would be, "
        f"the limit of a plan is {settings.changes_per_plan_max}"
    )


def _judge_on(
    reached: TreeCosts, proposal: Proposal, situation: Situation, settings: DecisionSettings, *, is_first: bool
) -> tuple[Proposal, TreeCosts | None]:
    """Return the proposal as costed on a tree with its verdict there, and the tree after it when it is accepted."""
    after = reached.copy()
    try:
        for swap in as_swaps(reached, proposal.links_removed, proposal.links_added):
            after.apply(swap)
    except (NotATreeError, KeyError) as error:
        reason = f"broker {error} is not in the overlay" if isinstance(error, KeyError) else str(error)
        against: tuple[Verdict, str] | None = (Verdict.NOT_A_TREE, reason)
    else:
        proposal = msgspec.structs.replace(
            proposal, cost_before_per_s=reached.cost_per_s, cost_after_per_s=after.cost_per_s
        )
        gains_per_s = [float(gain) for gain in reached.costs_per_s - after.costs_per_s]
        against = judge_caps(reached, after, situation.degree_max) or judge_gain(
            proposal, gains_per_s, situation, settings
        )
    if against is None:
        reason = f"saves {proposal.gain_per_s:.4g}/s, the transition's price is {proposal.price_per_s:.4g}/s"
        return msgspec.structs.replace(proposal, verdict=Verdict.ACCEPTED, verdict_reason=reason), after
    if not is_first:
        against = Verdict.CONFLICT, f"after the earlier changes: {against[1]}"
    return _refused(proposal, *against), None


def _refused(proposal: Proposal, verdict: Verdict, reason: str) -> Proposal:
    return msgspec.structs.replace(proposal, verdict=verdict, verdict_reason=reason)
