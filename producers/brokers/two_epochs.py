"""The two-epoch transition of a broker on any overlay: commands in, phases, answers, and what is held back meanwhile.

In: commands of the controller. Out: effects. What tables there are, what preparing, switching and draining mean and
which messages do it differs between a tree (:mod:`producers.brokers.broker_transition`) and a ring
(:mod:`producers.brokers.chord_transition`); they fill in the hooks.

The protocol is architecture.md, section 6: tables of k+1 stand beside those of k everywhere before anything is stamped
k+1, and those of k go when nothing stamped k is under way any more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from overlay.overlay_configuration import OverlayConfiguration
from producers.brokers.broker_messages import (
    AdvertiseRequest,
    Answer,
    Bundle,
    ClientRequest,
    Deliver,
    Dropped,
    Effect,
    Message,
    Notification,
    Send,
    UnadvertiseRequest,
    bundled,
)
from producers.brokers.broker_protocol import BrokerPhase
from schemas.command import Command, CommandPhase, CommandResult, Outcome
from schemas.plan import ClientMove

CLIENT_WAIT_MS_MAX = 10_000.0  # For one client's answer that a plan waits for; looked at when a command is repeated.
HELD_MAX = 100_000  # Deliveries, and on a ring notifications at a rendezvous; what comes then is dropped and counted.
HOLD_OVERFLOW = "hold_overflow"
EPOCH_UNKNOWN = "epoch_unknown"  # Of a notification whose epoch a broker has given up, or has never heard of.
EARLY_MESSAGES_MAX = 100_000  # Messages of an epoch that this broker has not prepared yet.


class ProtocolError(RuntimeError):
    """A message that the protocol rules out: links lost or reordered something, or a broker is faulty."""


@dataclass(slots=True)
class PlanUnderWay:
    """The plan under way at this broker; ``moves`` by client."""

    plan: str
    epoch_from: int
    epoch_to: int
    moves: Mapping[str, ClientMove] = field(default_factory=dict)
    is_prepared: bool = False
    is_active: bool = False
    is_drained_told: bool = False
    control_messages: int = 0


def stay_of(request: AdvertiseRequest | UnadvertiseRequest) -> tuple[str, int]:
    """Return which stay of which publisher a request is about."""
    return request.publisher, request.connection


class EpochTables(Protocol):
    """All that a broker knows for one epoch."""

    @property
    def epoch(self) -> int:
        """The epoch."""

    @property
    def neighbours(self) -> Collection[str]:
        """The brokers that this one is linked to."""


Tables = TypeVar("Tables", bound=EpochTables)


class TwoEpochBroker(ABC, Generic[Tables]):
    """Tables of at most two epochs, the plan under way between them, and the deliveries held back for it."""

    def __init__(self, broker: str, tables: Tables, boot_ms: int) -> None:
        self.broker = broker
        self.boot_ms = boot_ms
        self.epoch = tables.epoch
        self.tables: dict[int, Tables] = {tables.epoch: tables}
        self.under_way: PlanUnderWay | None = None
        self.lost_peers: set[str] = set()
        self.held: deque[Deliver] = deque()
        self.held_count_max = 0
        self.control_messages_sent = 0
        self.now_ms = 0.0  # Of the message that is being handled.
        self._postponed: deque[AdvertiseRequest | UnadvertiseRequest] = deque()  # Two for each publisher at most.
        self._early: deque[tuple[int, str | None, Any]] = deque()  # With the epoch it waits for.
        self._early_overflowed = False
        self._epoch_aborted_max = -1

    # --- what a kind of overlay fills in -----------------------------------------------------------------------------

    @abstractmethod
    def _target_of(self, command: Command) -> OverlayConfiguration:
        """Return the configuration that a prepare asks for; raise ValueError when it cannot be."""

    @abstractmethod
    def _reason_against(self, command: Command) -> str:
        """Return why this broker cannot take part, empty when it can."""

    @abstractmethod
    def _open_tables(self, command: Command, target: OverlayConfiguration, now_ms: float) -> list[Effect]:
        """Set up tables of the target epoch and the transition, and begin to fill them."""

    @abstractmethod
    def _is_ready_to_switch(self) -> bool:
        """Tell whether nothing is outstanding that the new tables need."""

    @abstractmethod
    def _begin_switch(self, under_way: PlanUnderWay, now_ms: float) -> list[Effect]:
        """Begin to stamp the new epoch, at once or when what stands in its way is over, by :meth:`_switch`."""

    @abstractmethod
    def _taken_over(self, under_way: PlanUnderWay) -> list[Effect]:
        """Return what clients are told when this broker has switched."""

    @abstractmethod
    def _drain_on(self) -> list[Effect]:
        """Return the markers of draining that have become due."""

    @abstractmethod
    def _is_drained(self, under_way: PlanUnderWay) -> bool:
        """Return True if the old epoch's tables are needed here no longer."""

    @abstractmethod
    def _drop_silent(self, under_way: PlanUnderWay, now_ms: float) -> list[Effect]:
        """End the stay of clients that others wait for and that have not answered in time."""

    @abstractmethod
    def _finish_moves(self, under_way: PlanUnderWay) -> None:
        """Take the clients that have moved for good, when the old epoch is retired."""

    @abstractmethod
    def _forget_epoch(self, gone: Tables, under_way: PlanUnderWay | None, now_ms: float) -> list[Effect]:
        """Return what follows from an epoch having gone; what waited for it no longer does."""

    @abstractmethod
    def _must_hold(self, delivery: Deliver) -> bool:
        """Tell whether something that was published before it may still be on its way here in an older epoch."""

    @abstractmethod
    def _route(self, source: str | None, notification: Notification) -> list[Effect]:
        """Pass a notification on and hand it over."""

    @abstractmethod
    def _serve(self, request: Any, now_ms: float) -> list[Effect]:
        """Take what a local client asks for."""

    @abstractmethod
    def _converse(self, source: str, message: Any, now_ms: float) -> list[Effect]:
        """Take a control message of a neighbour."""

    @abstractmethod
    def _look_around(self, now_ms: float) -> list[Effect]:
        """Return what a message may have made possible, whatever it was."""

    def handle(self, source: str | None, message: Message | ClientRequest | Command, now_ms: float) -> list[Effect]:
        """Take one message and return what is to be done, in order. ``source`` is a neighbour or None for our own."""
        self.now_ms = now_ms
        if isinstance(message, Notification):
            return self._route(source, message)
        if isinstance(message, Command):
            effects = self._obey(message, now_ms)
        else:
            messages = message.messages if isinstance(message, Bundle) else (message,)
            effects = [effect for one in messages for effect in self._take(source, one, now_ms)]
        effects += self._look_around(now_ms)
        self._count_control(effects)
        return bundled(effects)

    def _take(self, source: str | None, message: Any, now_ms: float) -> list[Effect]:
        return self._serve(message, now_ms) if source is None else self._converse(source, message, now_ms)

    @property
    def live_neighbours(self) -> tuple[str, ...]:
        """The neighbours in any live epoch, sorted."""
        return tuple(sorted({peer for tables in self.tables.values() for peer in tables.neighbours}))

    @property
    def held_notifications(self) -> list[Notification]:
        """What this broker holds back for the plan under way."""
        return [delivery.notification for delivery in self.held]

    # --- phases ------------------------------------------------------------------------------------------------------

    @property
    def phase(self) -> BrokerPhase:
        """Where this broker is in a transition."""
        if self.under_way is None:
            return BrokerPhase.STEADY
        if not self.under_way.is_active:
            return BrokerPhase.PREPARED if self.under_way.is_prepared else BrokerPhase.PREPARING
        return BrokerPhase.DRAINED if self.under_way.is_drained_told else BrokerPhase.DRAINING

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
            under_way = self.under_way
            if under_way is not None and not under_way.is_prepared:
                return self._drop_silent(under_way, now_ms)  # The answer follows when the new tables stand.
            return [self._answer(command, Outcome.PREPARED, now_ms)]
        reason = self._reason_to_refuse(command)
        if not reason:
            try:
                target = self._target_of(command)
                if command.digest != target.digest:
                    reason = f"the target's digest is {target.digest} here, {command.digest} in the command"
            except ValueError as error:
                reason = str(error)
        if reason:
            return [self._answer(command, Outcome.REFUSED, now_ms, reason)]
        effects = self._open_tables(command, target, now_ms)
        # What came before the prepare may add to what it waits for.
        return effects + self._take_early(command.epoch_to, now_ms) + self._tell_prepared(now_ms)

    def _reason_to_refuse(self, command: Command) -> str:
        if command.epoch_to <= self._epoch_aborted_max:
            return f"epoch {command.epoch_to} was aborted"
        if command.epoch_from != self.epoch or len(self.tables) > 1:
            return f"holds epoch {self.epoch}, not {command.epoch_from}, with tables of {sorted(self.tables)}"
        if self._early_overflowed:
            self._early_overflowed = False
            return f"more than {EARLY_MESSAGES_MAX} messages came before the prepare"
        return self._reason_against(command)

    def _tell_prepared(self, now_ms: float) -> list[Effect]:
        under_way = self.under_way
        if under_way is None or under_way.is_prepared or not self._is_ready_to_switch():
            return []
        under_way.is_prepared = True
        return [self._result(under_way.plan, CommandPhase.PREPARE, under_way.epoch_to, Outcome.PREPARED, now_ms, "")]

    def _activate(self, command: Command, now_ms: float) -> list[Effect]:
        under_way = self.under_way
        if self.epoch >= command.epoch_to:
            answers: list[Effect] = [self._answer(command, Outcome.ACTIVATED, now_ms)]
            if under_way is None or under_way.is_drained_told:
                return [*answers, self._answer(command, Outcome.DRAINED, now_ms)]
            return answers + self._drop_silent(under_way, now_ms)
        if under_way is None or under_way.epoch_to != command.epoch_to or not under_way.is_prepared:
            reason = f"not prepared for epoch {command.epoch_to}"
            return [self._answer(command, Outcome.REFUSED, now_ms, reason)]
        return self._begin_switch(under_way, now_ms) + self._drop_silent(under_way, now_ms)

    def _switch(self, under_way: PlanUnderWay, now_ms: float) -> list[Effect]:
        """Stamp the new epoch from now on, and take over the clients that come here."""
        under_way.is_active = True
        self.epoch = under_way.epoch_to
        answer = self._result(under_way.plan, CommandPhase.ACTIVATE, under_way.epoch_to, Outcome.ACTIVATED, now_ms, "")
        return [answer, *self._taken_over(under_way), *self._release_held(), *self._drain(now_ms)]

    def _drain(self, now_ms: float) -> list[Effect]:
        """Pass on the markers that are due, and tell when nothing of the old epoch can come any more."""
        under_way = self.under_way
        if under_way is None or not under_way.is_active:
            return []
        effects = self._drain_on()
        if self._is_drained(under_way) and not under_way.is_drained_told:
            under_way.is_drained_told = True
            effects.append(
                self._result(under_way.plan, CommandPhase.ACTIVATE, under_way.epoch_to, Outcome.DRAINED, now_ms, "")
            )
        return effects

    def _retire(self, command: Command, now_ms: float) -> list[Effect]:
        under_way = self.under_way
        is_its_plan = under_way is not None and under_way.epoch_to == command.epoch_to
        if self.epoch >= command.epoch_to and not is_its_plan:
            return [self._answer(command, Outcome.RETIRED, now_ms)]
        if under_way is None or not is_its_plan or not (under_way.is_drained_told or self._may_give_up(command)):
            reason = f"not drained for epoch {command.epoch_to}"
            return [self._answer(command, Outcome.REFUSED, now_ms, reason)]
        released: list[Effect] = []
        if not under_way.is_drained_told:
            released = [*self._release_waiting(under_way), *self.held]
            self.held.clear()
        if self.held:
            raise ProtocolError(f"{self.broker} is drained but holds {len(self.held)} deliveries")
        self._finish_moves(under_way)
        answer = self._answer(command, Outcome.RETIRED, now_ms)
        return [*released, *self._drop_tables(under_way.epoch_from, now_ms), answer]

    def _may_give_up(self, command: Command) -> bool:
        """Return True if what this broker still waits for may have been lost with a broker that is dead."""
        return self.epoch == command.epoch_to and bool(command.lost_brokers)

    def _release_waiting(self, under_way: PlanUnderWay) -> list[Effect]:
        """Let go on whatever waits for something of the old epoch, besides deliveries."""
        return []

    def _abort(self, command: Command, now_ms: float) -> list[Effect]:
        if self.epoch >= command.epoch_to:
            reason = f"epoch {command.epoch_to} is active already"
            return [self._answer(command, Outcome.REFUSED, now_ms, reason)]
        self._epoch_aborted_max = max(self._epoch_aborted_max, command.epoch_to)
        self._early = deque(one for one in self._early if one[0] > self._epoch_aborted_max)
        answer = self._answer(command, Outcome.ABORTED, now_ms)
        if command.epoch_to not in self.tables:
            return [answer]
        return [*self._drop_tables(command.epoch_to, now_ms), answer]

    def _late(self, waiting: dict[str, float], now_ms: float) -> list[str]:
        """Take out of ``waiting`` (client -> since when) whoever has been waited for too long, and return them."""
        late = sorted(client for client, since_ms in waiting.items() if now_ms - since_ms > CLIENT_WAIT_MS_MAX)
        for client in late:
            del waiting[client]
        return late

    def _drop_tables(self, epoch: int, now_ms: float) -> list[Effect]:
        gone, under_way = self.tables.pop(epoch), self.under_way
        self.under_way = None
        return self._forget_epoch(gone, under_way, now_ms)

    # --- what waits: deliveries held back, messages that come too early, requests that come at the wrong time --------

    def _deliver_or_hold(self, delivery: Deliver, effects: list[Effect]) -> None:
        """Deliver at once unless what was published earlier may still come in an older epoch."""
        if self._must_hold(delivery):
            if len(self.held) >= HELD_MAX:
                effects.append(Dropped(delivery.notification, HOLD_OVERFLOW))
                return
            self.held.append(delivery)
            self.held_count_max = max(self.held_count_max, len(self.held))
        else:
            effects.append(delivery)

    def _release_held(self) -> list[Effect]:
        released: list[Effect] = []
        kept: deque[Deliver] = deque()
        for delivery in self.held:
            if self._must_hold(delivery):
                kept.append(delivery)
            else:
                released.append(delivery)
        self.held = kept
        return released

    def _keep_early(self, epoch: int, source: str | None, message: Any) -> list[Effect]:
        """Keep what belongs to an epoch that is still to be prepared; ignore what belongs to a finished one."""
        if epoch > max(self.tables) and epoch > self._epoch_aborted_max:
            if len(self._early) >= EARLY_MESSAGES_MAX:
                self._early_overflowed = True
            else:
                self._early.append((epoch, source, message))
        return []

    def _take_early(self, epoch: int, now_ms: float) -> list[Effect]:
        early = [(source, kept) for known, source, kept in self._early if known == epoch]
        self._early.clear()
        effects: list[Effect] = []
        for source, kept in early:
            effects += self._take(source, kept, now_ms)
        return effects

    def _take_postponed(self, now_ms: float) -> list[Effect]:
        """Serve what waited for the plan to be over; what must wait on is kept again, in its order."""
        waiting, self._postponed = self._postponed, deque()
        return [effect for request in waiting for effect in self._serve(request, now_ms)]

    def _drop_postponed(self, request: UnadvertiseRequest) -> bool:
        """Forget what waited of a stay that has ended; return True if anything did."""
        kept = deque(one for one in self._postponed if stay_of(one) != stay_of(request))
        has_waited = len(kept) < len(self._postponed)
        self._postponed = kept
        return has_waited

    def _epochs(self) -> list[Tables]:
        return [self.tables[epoch] for epoch in sorted(self.tables)]

    # --- answers and counts ------------------------------------------------------------------------------------------

    def _answer(self, command: Command, outcome: Outcome, now_ms: float, reason: str = "") -> Answer:
        return self._result(command.plan, command.phase, command.epoch_to, outcome, now_ms, reason)

    def _result(
        self, plan: str, phase: CommandPhase, epoch_to: int, outcome: Outcome, now_ms: float, reason: str
    ) -> Answer:
        under_way = self.under_way
        sent = under_way.control_messages if under_way is not None and under_way.plan == plan else 0
        lost = tuple(sorted(self.lost_peers))
        return Answer(CommandResult(plan, phase, self.broker, epoch_to, outcome, reason, sent, int(now_ms), lost))

    def _count_control(self, effects: list[Effect]) -> None:
        """Count what was sent to peers but notifications, and of that what the plan under way caused."""
        sent = [
            effect.message
            for effect in effects
            if isinstance(effect, Send) and not isinstance(effect.message, Notification)
        ]
        self.control_messages_sent += len(sent)
        if self.under_way is not None:
            self.under_way.control_messages += sum(self._is_of_plan(message, self.under_way) for message in sent)

    @abstractmethod
    def _is_of_plan(self, message: Message, under_way: PlanUnderWay) -> bool:
        """Tell whether a message is sent because of the plan."""
