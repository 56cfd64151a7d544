"""One broker of any overlay: its epochs, the phases of the plan under way, its answers, and what waits meanwhile.

In: one message at a time and the time. Out: effects. The kinds of overlay (:mod:`producers.brokers.tree_routing`,
:mod:`producers.brokers.ring_routing`, :mod:`producers.brokers.scot_routing`) differ in their tables, their messages
and how they prepare, switch and drain; :mod:`producers.brokers.epoch_change` specifies their interface.

The protocol is in docs/protocol.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from regraft.producers.brokers.answer_commands import AnsweringBroker
from regraft.producers.brokers.broker_messages import (
    AdvertiseRequest,
    Bundle,
    ClientDropped,
    ClientRequest,
    Deliver,
    Dropped,
    Effect,
    Message,
    Notification,
    UnadvertiseRequest,
    bundled,
)
from regraft.producers.brokers.broker_protocol import BrokerPhase
from regraft.producers.brokers.command_fence import CommandFence
from regraft.producers.brokers.epoch_change import EpochChange, EpochTables, PlanUnderWay, Routing, digest_mismatch
from regraft.producers.brokers.neighbour_incarnations import NeighbourIncarnations
from regraft.producers.brokers.postponed_requests import PostponingBroker
from regraft.producers.brokers.report_state import reported
from regraft.schemas.command import Command, CommandPhase, Outcome, Refusal

CLIENT_WAIT_MS_MAX = 10_000.0  # How long a plan waits for one client's answer; checked when a command repeats.
HELD_MAX = 100_000  # Held deliveries, or notifications at a rendezvous; more are dropped and counted.
HOLD_OVERFLOW = "hold_overflow"
EPOCH_UNKNOWN = "epoch_unknown"  # The notification's epoch is retired here, or was never known.
OUTSIDE = "outside"  # The broker is not part of the notification's overlay.
BROKER_DIED = "broker_died"  # The notification's path crosses a dead broker.
FROM_THE_DEAD = "from_the_dead"  # The sender's incarnation in that epoch is over.
EARLY_MESSAGES_MAX = 100_000  # Messages kept for epochs not prepared yet.


class ProtocolError(RuntimeError):
    """A message that the protocol rules out: links lost or reordered something, or a broker is faulty."""


Tables = TypeVar("Tables", bound=EpochTables)
Plan = TypeVar("Plan", bound=PlanUnderWay)


class TwoEpochBroker(AnsweringBroker, PostponingBroker, Generic[Tables, Plan]):
    """One broker's protocol core: tables of at most two epochs, the plan between them, and what it holds back.

    A :class:`producers.brokers.broker_protocol.BrokerProtocol`. ``routing`` makes the part that depends on the kind of
    overlay; that part uses the methods here without an underscore, and ``tables`` by epoch.
    """

    def __init__(
        self,
        broker: str,
        tables: Tables,
        boot_ms: int,
        routing: Callable[[TwoEpochBroker[Tables, Plan]], Routing[Tables, Plan]],
    ) -> None:
        self.broker = broker
        self.boot_ms = boot_ms
        self.held_count_max = 0
        self.control_messages_sent = 0
        self.now_ms = 0.0  # Time of the message being handled.
        self._early: deque[tuple[int, str | None, Any]] = deque()  # Each with the epoch it waits for.
        self._early_overflowed = False
        self._epoch_aborted_max = -1
        self.fence = CommandFence()
        self._routing_of = routing
        self._begin_with(tables)

    def _begin_with(self, tables: Tables) -> None:
        """Hold these tables, and no other state of clients and neighbours."""
        self.epoch = tables.epoch
        self.tables: dict[int, Tables] = {tables.epoch: tables}
        self.under_way: Plan | None = None
        self.lost_peers: set[str] = set()  # A dead neighbour of an earlier overlay may be back.
        self._incarnations = NeighbourIncarnations()
        self.held: deque[Deliver] = deque()
        self._postponed: deque[AdvertiseRequest | UnadvertiseRequest] = deque()  # At most two for each publisher.
        self.routing = self._routing_of(self)
        self._change: EpochChange[Tables, Plan] = self.routing.change

    def begin_at(self, plan: str, digest: str, term: int) -> None:
        """Accept this broker's epoch as the one that a plan led to."""
        self.fence.begin_at(self.epoch, plan, digest, term)

    @property
    def covered_forwards(self) -> int:
        """Number of subscriptions sent to a neighbour that already had a wider one from here."""
        return self.routing.covered_forwards

    @property
    def ended_count(self) -> int:
        """Number of subscriptions that have ended but may still be owed something."""
        return self.routing.ended_count

    # --- what comes in -----------------------------------------------------------------------------------------------

    def handle(self, source: str | None, message: Message | ClientRequest | Command, now_ms: float) -> list[Effect]:
        """Process one message and return the effects, in order; ``source`` is None for a local sender."""
        self.now_ms = now_ms
        if isinstance(message, Notification):
            return self.routing.route(source, message)
        if isinstance(message, Command):
            effects = self._obey(message, now_ms)
        else:
            messages = message.messages if isinstance(message, Bundle) else (message,)
            effects = [effect for one in messages for effect in self._dispatch(source, one, now_ms)]
        effects += self.routing.check_progress(now_ms)
        self.count_control(effects)
        return bundled(effects)

    def _dispatch(self, source: str | None, message: Any, now_ms: float) -> list[Effect]:
        if source is None:
            return self.routing.serve(message, now_ms)
        self._incarnations.note_sent(source, message.epoch)
        return self.routing.converse(source, message, now_ms)

    @property
    def live_neighbours(self) -> tuple[str, ...]:
        """The neighbours in any live epoch, sorted."""
        return tuple(sorted({peer for tables in self.tables.values() for peer in tables.neighbours}))

    @property
    def held_notifications(self) -> list[Notification]:
        """Return the notifications that this broker holds back for the plan under way."""
        return [delivery.notification for delivery in self.held] + self._change.kept_notifications()

    def lose_peer(self, peer: str, now_ms: float) -> list[Effect]:
        """Note that a neighbour is gone for good, after everything it had sent; return the effects.

        Its answers are not awaited, so that the remaining brokers can continue in both epochs. What it held, and what
        had to cross it, is lost with it. A later incarnation of it is not concerned.
        """
        epoch_end = self._incarnations.end(peer)
        if epoch_end > max(self.tables):
            self.lost_peers.add(peer)
        return bundled(self._change.lose_peer(peer, epoch_end, now_ms))

    def note_reported(self, dead: set[str]) -> None:
        """Note that the controller reports brokers dead; links to neighbours may have yet to do so."""
        self._incarnations.note_reported(dead.intersection(self.epochs()[0].neighbours) - self.lost_peers)

    @property
    def takes_clients(self) -> bool:
        """Whether clients may connect: the broker is in the overlay of every live epoch.

        A joining broker accepts none until the older epoch is retired: nothing published in that comes here.
        """
        return not any(tables.is_outside for tables in self.tables.values())

    # --- phases ------------------------------------------------------------------------------------------------------

    @property
    def phase(self) -> BrokerPhase:
        """The phase of this broker in a transition."""
        if self.under_way is None:
            return BrokerPhase.STEADY
        if not self.under_way.is_active:
            return BrokerPhase.PREPARED if self.under_way.is_prepared else BrokerPhase.PREPARING
        return BrokerPhase.DRAINED if self.under_way.is_drained_reported else BrokerPhase.DRAINING

    def _obey(self, command: Command, now_ms: float) -> list[Effect]:
        refusal, reason = self.fence.refusal_of(command, self.epoch)
        if refusal is not Refusal.NONE:
            return [self._refuse(command, refusal, reason, now_ms)]
        return self._change.note_deaths(command, now_ms) + self._execute(command, now_ms)

    def _execute(self, command: Command, now_ms: float) -> list[Effect]:
        match command.phase:
            case CommandPhase.PREPARE:
                return self._prepare(command, now_ms)
            case CommandPhase.ACTIVATE:
                return self._activate(command, now_ms)
            case CommandPhase.RETIRE:
                return self._retire(command, now_ms)
            case CommandPhase.ABORT:
                return self._abort(command, now_ms)
            case CommandPhase.INSTALL:
                return self._install(command, now_ms)
            case CommandPhase.REPORT:
                answer = self._answer(command, Outcome.REPORTED, now_ms)
                return [reported(answer, self.tables[self.epoch].configuration, self.phase, self.fence)]

    def _prepare(self, command: Command, now_ms: float) -> list[Effect]:
        if command.epoch_to in self.tables:
            under_way = self.under_way
            if under_way is not None and not under_way.is_prepared:
                return self._change.drop_unresponsive(under_way, now_ms)  # Answered once the new tables are ready.
            return [self._answer(command, Outcome.PREPARED, now_ms)]
        refusal, reason = self._reason_to_refuse(command)
        if not reason:
            try:
                target = self._change.target_of(command)
                reason = digest_mismatch(command, target) or self._change.reason_against(command, target)
            except ValueError as error:
                reason = str(error)
        if reason:
            return [self._refuse(command, refusal, reason, now_ms)]
        self.fence.claim(command, self.tables)
        effects = self._change.open_tables(command, target, now_ms)
        # Messages that came before the prepare may add to what it waits for.
        return effects + self._replay_early(command.epoch_to, now_ms) + self.answer_prepare(now_ms)

    def _reason_to_refuse(self, command: Command) -> tuple[Refusal, str]:
        if command.epoch_to <= self._epoch_aborted_max:
            return Refusal.PHASE, f"epoch {command.epoch_to} is over: epoch {self._epoch_aborted_max} was aborted"
        is_outside = len(self.tables) == 1 and self.tables[self.epoch].is_outside
        if is_outside and self.broker not in command.brokers_joined:  # In any epoch: it restarted.
            return Refusal.OUTSIDE, f"is outside epoch {self.epoch}, and the plan does not let it join"
        if command.epoch_from != self.epoch or len(self.tables) > 1:
            reason = f"holds epoch {self.epoch}, not {command.epoch_from}, with tables of {sorted(self.tables)}"
            return Refusal.PLAN if command.epoch_from == self.epoch else Refusal.EPOCH, reason
        if self._early_overflowed:
            self._early_overflowed = False
            return Refusal.PHASE, f"more than {EARLY_MESSAGES_MAX} messages arrived before the prepare"
        return Refusal.PHASE, ""

    def begin_plan(self, under_way: Plan, tables: Tables) -> None:
        """Start a plan, with the tables of its epoch to fill."""
        self._incarnations.begin_plan(self.tables[self.epoch].configuration, tables.configuration, tables.lost)
        self.tables[tables.epoch] = tables
        self.under_way = under_way

    def answer_prepare(self, now_ms: float) -> list[Effect]:
        """Answer the prepare, once, when everything that the new tables need has arrived."""
        under_way = self.under_way
        if under_way is None or under_way.is_prepared or not self._change.is_ready_to_switch(under_way):
            return []
        under_way.is_prepared = True
        return [self._result(under_way, CommandPhase.PREPARE, Outcome.PREPARED, now_ms)]

    def _activate(self, command: Command, now_ms: float) -> list[Effect]:
        under_way = self.under_way
        if self.epoch >= command.epoch_to:
            answers: list[Effect] = [self._answer(command, Outcome.ACTIVATED, now_ms)]
            if under_way is None or under_way.is_drained_reported:
                return [*answers, self._answer(command, Outcome.DRAINED, now_ms)]
            return answers + self._change.drop_unresponsive(under_way, now_ms)
        if under_way is None or under_way.epoch_to != command.epoch_to or not under_way.is_prepared:
            return [self._refuse(command, Refusal.PHASE, f"not prepared for epoch {command.epoch_to}", now_ms)]
        return self._change.begin_switch(under_way, now_ms) + self._change.drop_unresponsive(under_way, now_ms)

    def switch(self, under_way: Plan, now_ms: float) -> list[Effect]:
        """Stamp the new epoch from now on, and take over the clients that have moved here."""
        under_way.is_active = True
        self.epoch = under_way.epoch_to
        answer = self._result(under_way, CommandPhase.ACTIVATE, Outcome.ACTIVATED, now_ms)
        return [answer, *self._change.take_over_clients(under_way), *self.release_held(), *self.drain(now_ms)]

    def drain(self, now_ms: float) -> list[Effect]:
        """Send the markers that are due, and report once nothing of the old epoch can arrive any more."""
        under_way = self.under_way
        if under_way is None or not under_way.is_active:
            return []
        effects = self._change.continue_drain(under_way)
        if self._change.is_drained(under_way) and not under_way.is_drained_reported:
            under_way.is_drained_reported = True
            effects.append(self._result(under_way, CommandPhase.ACTIVATE, Outcome.DRAINED, now_ms))
        return effects

    def _retire(self, command: Command, now_ms: float) -> list[Effect]:
        under_way = self.under_way
        is_its_plan = under_way is not None and under_way.epoch_to == command.epoch_to
        if self.epoch >= command.epoch_to and not is_its_plan:
            return [self._answer(command, Outcome.RETIRED, now_ms)]
        if under_way is None or not is_its_plan or not (under_way.is_drained_reported or self._may_give_up(command)):
            return [self._refuse(command, Refusal.PHASE, f"not drained for epoch {command.epoch_to}", now_ms)]
        released: list[Effect] = []
        if not under_way.is_drained_reported:
            released = [*self._change.release_waiting(under_way), *self.held]
            self.held.clear()
        self._change.finish_moves(under_way)
        released += self.release_held()
        if self.held:
            raise ProtocolError(f"{self.broker} is drained but holds {len(self.held)} deliveries")
        answer = self._answer(command, Outcome.RETIRED, now_ms)
        return [*released, *self._drop_tables(under_way.epoch_from, now_ms), answer]

    def _may_give_up(self, command: Command) -> bool:
        """Return True if what this broker still waits for may have been lost with a dead broker."""
        return self.epoch == command.epoch_to and bool(command.lost_brokers)

    def _abort(self, command: Command, now_ms: float) -> list[Effect]:
        if self.fence.is_aborted(command.epoch_to):
            return [self._answer(command, Outcome.ABORTED, now_ms)]
        if self.epoch >= command.epoch_to:
            return [self._refuse(command, Refusal.PHASE, f"epoch {command.epoch_to} is already active", now_ms)]
        self.fence.claim(command, self.tables)
        self._epoch_aborted_max = max(self._epoch_aborted_max, command.epoch_to)
        self._early = deque(one for one in self._early if one[0] > self._epoch_aborted_max)
        answer = self._answer(command, Outcome.ABORTED, now_ms)
        dropped = self._drop_tables(command.epoch_to, now_ms) if command.epoch_to in self.tables else []
        return [*dropped, answer]

    def _install(self, command: Command, now_ms: float) -> list[Effect]:
        """Start over outside the epoch in force, discarding all state; a repeated command changes nothing."""
        held = self.tables.get(command.epoch_to)
        if held is not None and held.is_outside and command.epoch_to == min(self.tables):  # Else it is yet to leave.
            return [self._answer(command, Outcome.INSTALLED, now_ms)]
        if command.epoch_to < min(self.tables):
            reason = f"holds epoch {self.epoch}, past {command.epoch_to}"
            return [self._refuse(command, Refusal.EPOCH, reason, now_ms)]
        try:
            tables = self._change.tables_outside(command)
            reason = digest_mismatch(command, tables.configuration) if command.digest else ""
        except ValueError as error:
            reason = str(error)
        if reason:
            return [self._refuse(command, Refusal.PHASE, reason, now_ms)]
        coming = {one.publisher: one.connection for one in self._postponed if isinstance(one, AdvertiseRequest)}
        stays = sorted((self.routing.clients_here() | coming).items())
        effects: list[Effect] = [ClientDropped(*stay) for stay in stays]
        effects += [Dropped(notification, OUTSIDE) for notification in self.held_notifications]
        self._early = deque(one for one in self._early if one[0] > command.epoch_to)
        self.fence.install(command, self.epoch)
        self._begin_with(tables)
        return [*effects, self._answer(command, Outcome.INSTALLED, now_ms)]

    def pop_late(self, waiting: dict[str, float], now_ms: float) -> list[str]:
        """Remove from ``waiting`` (client -> since when) the clients awaited for too long, and return them."""
        late = sorted(client for client, since_ms in waiting.items() if now_ms - since_ms > CLIENT_WAIT_MS_MAX)
        for client in late:
            del waiting[client]
        return late

    def _drop_tables(self, epoch: int, now_ms: float) -> list[Effect]:
        gone, under_way = self.tables.pop(epoch), self.under_way
        self.under_way = None
        return self._change.forget_epoch(gone, under_way, now_ms)

    # --- what waits: held deliveries, messages that come too early, postponed requests --------------------------------

    def deliver_or_hold(self, delivery: Deliver, effects: list[Effect]) -> None:
        """Deliver at once, unless earlier notifications may still come in an older epoch."""
        if not self._change.must_hold(delivery):
            effects.append(delivery)
        elif len(self.held) >= HELD_MAX:
            effects.append(Dropped(delivery.notification, HOLD_OVERFLOW))
        else:
            self.held.append(delivery)
            self.held_count_max = max(self.held_count_max, len(self.held))

    def release_held(self) -> list[Effect]:
        """Return the deliveries that need not be held any longer."""
        released: list[Effect] = []
        kept: deque[Deliver] = deque()
        for delivery in self.held:
            if self._change.must_hold(delivery):
                kept.append(delivery)
            else:
                released.append(delivery)
        self.held = kept
        return released

    def keep_early(self, epoch: int, source: str | None, message: Any) -> list[Effect]:
        """Keep a message of an epoch that is yet to be prepared; ignore one of a finished epoch."""
        if epoch > max(self.tables) and epoch > self._epoch_aborted_max:
            if len(self._early) >= EARLY_MESSAGES_MAX:
                self._early_overflowed = True
            else:
                self._early.append((epoch, source, message))
        return []

    def _replay_early(self, epoch: int, now_ms: float) -> list[Effect]:
        early = [(source, kept) for known, source, kept in self._early if known == epoch]
        self._early.clear()
        effects: list[Effect] = []
        for source, kept in early:
            effects += self._dispatch(source, kept, now_ms)
        return effects

    @property
    def early(self) -> list[tuple[int, Any]]:
        """Messages that came before their epoch was prepared, each with its epoch."""
        return [(epoch, message) for epoch, _, message in self._early]

    def serve_postponed(self, now_ms: float) -> list[Effect]:
        """Serve the postponed requests; those that must wait longer are kept again, in order."""
        waiting, self._postponed = self._postponed, deque()
        return [effect for request in waiting for effect in self.routing.serve(request, now_ms)]

    def epochs(self) -> list[Tables]:
        """Return the tables of all live epochs, oldest first."""
        return [self.tables[epoch] for epoch in sorted(self.tables)]
