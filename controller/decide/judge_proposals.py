"""Judge states and proposals: a verdict with its reason, or None if nothing objects. Changes and sends nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from regraft.controller.decide.gain_noise import MeanGain, gain_across, mean_gain
from regraft.controller.decide.judge_congestion import judge_waiting
from regraft.controller.decide.recent_changes import RecentChanges
from regraft.controller.kinds.overlay_kind import NEEDS_NO_GAIN, AnyKind, Reached
from regraft.controller.settings.decision_settings import DecisionSettings
from regraft.controller.state.hot_spots import HotSpots
from regraft.controller.state.overlay_state import OverlayState
from regraft.controller.state.overlays_in_window import brokers_elsewhere, elsewhere_text
from regraft.overlay.cut_off import CutOff
from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.schemas.plan import Proposal, Verdict
from regraft.schemas.texts import figure, time_text

# Prepare, activate, retire and one repetition: the commands of a transition to each broker.
COMMANDS_PER_BROKER = 4
CLIENTS_MORE = 1_000  # Publishers, and subscriptions while their number is unknown.
MESSAGES_PER_CLIENT_MAX = 4  # Over each link in each direction: announced, acknowledged, withdrawn, acknowledged.
COST_MIN_PER_S = 1e-9  # Avoids dividing by zero: a span without traffic has no share to save.


@dataclass(frozen=True, eq=False)
class Situation:
    """What the judge needs besides the proposals; ``kind`` is that of the state's overlay, with its caps.

    ``plan_running`` names the plan under way, else empty. ``muted_until_ms`` is by planner. ``windows_since_plan``
    counts windows that lay entirely after the last transition, None if there was none; ``transition_ended_ms`` is when
    it ended, then 0. ``price_per_s`` is the transition cost, spread over the pay-back time.
    ``subscription_lifetime_s`` is the mean life of a subscription, None if unknown. ``paused`` says who paused the
    controller and why; ``plan_in_review`` names the plan that waits for approval; both are empty otherwise. Nothing
    moves to ``maintained`` brokers. Clients of ``evacuated`` ones move away; subscribers of a tree do so only from
    brokers that are not ``leaving``, because leaving takes them along unless clients stay. ``recent`` is what plans
    have changed, and when. ``changed_since_ms`` is when traffic last changed: the state holds no window from before;
    None if no change is known. ``hot`` is what is congested and must not be loaded further. ``recent_windows`` is how
    many of the state's newest windows are considered first, None for all. ``moves_interests``: plans have moved
    subscriptions within the newest window. ``unverified`` maps brokers to the plan that has moved subscribers to them
    and is not verified yet. ``are_links_priced`` is false while all link costs are placeholders.
    """

    state: OverlayState
    now_ms: int
    kind: AnyKind
    price_per_s: float
    plan_running: str = ""
    windows_since_plan: int | None = None
    transition_ended_ms: int = 0
    muted_until_ms: Mapping[str, int] = field(default_factory=dict)
    subscription_lifetime_s: float | None = None
    paused: str = ""
    plan_in_review: str = ""
    maintained: Mapping[str, str] = field(default_factory=dict)
    evacuated: frozenset[str] = frozenset()
    leaving: frozenset[str] = frozenset()
    recent: RecentChanges = field(default_factory=RecentChanges)
    changed_since_ms: int | None = None
    hot: HotSpots = field(default_factory=HotSpots)
    recent_windows: int | None = None
    moves_interests: bool = False
    unverified: Mapping[str, str] = field(default_factory=dict)
    are_links_priced: bool = True

    @property
    def is_traffic_new(self) -> bool:
        """Return True if traffic has changed less than a mean lifetime of a subscription ago."""
        if self.changed_since_ms is None or self.memory_s is None:
            return False
        return self.state.newest.end_ms - self.changed_since_ms <= self.memory_s * 1000

    @property
    def memory_s(self) -> float | None:
        """How long windows show the same subscriptions; None with a register, as then only rates vary."""
        return None if self.kind.NEEDS_REGISTER else self.subscription_lifetime_s

    @property
    def recently(self) -> Situation | None:
        """The same situation with the recent windows only; None if that would be all of them."""
        windows = self.state.windows
        if self.recent_windows is None or self.recent_windows >= len(windows):
            return None
        state = self.kind.state_of(self.state.configuration, windows[-self.recent_windows :])
        return replace(self, state=state, recent_windows=None)


def judge_state(situation: Situation, settings: DecisionSettings) -> tuple[Verdict, str] | None:
    """Return why no decision may be made on the state at all, or None if it is fit for one."""
    window = situation.state.newest
    if situation.paused:
        return Verdict.PAUSED, situation.paused
    if situation.plan_running:
        return Verdict.PLAN_RUNNING, f"{situation.plan_running} is still running: one plan at a time"
    if situation.plan_in_review:
        return Verdict.IN_REVIEW, f"{situation.plan_in_review} waits for approval: one plan at a time"
    if not window.is_complete:
        return Verdict.INCOMPLETE_STATE, f"the window ending {time_text(window.end_ms)} is incomplete: {window.error}"
    missing = situation.kind.missing_in(situation.state)
    if missing:
        return Verdict.INCOMPLETE_STATE, f"the window ending {time_text(window.end_ms)} {missing}"
    age_ms = situation.now_ms - window.end_ms
    if abs(age_ms) > settings.window_age_ms_max:
        return Verdict.STALE_STATE, (
            f"the window ending {time_text(window.end_ms)} is {age_ms} ms old, but the limit is "
            f"{settings.window_age_ms_max} ms: check that the streaming job runs and that clocks agree"
        )
    epoch = situation.state.configuration.epoch
    elsewhere = brokers_elsewhere(window, epoch, situation.transition_ended_ms)
    if elsewhere:
        return Verdict.EPOCH_MISMATCH, (
            f"epoch {epoch} is in force, but {elsewhere_text(elsewhere)}: they may have restarted. Nothing is planned "
            "until all brokers are at one epoch (docs/protocol.md)"
        )
    if not _shows_present(situation):
        return Verdict.STALE_STATE, (
            f"the window ending {time_text(window.end_ms)} is of {window.epochs_text}, epoch {epoch} is in force"
        )
    return None


def _shows_present(situation: Situation) -> bool:
    """Return True if the newest window lies in the epoch in force, or in several and that makes no difference.

    What brokers deliver depends neither on links nor on publishers' homes; it does on where plans move subscriptions.
    So a window within which all brokers have come to the epoch in force is as good, unless a plan has moved some.
    """
    window, epoch = situation.state.newest, situation.state.configuration.epoch
    if window.epoch == epoch:
        return True
    are_all_there = window.epoch_max == epoch and all(newest == epoch for newest in window.epochs.values())
    return are_all_there and not situation.moves_interests


def is_of_transition(situation: Situation, settings: DecisionSettings) -> bool:
    """Return True if the newest window is of two epochs only because a plan was executed while it was open."""
    window = situation.state.newest
    is_old = abs(situation.now_ms - window.end_ms) > settings.window_age_ms_max
    return not is_old and window.start_ms < situation.transition_ended_ms


def judge_worth(situation: Situation, settings: DecisionSettings) -> tuple[Verdict, str] | None:
    """Return why what changes save is unknown at present, or None if it is known."""
    if not situation.are_links_priced:
        return Verdict.INCOMPLETE_STATE, (
            "no link has been measured yet, and the inventory's costs are placeholders "
            "(controller.links.estimate_unmeasured): what a change would save is unknown"
        )
    return judge_waiting(situation.state.newest, settings)


def judge_timing(proposal: Proposal, situation: Situation, settings: DecisionSettings) -> tuple[Verdict, str] | None:
    """Return why the planner must wait or this change comes too early, or None if the proposal may proceed.

    Subscribers that a plan has moved stay until its saving is known: after another move it could not be measured.
    """
    until_ms = situation.muted_until_ms.get(proposal.planner, 0)
    if situation.now_ms < until_ms:
        rest_ms = until_ms - situation.now_ms
        return Verdict.MUTED, f"{proposal.planner} is muted for {rest_ms} ms more: one of its plans had to be undone"
    seen = situation.windows_since_plan
    if seen is not None and seen < settings.cool_down_windows:
        return (
            Verdict.COOL_DOWN,
            f"{seen} windows since the last plan, but the cool-down is {settings.cool_down_windows}",
        )
    for home in (move.home_from for move in proposal.subscribers_moved if proposal.planner not in NEEDS_NO_GAIN):
        if home in situation.unverified:
            plan = situation.unverified[home]
            return Verdict.COOL_DOWN, f"{plan} has moved subscribers to {home} and has not been verified yet"
    return None


def judge_maintenance(
    proposal: Proposal, present: OverlayConfiguration, situation: Situation
) -> tuple[Verdict, str] | None:
    """Return why maintenance forbids the proposal: the broker that would get a link, place or client; or None."""
    if not situation.maintained:
        return None
    ends = list(situation.kind.additions_by(present, proposal))
    ends += [(f"client {move.client}", move.home_to) for move in proposal.moves]
    ends += [(f"subscribers of {move.home_from}", move.home_to) for move in proposal.subscribers_moved]
    for what, broker in ends:
        if broker in situation.maintained:
            return Verdict.MAINTENANCE, f"{what} would be added to {broker}: {situation.maintained[broker]}"
    return None


def gain_shares(before: Reached, after: Reached, lifetime_s: float | None) -> MeanGain:
    """Return what a change saves as a share of the cost before it, with the error that the state's spans show.

    A share does not vary with the publishing rate, so traffic that only grows or shrinks is not noise.
    """
    costs_per_s = before.costs_per_s
    saved_per_s = costs_per_s - after.costs_per_s
    return mean_gain(saved_per_s / np.maximum(costs_per_s, COST_MIN_PER_S), before.spans, lifetime_s)


def gain_error_per_s(before: Reached, after: Reached, situation: Situation) -> float | None:
    """Return the standard error of what a change saves per second, or None if the spans do not show it."""
    error = gain_shares(before, after, situation.memory_s).error * before.cost_per_s
    return error if math.isfinite(error) else None


def judge_change(
    proposal: Proposal,
    before: Reached,
    after: Reached,
    situation: Situation,
    settings: DecisionSettings,
    *,
    is_alone: bool = False,
) -> tuple[Verdict, str] | None:
    """Return why the change's gain is too small for a place in a plan, or None if it suffices.

    One threshold for links, IDs and clients: a share of the whole cost. What chance promises is charged to the plan as
    a whole (:func:`judge_chance`): small changes save together what none of them shows. A change that is to show its
    gain ``is_alone`` must exceed the noise as if it had not been selected; of k links, IDs or homes sqrt(k) times the
    noise. All users that move in one proposal count as one choice: they were selected by similar interests, not by what
    windows happened to cost. What a plan changed less than ``tabu_lifetimes`` ago is changed again only if the gain
    exceeds what chance makes of the best of many.
    """
    floor_per_s = settings.change_share_min * before.cost_per_s
    if proposal.gain_per_s <= floor_per_s:
        return (
            Verdict.GAIN_WITHIN_NOISE,
            f"saves {figure(proposal.gain_per_s)}/s, but must save at least {figure(floor_per_s)}/s",
        )
    factor, alternatives = settings.change_noise_factor if is_alone else 0.0, 1
    if _is_tabu(proposal, situation, settings):
        factor, alternatives = settings.noise_factor, situation.kind.alternatives_to(proposal)
    if not factor:
        return None
    looks = _looks(before, after, situation, factor, at_present=situation.is_traffic_new)
    return _judge_gain(looks, factor, alternatives, situation.kind.choices_in(proposal))


def _is_tabu(proposal: Proposal, situation: Situation, settings: DecisionSettings) -> bool:
    """Return True if the proposal changes again what was changed recently, on traffic like the present."""
    lifetime_s, changed_ms = situation.subscription_lifetime_s, situation.recent.latest_ms(proposal)
    if lifetime_s is None or changed_ms < 0 or changed_ms <= (situation.changed_since_ms or -1):
        return False
    return situation.state.newest.end_ms - changed_ms < settings.tabu_lifetimes * lifetime_s * 1000


def judge_chance(
    start: Reached, reached: Reached, chosen: Sequence[Proposal], situation: Situation, settings: DecisionSettings
) -> tuple[Verdict, str] | None:
    """Return why chance alone could explain the whole plan's gain, or None if it could not.

    The planner has selected the best of many changes; the best of as many worthless ones must not pass. While traffic
    is new, it suffices that the plan pays while the present subscriptions last.
    """
    alternatives, factor = max(situation.kind.alternatives_to(one) for one in chosen), settings.noise_factor
    saved_per_s = start.cost_per_s - reached.cost_per_s
    at_present = situation.is_traffic_new and _pays_while_new(saved_per_s, situation, settings)
    return _judge_gain(_looks(start, reached, situation, factor, at_present=at_present), factor, alternatives)


def _pays_while_new(saved_per_s: float, situation: Situation, settings: DecisionSettings) -> bool:
    """Return True if a plan pays its transition cost before the present subscriptions have ended, on average."""
    lifetime_s = situation.memory_s or 0.0
    return saved_per_s * lifetime_s > situation.price_per_s * settings.pay_back_within_s(lifetime_s)


def _judge_gain(
    looks: Iterator[tuple[MeanGain, str]], factor: float, alternatives: int = 1, choices: int = 1
) -> tuple[Verdict, str] | None:
    """Return why chance alone could explain a gain, or None if it exceeds chance in one of the looks.

    These are not charged as several choices: worthless gains pass in time or across publishers more rarely than nominal
    (``tests/controller/decide/test_gain_noise_replayed.py``).
    """
    refused = []
    for gain, where in looks:
        limit = gain.limit(factor, alternatives, choices)
        if gain.mean > limit:
            return None
        reason = f"saves {gain.mean:z.2%} of the cost, chance alone accounts for up to {limit:.2%} {where}"
        refused.append((limit - gain.mean, reason))
    return Verdict.GAIN_WITHIN_NOISE, min(refused)[1]


def _looks(
    before: Reached, after: Reached, situation: Situation, factor: float, *, at_present: bool
) -> Iterator[tuple[MeanGain, str]]:
    """Yield the gain in time, ``at_present`` for the present subscriptions, and across publishers if asked for.

    In time, spans that subscriptions outlive are hardly more than one observation, and a gain that grows looks like
    noise. The present subscriptions are known, so for them only what happens to be published is chance, and spans are
    independent. That a gain rests on them is no objection while traffic is new: the overlay in force was chosen for
    other traffic, so nothing speaks for it once they have ended. Costing publishers takes longest.
    """
    memory_s = situation.memory_s
    over_time = gain_shares(before, after, memory_s)
    yield over_time, f"on {over_time.freedom + 1} spans"
    if at_present:
        yield gain_shares(before, after, None), f"on {over_time.freedom + 1} spans of the present subscriptions"
    if factor and memory_s is not None and (costs := situation.kind.costs_by_publisher_per_s(before, after)):
        across = gain_across(*costs)
        yield across, f"across {across.freedom + 1} publishers"


def frailty_price_per_s(before: CutOff | None, after: CutOff | None, cost_per_s: float, weight: float) -> float:
    """Return the penalty for a change after which the worst single death cuts off more; 0 if it cuts off no more.

    A change that makes the overlay less frail earns no credit: verification would see its cost, but not the deaths it
    guards against. What deaths cut off on average needs no price: it grows with the number of brokers on the paths, and
    so mostly falls with the cost (docs/frailty.md).
    """
    if before is None or after is None:
        return 0.0
    return weight * cost_per_s * max(after.worst_share - before.worst_share, 0.0)


def frailty_text(before: CutOff | None, after: CutOff | None) -> str:
    """Describe what the worst single death and a random one would cut off, before and after; empty if unknown."""
    if before is None or after is None:
        return ""
    now, then = (f"{one.worst_share:.1%} ({one.worst_broker})" for one in (before, after))
    return (
        f"one death would cut off at most {then} of all deliveries, {now} before, "
        f"a random one {after.mean_share:.1%}, {before.mean_share:.1%} before"
    )


def transition_messages_max(kind: AnyKind, configuration: OverlayConfiguration, subscriptions: int | None) -> int:
    """Return how many messages between brokers one transition plausibly takes at most.

    Each subscription and publisher may cross each link some times, on top of what the kind needs in any case.
    """
    clients = (subscriptions or 0) + CLIENTS_MORE
    return kind.transition_messages_min(configuration) * MESSAGES_PER_CLIENT_MAX * clients


def transition_price_per_s(
    kind: AnyKind, configuration: OverlayConfiguration, control_messages_mean: float | None, pay_back_s: float
) -> float:
    """Return the cost of one transition, spread over the pay-back time, in the unit of the cost per second.

    Its messages are the commands and the mean of what brokers sent each other in earlier plans; before the first plan,
    the kind's minimum. The kind defines the cost of a message.
    """
    first = kind.transition_messages_min(configuration)
    between_brokers = first if control_messages_mean is None else control_messages_mean
    commands = COMMANDS_PER_BROKER * len(configuration.brokers)
    return (commands + between_brokers) * kind.message_cost(configuration) / pay_back_s
