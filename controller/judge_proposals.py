"""Give every proposal a verdict and a reason, against the state it was made from. Changes nothing, sends nothing."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from controller.controller_settings import DecisionSettings
from controller.planner_interface import OverlayState
from overlay.configuration import Configuration, NotATreeError
from overlay.inventory import Inventory
from overlay.swap_cost import LinkSwap, SwapCosts
from schemas.plan import Proposal, Verdict

COMMANDS_PER_BROKER = 4  # Prepare and activate and retire and one repetition: what a transition tells each broker.


@dataclass(frozen=True, eq=False)
class Situation:
    """What the judge looks at besides the proposals.

    ``plan_running`` names the plan that is carried out or checked, else empty. ``muted_until_ms`` is by planner.
    ``windows_since_plan`` counts windows that lay wholly after the last transition, None when there was none.
    ``price_per_s`` is what a transition costs, spread over the pay-back time.
    """

    state: OverlayState
    now_ms: int
    degree_max: int
    price_per_s: float
    plan_running: str = ""
    windows_since_plan: int | None = None
    muted_until_ms: Mapping[str, int] = field(default_factory=dict)


def judge_proposals(proposals: Sequence[Proposal], situation: Situation, settings: DecisionSettings) -> list[Proposal]:
    """Return the proposals in their order, each with its price, verdict and reason."""
    about_state = judge_state(situation, settings)
    judged = []
    for proposal in proposals:
        priced = msgspec.structs.replace(proposal, price_per_s=situation.price_per_s)
        verdict, reason = (
            about_state
            or _judge_shape(priced, situation)
            or _judge_calm(priced, situation, settings)
            or judge_gain(priced, situation.state.window_swap_costs, settings)
            or (Verdict.ACCEPTED, f"saves {priced.gain_per_s:.4g}/s for {priced.price_per_s:.4g}/s")
        )
        judged.append(msgspec.structs.replace(priced, verdict=verdict, verdict_reason=reason))
    return judged


def judge_state(situation: Situation, settings: DecisionSettings) -> tuple[Verdict, str] | None:
    """Return why nothing at all may be decided on the state, None when it is fit to decide on."""
    window = situation.state.newest
    if situation.plan_running:
        return Verdict.PLAN_RUNNING, f"plan {situation.plan_running} is not over: one plan at a time"
    if not window.is_complete:
        return Verdict.INCOMPLETE_STATE, f"window ending {window.end_ms} is incomplete: {window.fault}"
    age_ms = situation.now_ms - window.end_ms
    if abs(age_ms) > settings.window_age_ms_max:
        return Verdict.STALE_STATE, (
            f"window ending {window.end_ms} is {age_ms} ms old, limit {settings.window_age_ms_max} ms: "
            "is the streaming job running and do the clocks agree?"
        )
    epoch = situation.state.configuration.epoch
    if window.epoch != epoch:
        return Verdict.STALE_STATE, (
            f"window ending {window.end_ms} is of epochs {window.epoch_min} to {window.epoch_max}, present is {epoch}"
        )
    return None


def gain_noise_per_s(costs_by_window: Sequence[SwapCosts], swap: LinkSwap) -> float:
    """Return the standard error of the swap's gain over the windows, infinite with a single window."""
    if len(costs_by_window) < 2:
        return math.inf
    gains = [costs.gain_per_s(swap) for costs in costs_by_window]
    return statistics.stdev(gains) / math.sqrt(len(gains))


def judge_gain(
    proposal: Proposal, costs_by_window: Sequence[SwapCosts], settings: DecisionSettings
) -> tuple[Verdict, str] | None:
    """Return why the proposal's gain is too small, None when it exceeds price, dead band and noise."""
    gain_per_s = proposal.gain_per_s
    if gain_per_s <= proposal.price_per_s:
        return Verdict.GAIN_BELOW_PRICE, f"saves {gain_per_s:.4g}/s, its price is {proposal.price_per_s:.4g}/s"
    floor_per_s = settings.gain_share_min * proposal.cost_before_per_s
    if gain_per_s <= floor_per_s:
        return Verdict.GAIN_WITHIN_NOISE, f"saves {gain_per_s:.4g}/s, the dead band is {floor_per_s:.4g}/s"
    noise_per_s = settings.noise_factor * gain_noise_per_s(
        costs_by_window, LinkSwap(proposal.link_removed, proposal.link_added)
    )
    if gain_per_s <= noise_per_s:
        return Verdict.GAIN_WITHIN_NOISE, (
            f"saves {gain_per_s:.4g}/s, the noise over {len(costs_by_window)} windows is {noise_per_s:.4g}/s"
        )
    return None


def transition_price_per_s(
    configuration: Configuration, inventory: Inventory, control_messages_mean: float | None, pay_back_s: float
) -> float:
    """Return what one transition costs, spread over the pay-back time, in the unit of the cost per second.

    Its messages are the commands and what the brokers sent each other in earlier plans, before the first plan the
    2(n-1) markers of a drain; each is taken to cost as much as a notification on a mean link of the tree.
    """
    brokers = len(configuration.brokers)
    between_brokers = 2 * (brokers - 1) if control_messages_mean is None else control_messages_mean
    link_cost_mean = statistics.fmean(inventory.cost_of_link(*pair) for pair in configuration.links)
    return (COMMANDS_PER_BROKER * brokers + between_brokers) * link_cost_mean / pay_back_s


def _judge_shape(proposal: Proposal, situation: Situation) -> tuple[Verdict, str] | None:
    present = situation.state.configuration
    try:
        after = present.replaced(present.epoch + 1, [proposal.link_removed], [proposal.link_added])
    except (NotATreeError, ValueError) as error:
        return Verdict.NOT_A_TREE, str(error)
    for end in proposal.link_added:
        links = len(after.neighbours[end])
        # A broker that is above the cap already may keep its links, it may only not get more.
        if links > situation.degree_max and links > len(present.neighbours[end]):
            return Verdict.DEGREE, f"{end} would have {links} links, the limit is {situation.degree_max}"
    return None


def _judge_calm(proposal: Proposal, situation: Situation, settings: DecisionSettings) -> tuple[Verdict, str] | None:
    until_ms = situation.muted_until_ms.get(proposal.planner, 0)
    if situation.now_ms < until_ms:
        rest_ms = until_ms - situation.now_ms
        return Verdict.MUTED, f"{proposal.planner} is muted for {rest_ms} ms more: a plan of it had to be undone"
    seen = situation.windows_since_plan
    if seen is not None and seen < settings.cool_down_windows:
        return Verdict.COOL_DOWN, f"{seen} windows since the last plan, {settings.cool_down_windows} are waited for"
    return None
