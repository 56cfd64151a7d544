"""The two-epoch transition of one broker: prepare, activate, drain, retire, or abort.

In: commands of the controller, END markers, publishers that leave, neighbours that die. Out: effects. Which messages
there are and where they go besides belongs to :mod:`producers.broker_core`, the tables to
:mod:`producers.broker_routing`.

The protocol is architecture.md, section 6. Tables of epoch k+1 are derived from those of k where the way to a
subscription's home is the same in both trees, and built by subscriptions that travel over the new tree where not. A
publisher that moves is told to leave when its old home is to activate; that home stays in epoch k until the publisher
has said that it has handed over all, so that nothing of it is stamped k+1 there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from overlay.configuration import Configuration, link
from producers.broker_messages import (
    Answer,
    Deliver,
    Effect,
    End,
    Notification,
    PublisherLeaves,
    PublisherTaken,
    Send,
)
from producers.broker_routing import BrokerRouting, ProtocolError
from producers.routing_tables import LOCAL, RoutingTables
from schemas.command import Command, CommandPhase, CommandResult, Outcome
from schemas.plan import ClientMove

EARLY_MESSAGES_MAX = 100_000  # Control messages of an epoch that this broker has not prepared yet.


class BrokerPhase(StrEnum):
    """Where a broker is in a transition."""

    STEADY = "steady"
    PREPARING = "preparing"
    PREPARED = "prepared"
    DRAINING = "draining"
    DRAINED = "drained"


@dataclass(slots=True)
class Transition:
    """The plan under way at this broker; ``moves`` by publisher."""

    plan: str
    epoch_from: int
    epoch_to: int
    waiting_for: set[str] = field(default_factory=set)
    is_prepared: bool = False
    is_active: bool = False
    is_drained_told: bool = False
    control_messages: int = 0
    moves: Mapping[str, ClientMove] = field(default_factory=dict)
    leaving: set[str] | None = None  # Publishers that must still leave before this broker is active.


class BrokerTransition(BrokerRouting):
    """Routing tables of one broker and the plan under way there; at most two epochs are live."""

    def __init__(self, broker: str, configuration: Configuration) -> None:
        super().__init__(broker, configuration)
        self.epoch = configuration.epoch
        self.transition: Transition | None = None
        self.held: deque[Deliver] = deque()
        self._early_overflowed = False
        self._epoch_aborted_max = -1

    @property
    def phase(self) -> BrokerPhase:
        """Where this broker is in a transition."""
        if self.transition is None:
            return BrokerPhase.STEADY
        if not self.transition.is_active:
            return BrokerPhase.PREPARED if self.transition.is_prepared else BrokerPhase.PREPARING
        return BrokerPhase.DRAINED if self.transition.is_drained_told else BrokerPhase.DRAINING

    def lose_peer(self, peer: str, now_ms: float) -> list[Effect]:
        """Take note that a neighbour is gone for good, after all that it had sent; return what is to be done.

        Its flows have ended and its answers are not waited for, so that those who are left can go on in both epochs.
        What it held, and what had to cross it, is lost with it.
        """
        self.lost_peers.add(peer)
        for tables in self.tables.values():
            tables.lose_peer(peer)
        for known in self.advertisements.values():
            known.unanswered.discard(peer)
        names = {name for tables in self.tables.values() for name in tables.entries}
        return self._settle(sorted(names | set(self.locals)), now_ms) + self._release_held() + self._pass_end_on(now_ms)

    def _take_early(self, epoch: int, now_ms: float) -> list[Effect]:
        """Take what came for an epoch before it was prepared; nothing unless messages are kept."""
        return []

    def _drop_early(self) -> None:
        """Forget what came for epochs that were aborted; nothing unless messages are kept."""

    def _take_postponed(self, now_ms: float) -> list[Effect]:
        """Take what waited for the transition to be over; nothing unless requests are kept."""
        return []

    # --- what is held back -------------------------------------------------------------------------------------------

    def _must_hold(self, notification: Notification) -> bool:
        """Tell whether what its publisher published in an older epoch may still be on its way here."""
        return any(
            not self._flow_has_ended(tables, notification)
            for epoch, tables in self.tables.items()
            if epoch < notification.epoch
        )

    def _flow_has_ended(self, tables: RoutingTables, notification: Notification) -> bool:
        move = None if self.transition is None else self.transition.moves.get(notification.publisher)
        home = notification.home if move is None else move.home_from
        # At its home then, a broker has stamped all of an epoch that it has left behind.
        return self.epoch > tables.epoch if home == self.broker else tables.flow_has_ended(home)

    def _release_held(self) -> list[Effect]:
        released: list[Effect] = []
        kept: deque[Deliver] = deque()
        for delivery in self.held:
            if self._must_hold(delivery.notification):
                kept.append(delivery)
            else:
                released.append(delivery)
        self.held = kept
        return released

    # --- commands ----------------------------------------------------------------------------------------------------

    def _obey(self, command: Command, now_ms: float) -> list[Effect]:
        match command.phase:
            case CommandPhase.PREPARE:
                return self._prepare(command, now_ms)
            case CommandPhase.ACTIVATE:
                return self._activate(command, now_ms)
            case CommandPhase.RETIRE:
                return self._retire(command, now_ms)
            case CommandPhase.ABORT:
                return self._abort(command, now_ms)

    def _prepare(self, command: Command, now_ms: float) -> list[Effect]:
        if command.epoch_to in self.tables:
            under_way = self.transition
            if under_way is not None and not under_way.is_prepared:
                return []  # The answer follows when the subscriptions have settled.
            return [self._answer(command, Outcome.PREPARED, now_ms)]
        reason = self._reason_to_refuse_prepare(command)
        if not reason:
            try:
                configuration = self._target_of(command)
            except ValueError as error:
                reason = str(error)
        if reason:
            return [self._answer(command, Outcome.REFUSED, now_ms, reason)]
        moves = {move.client: move for move in command.moves}
        moved = {name: move.home_to for name, move in moves.items()}
        self.tables[command.epoch_to] = RoutingTables(self.broker, configuration, moved)
        for peer in self.lost_peers:
            self.tables[command.epoch_to].lose_peer(peer)
        self.transition = Transition(command.plan, command.epoch_from, command.epoch_to, moves=moves)
        older = self.tables[self.epoch]
        effects = self._derive_later(older, older.entries.values())
        self.transition.waiting_for = {
            name
            for name in {*self.tables[command.epoch_to].entries, *self.locals, *self._own_unconfirmed()}
            if not self._is_ready(name)
        }
        return effects + self._on_settled(now_ms) + self._take_early(command.epoch_to, now_ms)

    def _reason_to_refuse_prepare(self, command: Command) -> str:
        if command.epoch_to <= self._epoch_aborted_max:
            return f"epoch {command.epoch_to} was aborted"
        if command.epoch_from != self.epoch or len(self.tables) > 1:
            return f"holds epoch {self.epoch}, not {command.epoch_from}, with tables of {sorted(self.tables)}"
        if self._early_overflowed:
            self._early_overflowed = False
            return f"more than {EARLY_MESSAGES_MAX} messages came before the prepare"
        for move in command.moves:
            # A publisher that has left meanwhile does no harm; one at another home would be cut off.
            known = self.advertisements.get(move.client)
            if known is not None and known.home != move.home_from:
                return f"publisher {move.client} is at {known.home}, not at {move.home_from}"
            if move.home_to not in self.tables[self.epoch].configuration.neighbours:
                return f"publisher {move.client} cannot move to {move.home_to}: it is not in the overlay"
        return ""

    def _target_of(self, command: Command) -> Configuration:
        """Return the configuration that a prepare asks for; raise ValueError when it cannot be or is another one."""
        target = self.tables[self.epoch].configuration.replaced(
            command.epoch_to,
            [link(a, b) for a, b in command.links_removed],
            [link(a, b) for a, b in command.links_added],
        )
        if command.digest != target.digest:
            raise ValueError(f"the target's digest is {target.digest} here, {command.digest} in the command")
        return target

    def _own_unconfirmed(self) -> set[str]:
        return {name for name, known in self._unconfirmed_advertisements.items() if known.told_by == LOCAL}

    def _is_ready(self, name: str) -> bool:
        """Tell whether a subscription or publisher no longer keeps this broker from being prepared."""
        if name in self._unconfirmed_advertisements:
            return False
        local = self.locals.get(name)
        if local is not None and local.confirmed_ms is None and local.cancelled_ms is None:
            return False
        return self._is_settled(name, max(self.tables))

    def _on_settled(self, now_ms: float) -> list[Effect]:
        under_way = self.transition
        if under_way is None or under_way.is_prepared:
            return []
        under_way.waiting_for = {name for name in under_way.waiting_for if not self._is_ready(name)}
        if under_way.waiting_for:
            return []
        under_way.is_prepared = True
        return [self._result(under_way.plan, CommandPhase.PREPARE, under_way.epoch_to, Outcome.PREPARED, now_ms, "")]

    def _activate(self, command: Command, now_ms: float) -> list[Effect]:
        under_way = self.transition
        if self.epoch >= command.epoch_to:
            answers: list[Effect] = [self._answer(command, Outcome.ACTIVATED, now_ms)]
            if under_way is None or under_way.is_drained_told:
                answers.append(self._answer(command, Outcome.DRAINED, now_ms))
            return answers
        if under_way is None or under_way.epoch_to != command.epoch_to or not under_way.is_prepared:
            reason = f"not prepared for epoch {command.epoch_to}"
            return [self._answer(command, Outcome.REFUSED, now_ms, reason)]
        if under_way.leaving is not None:
            return []  # The answer follows when the publishers have left.
        here = {name for name, known in self.advertisements.items() if known.home == self.broker}
        under_way.leaving = here.intersection(under_way.moves)
        if not under_way.leaving:
            return self._switch(under_way, now_ms)
        return [PublisherLeaves(name, under_way.moves[name].home_to) for name in sorted(under_way.leaving)]

    def _see_leave(self, publisher: str, now_ms: float) -> list[Effect]:
        """Take note that a publisher hands over nothing more here; the last one that had to leave lets us switch."""
        under_way = self.transition
        if under_way is None or not under_way.leaving:
            return []
        under_way.leaving.discard(publisher)
        return [] if under_way.leaving else self._switch(under_way, now_ms)

    def _switch(self, under_way: Transition, now_ms: float) -> list[Effect]:
        """Stamp the new epoch from now on, and take over the publishers that come here."""
        under_way.is_active = True
        self.epoch = under_way.epoch_to
        answer = self._result(under_way.plan, CommandPhase.ACTIVATE, under_way.epoch_to, Outcome.ACTIVATED, now_ms, "")
        coming = [name for name, move in under_way.moves.items() if move.home_to == self.broker]
        taken = [PublisherTaken(name) for name in sorted(coming)]
        return [answer, *taken, *self._release_held(), *self._pass_end_on(now_ms)]

    def _pass_end_on(self, now_ms: float) -> list[Effect]:
        """Send END over each old link whose other old links have all ended, and tell when all have."""
        under_way = self.transition
        if under_way is None or not under_way.is_active:
            return []
        old = self.tables[under_way.epoch_from]
        effects: list[Effect] = []
        for peer in old.neighbours:
            if peer not in old.ends_sent and set(old.neighbours) - {peer} <= old.ends_received:
                old.ends_sent.add(peer)
                effects.append(Send(peer, End(old.epoch)))
        if old.is_drained and not under_way.is_drained_told:
            under_way.is_drained_told = True
            effects.append(
                self._result(under_way.plan, CommandPhase.ACTIVATE, under_way.epoch_to, Outcome.DRAINED, now_ms, "")
            )
        return effects

    def _retire(self, command: Command, now_ms: float) -> list[Effect]:
        under_way = self.transition
        is_its_plan = under_way is not None and under_way.epoch_to == command.epoch_to
        if self.epoch >= command.epoch_to and not is_its_plan:
            return [self._answer(command, Outcome.RETIRED, now_ms)]
        if under_way is None or not is_its_plan or not under_way.is_drained_told:
            reason = f"not drained for epoch {command.epoch_to}"
            return [self._answer(command, Outcome.REFUSED, now_ms, reason)]
        if self.held:
            raise ProtocolError(f"{self.broker} is drained but holds {len(self.held)} deliveries")
        for publisher, home in self.tables[under_way.epoch_to].moved.items():
            if publisher in self.advertisements:
                self.advertisements[publisher].home = home
        self.tables[under_way.epoch_to].moved.clear()
        answer = self._answer(command, Outcome.RETIRED, now_ms)
        return [*self._drop_tables(under_way.epoch_from, now_ms), answer]

    def _abort(self, command: Command, now_ms: float) -> list[Effect]:
        if self.epoch >= command.epoch_to:
            reason = f"epoch {command.epoch_to} is active already"
            return [self._answer(command, Outcome.REFUSED, now_ms, reason)]
        self._epoch_aborted_max = max(self._epoch_aborted_max, command.epoch_to)
        self._drop_early()
        answer = self._answer(command, Outcome.ABORTED, now_ms)
        if command.epoch_to not in self.tables:
            return [answer]
        return [*self._drop_tables(command.epoch_to, now_ms), answer]

    def _drop_tables(self, epoch: int, now_ms: float) -> list[Effect]:
        """Forget an epoch; whatever waited for it no longer does."""
        names = sorted(self.tables.pop(epoch).entries)
        self.transition = None
        effects = self._settle([*names, *sorted(set(self.locals) - set(names))], now_ms)
        return effects + self._take_postponed(now_ms)

    # --- answers -----------------------------------------------------------------------------------------------------

    def _answer(self, command: Command, outcome: Outcome, now_ms: float, reason: str = "") -> Answer:
        return self._result(command.plan, command.phase, command.epoch_to, outcome, now_ms, reason)

    def _result(
        self, plan: str, phase: CommandPhase, epoch_to: int, outcome: Outcome, now_ms: float, reason: str
    ) -> Answer:
        under_way = self.transition
        sent = under_way.control_messages if under_way is not None and under_way.plan == plan else 0
        return Answer(CommandResult(plan, phase, self.broker, epoch_to, outcome, reason, sent, int(now_ms)))
