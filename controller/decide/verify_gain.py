"""Verify an executed plan on the windows after it: compare the predicted gain with the observed one.

In: the plan, both configurations and complete windows that lay entirely in the new epoch. Out: a Verification. Starting
its rollback belongs to the control loop.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from regraft.controller.decide.gain_noise import mean_gain
from regraft.controller.decide.place_moved import CameFrom, FollowedMoves, MovedSubscribers
from regraft.controller.kinds.overlay_kind import AnyKind, Reached
from regraft.controller.settings.decision_settings import DecisionSettings
from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.state.find_homes import homes_in
from regraft.controller.state.overlay_state import cut_spans
from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.schemas.agent_names import client_of, publishing_client
from regraft.schemas.plan import ClientMove, IdMove, Plan, PlanPhase, Proposal
from regraft.schemas.texts import figure

UNDO_PLANNER = "undo"
MISSED_SHARE = 0.5  # A plan that saves less than this share of the predicted gain is reported as missed.


@dataclass(frozen=True)
class Verification:
    """The costs of the plan's overlay and of the one before it on the same windows, per second.

    ``cost_counted_per_s`` is the sum of the brokers' own counters, None if they do not report it. ``noise_per_s`` is
    the standard error of the gain over the windows, infinite for a single window.
    """

    cost_observed_per_s: float
    cost_without_per_s: float
    cost_counted_per_s: float | None
    noise_per_s: float
    gain_predicted_per_s: float
    price_per_s: float

    @property
    def gain_per_s(self) -> float:
        """What the plan saves on the windows after it."""
        return self.cost_without_per_s - self.cost_observed_per_s

    @property
    def error_per_s(self) -> float | None:
        """The standard error of the gain, or None if a single window does not give one."""
        return self.noise_per_s if math.isfinite(self.noise_per_s) else None

    @property
    def is_missed(self) -> bool:
        """Return True if the plan saves much less than predicted, or less than its transition cost."""
        return self.gain_per_s < max(MISSED_SHARE * self.gain_predicted_per_s, self.price_per_s)

    def made_worse(self, settings: DecisionSettings) -> bool:
        """Return True if the plan's loss exceeds noise, dead band and the cost of undoing it."""
        noise_per_s = settings.noise_factor * self.noise_per_s if math.isfinite(self.noise_per_s) else 0.0
        dead_band_per_s = settings.gain_share_min * self.cost_without_per_s
        return -self.gain_per_s > max(noise_per_s, dead_band_per_s, self.price_per_s)

    @property
    def text(self) -> str:
        """The result in one sentence, for people."""
        counted = (
            "" if self.cost_counted_per_s is None else f", by brokers' counters {figure(self.cost_counted_per_s)}/s"
        )
        return (
            f"predicted gain {figure(self.gain_predicted_per_s)}/s, observed {figure(self.gain_per_s)}/s "
            f"(cost {figure(self.cost_observed_per_s)}/s instead of {figure(self.cost_without_per_s)}/s{counted})"
        )


def verify_gain(
    plan: Plan,
    before: OverlayConfiguration,
    after: OverlayConfiguration,
    windows: Sequence[ClosedWindow],
    kind: AnyKind,
    lifetime_s: float | None = None,
    moved: MovedSubscribers | None = None,
) -> Verification:
    """Return how the plan does on the windows. Raises ValueError without a window, or for one that cannot be costed.

    ``before`` and ``after`` hold the homes of the clients that the plan moved; a user that has moved elsewhere since
    has its present home in both. ``lifetime_s`` is the mean life of a subscription, None if unknown: windows share the
    subscriptions that live longer. ``moved`` are the subscribers of a tree that the plan moved; they are moved back if
    the windows report their deliveries.
    """
    if not windows:
        raise ValueError(f"{plan.plan} cannot be verified without windows")
    observed = [kind.cost_per_s(after, window) for window in windows]
    undone = windows if moved is None else moved.before(windows)
    before = before if moved is None else _published_before(before, moved.publishers(windows))
    without = [kind.cost_per_s(before, window) for window in undone]
    gains = [old - new for old, new in zip(without, observed, strict=True)]
    verification = [kind.counted_cost_per_s(window) for window in windows]
    counted = [cost for cost in verification if cost is not None]
    return Verification(
        cost_observed_per_s=statistics.fmean(observed),
        cost_without_per_s=statistics.fmean(without),
        cost_counted_per_s=statistics.fmean(counted) if counted else None,
        noise_per_s=mean_gain(gains, cut_spans(windows), lifetime_s).error,
        gain_predicted_per_s=plan.cost_before_per_s - plan.cost_predicted_per_s,
        price_per_s=max((proposal.price_per_s for proposal in plan.proposals), default=0.0),
    )


def _published_before(before: OverlayConfiguration, moves: Sequence[ClientMove]) -> OverlayConfiguration:
    """Return the overlay with publishers at the homes that these moves leave."""
    homes = {move.client: move.home_from for move in moves}
    return before.with_homes({**before.home_of, **homes}) if homes else before


def plan_undoing(
    plan: Plan,
    before: OverlayConfiguration,
    after: OverlayConfiguration,
    epoch_next: int,
    verification: Verification,
    newest: ClosedWindow,
    came_from: CameFrom = lambda home_from, home_to: (),
) -> Plan:
    """Return the plan that leads back to the overlay and homes before ``plan``, at a new epoch.

    A user goes back if the newest window still shows it where the plan moved it; one that has left or moved by itself
    is skipped. Subscribers that it moved as a group go back by name if they are still there: ``came_from`` names those
    at a broker (second) that were at another one (first) before.
    """
    moves = _moves_back(plan, newest, came_from)
    proposal = _proposal_back(plan, verification, moves)
    undo = msgspec.structs.replace(
        plan,
        plan=f"plan-{epoch_next}",
        epoch_from=plan.epoch_to,
        epoch_to=epoch_next,
        window_end_ms=newest.end_ms,
        proposals=(proposal,),
        cost_before_per_s=verification.cost_observed_per_s,
        cost_predicted_per_s=verification.cost_without_per_s,
        phase=PlanPhase.PREPARING,
        history=(),
        undoes=plan.plan,
        cost_observed_per_s=None,
        control_messages=0,
        gain_error_per_s=verification.error_per_s,
        moves=moves,
        subscribers_moved=(),
        refused=(),
    )
    return before.as_target(undo, after)


def _proposal_back(plan: Plan, verification: Verification, moves: tuple[ClientMove, ...]) -> Proposal:
    return Proposal(
        planner=UNDO_PLANNER,
        links_removed=plan.links_added,
        links_added=plan.links_removed,
        cost_before_per_s=verification.cost_observed_per_s,
        cost_after_per_s=verification.cost_without_per_s,
        price_per_s=verification.price_per_s,
        reason=f"undoes {plan.plan}: {verification.text}",
        verdict_reason="the plan made things worse",
        moves=moves,
        id_moves=tuple(IdMove(move.broker, move.id_to, move.id_from) for move in plan.id_moves),
    )


def _moves_back(plan: Plan, newest: ClosedWindow, came_from: CameFrom) -> tuple[ClientMove, ...]:
    moves = [ClientMove(move.client, move.home_to, move.home_from) for move in plan.moves]
    if newest.interests is not None:
        homes = homes_in(newest.interests, (move.client for move in moves))
        moves = [move for move in moves if homes.get(move.client) == move.home_from]
    for group in plan.subscribers_moved:
        names = came_from(group.home_from, group.home_to)
        moves += [ClientMove(name, group.home_to, group.home_from) for name in names]
    return tuple(sorted(moves))


def observed_gains_per_s(
    plan: Plan,
    before: OverlayConfiguration,
    windows: Sequence[ClosedWindow],
    kind: AnyKind,
    moved: MovedSubscribers | None = None,
) -> list[float | None]:
    """Return what each proposal of the plan saves on the windows after it, applied in order from ``before``.

    All are None if brokers do not report the subscribers that moved. A client that has since moved elsewhere by itself
    counts for no proposal, nor does a subscriber that has come to a broker since. What a client beside an agent
    publishes counts with it.
    """
    moved = moved or MovedSubscribers(plan.epoch_to, plan.subscribers_moved)
    if not moved.are_reported(windows):
        return [None] * len(plan.proposals)
    left_out = windows[-1].strayed | moved.names | windows[-1].movable.keys()
    groups, published = FollowedMoves(moved), {move.client: move for move in moved.publishers(windows)}
    before = _published_before(before, tuple(published.values()))
    reached: Reached = kind.reached(kind.state_of(before, moved.before(windows)))
    gains: list[float | None] = []
    for proposal in plan.proposals:
        moves = tuple(move for move in proposal.moves if move.client not in left_out)
        clients = {client_of(move.client) for move in proposal.moves} if published else ()
        moves += tuple(move for name, move in published.items() if publishing_client(name) in clients)
        after: Reached = reached.after(msgspec.structs.replace(proposal, moves=moves, subscribers_moved=()))
        placed = groups.after(proposal, after.state.windows)
        if placed is not after.state.windows:
            after = kind.reached(kind.state_of(after.state.configuration, placed))
        gains.append(reached.cost_per_s - after.cost_per_s)
        reached = after
    return gains
