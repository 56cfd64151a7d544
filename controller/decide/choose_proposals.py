"""Judge proposals one by one on the overlay that the accepted ones lead to, and combine these in one plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec

from regraft.controller.decide.judge_congestion import judge_congestion
from regraft.controller.decide.judge_proposals import (
    Situation,
    frailty_price_per_s,
    frailty_text,
    gain_error_per_s,
    judge_chance,
    judge_change,
    judge_maintenance,
    judge_state,
    judge_timing,
    judge_worth,
)
from regraft.controller.kinds.overlay_kind import (
    NEEDS_NO_GAIN,
    HomeError,
    Reached,
    RingIdError,
    needs_no_gain,
)
from regraft.controller.settings.decision_settings import DecisionSettings
from regraft.controller.state.overlay_state import OverlayState
from regraft.overlay.overlay_configuration import LinkError, OverlayConfiguration
from regraft.schemas.agent_names import client_of
from regraft.schemas.plan import ClientMove, HomeMove, Plan, PlanPhase, Proposal, Verdict
from regraft.schemas.texts import figure, name_some

REACHED_NAMED_MAX = 5
REFUSED_KEPT_MAX = 32  # Refused proposals stored with a plan, so that people can inspect them.
REFUSED_MOVES_KEPT_MAX = 24  # Moves kept of each: on a ring one may have hundreds, and a plan is stored at every phase.


@dataclass(frozen=True, eq=False)
class Choice:
    """The proposals that make a plan (each costed on top of those before it), and the others with their refusals."""

    chosen: tuple[Proposal, ...]
    refused: tuple[Proposal, ...]
    target: OverlayConfiguration
    cost_before_per_s: float
    cost_predicted_per_s: float
    gain_error_per_s: float | None = None


class PlanDraft:
    """Collects proposals, one planner after the other; :meth:`choice` decides which of them make a plan.

    Two changes may each be good but together worthless, or cut the tree. So each is costed and judged on the overlay
    after the ones accepted before it, whichever planner proposed it. A plan is one transition however much it changes,
    so its transition cost and the dead band are compared with what all accepted proposals save together.
    """

    def __init__(self, situation: Situation, settings: DecisionSettings) -> None:
        self._situation = situation
        self._settings = settings
        self._about_state = judge_state(situation, settings)
        self._about_worth = judge_worth(situation, settings)
        self._reached: Reached | None = None  # Set at the first proposal.
        self._chosen: list[Proposal] = []
        self._refused: list[Proposal] = []

    @property
    def state(self) -> OverlayState:
        """The state with the configuration that the accepted proposals lead to, for the next planner."""
        return self._situation.state if self._reached is None else self._reached.state

    @property
    def is_empty(self) -> bool:
        """Return True if nothing has been proposed."""
        return not self._chosen and not self._refused

    def consider(self, proposals: Sequence[Proposal]) -> None:
        """Judge the proposals in order and accept those that pass every check."""
        if proposals and self._reached is None:
            self._reached = self._start
        for proposal in proposals:
            kept = _without_avoided(proposal, self._situation)
            self._consider(msgspec.structs.replace(kept, price_per_s=self._situation.price_per_s))

    def choice(self, epoch_next: int) -> Choice:
        """Return the proposals that make the plan, in order, and the refused ones with the reasons.

        If chance alone could explain what all accepted ones save, only those are kept that show their gain alone:
        others may hide what is certain.
        """
        start, accepted = self._start, self._chosen
        against = self._judge_whole(start) if accepted else None
        if against is not None and against[0] is Verdict.GAIN_WITHIN_NOISE:
            self._reached, self._chosen = start, []
            for proposal in accepted:
                self._consider(proposal, is_alone=True)
            against = self._judge_whole(start) if self._chosen else None
        reached, chosen, refused = self._reached or start, self._chosen, self._refused
        if against is not None:
            reached, chosen, refused = start, [], [*(_refused(one, *against) for one in chosen), *refused]
        chosen = _with_frailty(chosen, start, reached)
        target = reached.configuration.at_epoch(epoch_next)
        error_per_s = gain_error_per_s(start, reached, self._situation) if chosen else None
        return Choice(tuple(chosen), tuple(refused), target, start.cost_per_s, reached.cost_per_s, error_per_s)

    @cached_property
    def _start(self) -> Reached:
        """The present overlay, costed at the first proposal only: costing every window is expensive."""
        reached: Reached = self._situation.kind.reached(self._situation.state)
        return reached

    def _consider(self, proposal: Proposal, *, is_alone: bool = False) -> None:
        assert self._reached is not None
        needs_gain = proposal.planner not in NEEDS_NO_GAIN
        against = (
            self._about_state
            or (self._about_worth if needs_gain else None)
            or judge_timing(proposal, self._situation, self._settings)
            or judge_maintenance(proposal, self._reached.configuration, self._situation)
            or _judge_size(proposal, self._chosen, self._situation, self._settings)
        )
        if against is None:
            judged, after = self._judge_on(self._reached, proposal, is_alone=is_alone)
            if after is not None:
                self._reached = after
                self._chosen.append(judged)
                return
            proposal, against = judged, (judged.verdict, judged.verdict_reason)
        self._refused.append(_refused(proposal, *against))

    def _judge_on(self, reached: Reached, proposal: Proposal, *, is_alone: bool) -> tuple[Proposal, Reached | None]:
        """Return the proposal with its cost here and its verdict, and the overlay after it (None if refused)."""
        situation = self._situation
        try:
            after: Reached = reached.after(proposal)
        except LinkError as error:
            against: tuple[Verdict, str] | None = (Verdict.NOT_A_TREE, str(error))
        except KeyError as error:
            against = (Verdict.NOT_A_TREE, f"broker {error} is not in the overlay")
        except HomeError as error:
            against = (Verdict.WRONG_HOME, str(error))
        except RingIdError as error:
            against = (Verdict.WRONG_ID, str(error))
        else:
            proposal = msgspec.structs.replace(
                proposal,
                cost_before_per_s=reached.cost_per_s,
                cost_after_per_s=after.cost_per_s,
                gain_error_per_s=gain_error_per_s(reached, after, situation),
            )
            against = situation.kind.judge_caps(reached, after)
            if against is None and proposal.planner not in NEEDS_NO_GAIN:
                against = judge_change(proposal, reached, after, situation, self._settings, is_alone=is_alone)
                against = against or judge_congestion(situation.kind, situation.hot, reached, after)
                against = against or self._judge_frailty(proposal.gain_per_s, reached, after)
        if against is None:
            return msgspec.structs.replace(proposal, verdict=Verdict.ACCEPTED), after
        if self._chosen:
            against = Verdict.CONFLICT, f"after the earlier changes: {against[1]}"
        return _refused(proposal, *against), None

    def _judge_frailty(self, saved_per_s: float, before: Reached, after: Reached) -> tuple[Verdict, str] | None:
        """Return why the saving does not justify the added frailty, or None if it does."""
        cut_off, then = before.state.cut_off, after.state.cut_off
        price_per_s = frailty_price_per_s(cut_off, then, before.cost_per_s, self._settings.frailty_weight)
        if saved_per_s > price_per_s:
            return None
        return Verdict.FRAILTY, (
            f"saves {figure(saved_per_s)}/s, but {frailty_text(cut_off, then)}, which counts as {figure(price_per_s)}/s"
        )

    def _judge_whole(self, start: Reached) -> tuple[Verdict, str] | None:
        """Return why the accepted proposals together are not worth a plan, or None if they are or need no gain."""
        reached = self._reached
        if reached is None or needs_no_gain(self._chosen):
            return None
        saved_per_s = start.cost_per_s - reached.cost_per_s
        price_per_s, floor_per_s = self._situation.price_per_s, self._settings.gain_share_min * start.cost_per_s
        saves = f"all of the plan saves {figure(saved_per_s)}/s"
        if saved_per_s <= price_per_s:
            return Verdict.GAIN_BELOW_PRICE, f"{saves}, but its transition cost is {figure(price_per_s)}/s"
        if saved_per_s <= floor_per_s:
            return Verdict.GAIN_WITHIN_NOISE, f"{saves}, but must save at least {figure(floor_per_s)}/s"
        against = judge_chance(start, reached, self._chosen, self._situation, self._settings)
        return against or self._judge_frailty(saved_per_s - price_per_s, start, reached)


def _with_frailty(chosen: list[Proposal], start: Reached, reached: Reached) -> list[Proposal]:
    """Return the accepted proposals; the last one's verdict reason describes the frailty after all changes."""
    frailty = frailty_text(start.state.cut_off, reached.state.cut_off) if chosen else ""
    if not frailty:
        return chosen
    reason = f"with all changes, {frailty}" if len(chosen) > 1 else frailty
    return [*chosen[:-1], msgspec.structs.replace(chosen[-1], verdict_reason=reason)]


def _without_avoided(proposal: Proposal, situation: Situation) -> Proposal:
    """Drop moves to brokers in maintenance, unless there are no others: the rest may be as good without them."""
    kept = tuple(move for move in proposal.moves if move.home_to not in situation.maintained)
    if not kept or len(kept) == len(proposal.moves):
        return proposal
    left_out = f"{len(proposal.moves) - len(kept)} moves to brokers in maintenance left out"
    return msgspec.structs.replace(proposal, moves=kept, reason=f"{proposal.reason}; {left_out}")


def plan_of(choice: Choice, state: OverlayState, undoes: str = "") -> Plan:
    """Return the plan, not yet begun, that leads from the state's configuration to the choice's target.

    The plan is named after the epoch it leads to, so the same decisions give the same names.
    """
    present, target = state.configuration, choice.target
    plan = Plan(
        plan=f"plan-{target.epoch}",
        epoch_from=present.epoch,
        epoch_to=target.epoch,
        window_end_ms=state.newest.end_ms,
        proposals=choice.chosen,
        links_removed=(),
        links_added=(),
        links_target=(),
        cost_before_per_s=choice.cost_before_per_s,
        cost_predicted_per_s=choice.cost_predicted_per_s,
        phase=PlanPhase.PREPARING,
        history=(),
        undoes=undoes,
        moves=moves_of(choice.chosen),
        subscribers_moved=subscribers_moved_of(choice.chosen),
        refused=tuple(_shortened(one) for one in choice.refused[:REFUSED_KEPT_MAX]),
        sample_share=state.sample_share,
        gain_error_per_s=choice.gain_error_per_s,
    )
    return target.as_target(plan, present)


def recheck_plan(plan: Plan, situation: Situation) -> tuple[Verdict, str] | None:
    """Return why a plan made on earlier windows can no longer be executed, or None if it can.

    It must fit the present overlay, keep the caps, avoid what is congested or in maintenance, and save more than its
    price. Noise and dead band are not checked again: a plan that passed them once stays valid while it saves more than
    its transition cost. Call this only if the state shows what the plan is worth, so if neither ``judge_state`` nor
    ``judge_worth`` objects.
    """
    start: Reached = situation.kind.reached(situation.state)
    reached = start
    for proposal in plan.proposals:
        against = judge_maintenance(proposal, reached.configuration, situation)
        against = against or judge_together(proposal.moves, situation.state.newest.movable)
        if against is None:
            try:
                after: Reached = reached.after(proposal)
            except (LinkError, HomeError, RingIdError, KeyError) as error:
                return Verdict.CONFLICT, f"the overlay has changed: {error}"
            against = situation.kind.judge_caps(reached, after)
            if proposal.planner not in NEEDS_NO_GAIN:
                against = against or judge_congestion(situation.kind, situation.hot, reached, after)
            reached = after
        if against is not None:
            return against
    saved_per_s, price_per_s = start.cost_per_s - reached.cost_per_s, situation.price_per_s
    if saved_per_s <= price_per_s and not needs_no_gain(plan.proposals):
        return (
            Verdict.GAIN_BELOW_PRICE,
            f"it saves {figure(saved_per_s)}/s now, but its transition cost is {figure(price_per_s)}/s",
        )
    return None


def _shortened(refused: Proposal) -> Proposal:
    moves, id_moves = refused.moves[:REFUSED_MOVES_KEPT_MAX], refused.id_moves[:REFUSED_MOVES_KEPT_MAX]
    return msgspec.structs.replace(refused, moves=moves, id_moves=id_moves)


def moves_of(proposals: Sequence[Proposal]) -> tuple[ClientMove, ...]:
    """Return the clients whose home differs after all proposals, applied in the order given; sorted by client."""
    homes: dict[str, tuple[str, str]] = {}
    for proposal in proposals:
        for move in proposal.moves:
            first, _ = homes.get(move.client, (move.home_from, ""))
            homes[move.client] = (first, move.home_to)
    return tuple(ClientMove(client, old, new) for client, (old, new) in sorted(homes.items()) if old != new)


def subscribers_moved_of(proposals: Sequence[Proposal]) -> tuple[HomeMove, ...]:
    """Return where each broker's subscribers are after all proposals, applied in the order given; sorted by broker."""
    homes: dict[str, str] = {}
    for proposal in proposals:
        moved = {move.home_from: move.home_to for move in proposal.subscribers_moved}
        homes = {first: moved.get(now, now) for first, now in ({one: one for one in moved} | homes).items()}
    return tuple(HomeMove(first, now) for first, now in sorted(homes.items()) if first != now)


def _judge_size(
    proposal: Proposal, chosen: Sequence[Proposal], situation: Situation, settings: DecisionSettings
) -> tuple[Verdict, str] | None:
    """Return why the proposal may not join this plan (limits of a plan, clients that stay), or None.

    A reassignment of ring IDs has no limit: it is one change however many brokers it involves.
    """
    links, more_links = sum(len(one.links_added) for one in chosen), len(proposal.links_added)
    if more_links and links + more_links > settings.changes_per_plan_max:
        return Verdict.CHANGES_PER_PLAN, (
            f"the plan already exchanges {links} links, and this would add {more_links}, but the limit is "
            f"{settings.changes_per_plan_max}"
        )
    limit, clients = situation.kind.moves_max(settings), situation.state.configuration.CLIENTS
    if proposal.moves and situation.kind.inventory.clients_stay:
        limit, clients = settings.users_per_plan_max, "subscribers"
        against = judge_staying(proposal.moves, situation.state.newest.movable, situation.state.newest.reaches)
        if against is not None:
            return against
    moves, more_moves = sum(len(one.moves) for one in chosen), len(proposal.moves)
    if more_moves and moves + more_moves > limit:
        return Verdict.CHANGES_PER_PLAN, (
            f"the plan already moves {moves} {clients}, and this would add {more_moves}, but the limit is {limit}"
        )
    return _judge_subscribers(proposal, chosen, situation, settings) if proposal.subscribers_moved else None


def _judge_subscribers(
    proposal: Proposal, chosen: Sequence[Proposal], situation: Situation, settings: DecisionSettings
) -> tuple[Verdict, str] | None:
    """Return why the proposal's subscribers may not move (clients stay, counts unknown, limit of a plan), or None."""
    if situation.kind.inventory.clients_stay:
        return Verdict.CLIENTS_STAY, "subscribers of these brokers stay where they connect"
    counts = situation.state.newest.subscribers_at
    if counts is None:
        return (
            Verdict.INCOMPLETE_STATE,
            "the number of subscribers at each broker is unknown: there is no register of clients",
        )
    emptied = {move.home_from for one in chosen for move in one.subscribers_moved}
    more = {move.home_from for move in proposal.subscribers_moved} - emptied
    count, more_count = (sum(counts.get(broker, 0) for broker in brokers) for brokers in (emptied, more))
    if count + more_count > settings.users_per_plan_max:
        return Verdict.CHANGES_PER_PLAN, (
            f"the plan already moves {count} subscribers, and this would add {more_count}, but the limit "
            f"is {settings.users_per_plan_max} (controller.decision.users_per_plan_max)"
        )
    return None


def _refused(proposal: Proposal, verdict: Verdict, reason: str) -> Proposal:
    return msgspec.structs.replace(proposal, verdict=verdict, verdict_reason=reason)


def judge_staying(
    moves: Sequence[ClientMove], movable: Mapping[str, str], reaches: Mapping[str, Collection[str]]
) -> tuple[Verdict, str] | None:
    """Return why these clients may not move although some do: one stays, or would be in two places; or None.

    ``movable`` maps the subscribers that may move to their homes, ``reaches`` their clients to the brokers to which
    agents can take them, if these are known.
    """
    if any(move.client not in movable for move in moves):
        reason = "clients of these brokers stay where they connect: choose a planner that exchanges links"
        return Verdict.CLIENTS_STAY, reason
    for move in moves:
        reached = reaches.get(client_of(move.client))
        if reached and move.home_to not in reached:
            names = name_some(list(reached), REACHED_NAMED_MAX)
            text = f"the agent of {client_of(move.client)} cannot take it to {move.home_to}: it reaches only {names}"
            return Verdict.CLIENTS_STAY, text
    return judge_together(moves, movable)


def judge_together(moves: Sequence[ClientMove], movable: Mapping[str, str]) -> tuple[Verdict, str] | None:
    """Return which client would have subscriptions in two places, or None.

    An agent takes a client along with all its subscriptions. Cost O(subscribers that may move).
    """
    names = {move.client: move for move in moves if move.client in movable}
    targets = {(client_of(name), move.home_from): move.home_to for name, move in names.items()}
    left = {home for _, home in targets}
    for name, home in movable.items() if names else ():
        client, move = client_of(name) if home in left else "", names.get(name)
        home_to = targets.get((client, home))
        if home_to is not None and (move is None or move.home_to != home_to):
            at = home if move is None else move.home_to
            return Verdict.CONFLICT, f"{client} would be at {home_to}, but its subscription {name} at {at}"
    return None
