"""What one broker's core and its kind of overlay share: epochs, the plan under way, and what waits for it.

Each attribute of :class:`BrokerState` comes with its invariant. The core (:mod:`producers.brokers.two_epochs`) changes
the state by commands, the kind of overlay by messages; neither needs the other for that. Pure data with the queries and
steps that need no more than it; :mod:`producers.brokers.epoch_change` has the steps that also need the kind.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, Self, TypeVar

from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.producers.brokers.broker_messages import (
    AdvertiseRequest,
    ArriveRequest,
    ClientRequest,
    ControlMessage,
    Deliver,
    Effect,
    UnadvertiseRequest,
    stay_of,
)
from regraft.producers.brokers.broker_reports import BrokerPhase
from regraft.producers.brokers.command_fence import CommandFence
from regraft.producers.brokers.ring_messages import AttachRequest
from regraft.schemas.command import Command
from regraft.schemas.plan import ClientMove

HELD_MAX = 100_000  # Held deliveries, or notifications at a rendezvous; more are dropped and counted.
EARLY_MESSAGES_MAX = 100_000  # Early messages of neighbours.
ARRIVALS_MAX = 50_000  # Clients and subscriptions that have arrived; beyond, their plan waits in vain and is aborted.

PublisherRequest = AdvertiseRequest | UnadvertiseRequest
# The epoch that a message waits for, its source, None if local, and the message.
Early = tuple[int, str | None, ControlMessage | ClientRequest]
Arrival = str | tuple[str, int]  # A subscription, or a user with the number of its stay.


class EarlyMessages:
    """What has reached a broker for epochs that it has yet to prepare, in order: another broker was prepared first.

    A client can let others arrive that no plan brings. So arrivals have their own bound: they take no room from
    neighbours, and block no plan that does not bring clients here.
    """

    def __init__(self) -> None:
        self._kept: deque[Early] = deque()
        self._epochs: dict[Arrival, int] = {}  # What has arrived -> the epoch of its first arrival.
        self._arrival_count = 0
        self._ends: set[ControlMessage | ClientRequest] = set()  # Requests about the end of something that has arrived.

    def __iter__(self) -> Iterator[Early]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, epoch: int, source: str | None, message: ControlMessage | ClientRequest) -> bool:
        """Keep a message; return False if there is no room for one of a neighbour."""
        if source is not None:
            if len(self._kept) - self._arrival_count - len(self._ends) >= EARLY_MESSAGES_MAX:
                return False
        elif isinstance(message, ArriveRequest | AttachRequest):
            if self._arrival_count >= ARRIVALS_MAX:
                return True
            self._note_arrival(epoch, message)
        elif message in self._ends:
            return True
        else:
            self._ends.add(message)
        self._kept.append((epoch, source, message))
        return True

    def _note_arrival(self, epoch: int, message: ArriveRequest | AttachRequest) -> None:
        self._arrival_count += 1
        if isinstance(message, ArriveRequest):
            self._epochs.setdefault(message.subscription, epoch)
            return
        self._epochs.setdefault((message.user, message.connection), epoch)
        for moved in message.subscriptions:
            self._epochs.setdefault(moved.subscription, epoch)

    def epoch_of(self, arrival: Arrival) -> int | None:
        """Return the epoch for which a subscription or a user has arrived, or None."""
        return self._epochs.get(arrival)

    def take(self, epoch: int) -> list[tuple[str | None, ControlMessage | ClientRequest]]:
        """Return the messages of an epoch; forget all."""
        taken = [(source, message) for opened, source, message in self._kept if opened == epoch]
        self.clear()
        return taken

    def clear(self) -> None:
        """Forget all messages."""
        self._kept.clear()
        self._epochs.clear()
        self._ends.clear()
        self._arrival_count = 0

    def forget(self, epoch_max: int) -> None:
        """Forget the messages of epochs up to this one."""
        kept = [each for each in self._kept if each[0] > epoch_max]
        self.clear()
        for each in kept:
            self.keep(*each)


class NeighbourIncarnations:
    """The neighbours whose end the controller has reported and their link has not, each with its next incarnation.

    A link reports the end of an incarnation behind everything sent in it, but before everything sent in the next one.
    If the controller has reported the end, too, the neighbour may be back by then: that report does not concern its
    next incarnation.
    """

    def __init__(self) -> None:
        # By neighbour, the epoch in which its next incarnation begins: inf for none.
        self._next_from: dict[str, float] = {}

    def note_reported(self, peers: Collection[str]) -> None:
        """Note that the controller reports these neighbours dead; each has yet to be reported by its link."""
        for peer in peers:
            self._next_from.setdefault(peer, math.inf)

    def begin_plan(self, before: OverlayConfiguration, target: OverlayConfiguration, lost: Collection[str]) -> None:
        """Note which brokers join in a plan, those it names as lost, too; plans begun before may have been aborted."""
        for peer, epoch in self._next_from.items():
            joins = peer in target.brokers and (peer in lost or peer not in before.brokers)
            if joins or epoch > before.epoch:
                self._next_from[peer] = target.epoch if joins else math.inf

    def note_sent(self, peer: str, epoch: int) -> None:
        """Note a neighbour's message of an epoch: if its next incarnation sent it, no report of that end follows."""
        if self._next_from and epoch >= self._next_from.get(peer, math.inf):
            del self._next_from[peer]

    def end(self, peer: str) -> float:
        """Note a link's report; return the first epoch that it does not concern, inf if it concerns all."""
        return self._next_from.pop(peer, math.inf)


@dataclass(slots=True)
class PlanUnderWay:
    """The plan under way at this broker; ``moves`` by client.

    The flags are set in this order and never reset: ``is_prepared``, ``is_active``, ``is_drained_reported``.
    """

    plan: str
    epoch_from: int
    epoch_to: int
    moves: Mapping[str, ClientMove] = field(default_factory=dict)
    is_prepared: bool = False
    is_active: bool = False
    is_drained_reported: bool = False
    control_messages: int = 0


@dataclass(slots=True)
class ContentPlanUnderWay(PlanUnderWay):
    """The plan under way at a broker that routes by content; ``moves`` are of publishers and named subscriptions.

    ``homes``: by broker, the new home of all its subscribers that ``moves`` does not name. ``waiting_for``:
    subscriptions and publishers that keep this broker from being prepared. ``leaving``: publishers that must leave
    before this broker is active, with when they were notified; None before any is notified. ``going``: the local
    subscriptions that the plan moves elsewhere; ``ready``: those that their next home has; ``arrived``: those that the
    plan has brought here.
    """

    homes: Mapping[str, str] = field(default_factory=dict)
    waiting_for: set[str] = field(default_factory=set)
    leaving: dict[str, float] | None = None
    going: set[str] = field(default_factory=set)
    ready: set[str] = field(default_factory=set)
    arrived: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, command: Command) -> Self:
        """Return the plan of a prepare; a client whose home is lost reconnects by itself, in a new stay."""
        lost = command.lost_brokers
        moves = {move.client: move for move in command.moves if move.home_from not in lost}
        homes = {one.home_from: one.home_to for one in command.subscribers_moved if one.home_from not in lost}
        return cls(command.plan, command.epoch_from, command.epoch_to, moves, homes=homes)

    def home_after(self, subscription: str, home: str) -> str:
        """Return the new home of a subscription, empty if it stays."""
        move = self.moves.get(subscription)
        return move.home_to if move is not None and move.home_from == home else self.homes.get(home, "")

    def may_bring(self, subscription: str, broker: str) -> bool:
        """Return True if the plan may bring a subscription to a broker."""
        move = self.moves.get(subscription)
        return broker in self.homes.values() or (move is not None and move.home_to == broker)


class EpochTables(Protocol):
    """Everything that a broker knows for one epoch."""

    @property
    def epoch(self) -> int:
        """The epoch's number."""

    @property
    def configuration(self) -> OverlayConfiguration:
        """The whole overlay of the epoch."""

    @property
    def neighbours(self) -> Collection[str]:
        """The brokers that this one is linked to; none if it is outside."""

    @property
    def lost(self) -> frozenset[str]:
        """The brokers that the plan to this epoch names as lost."""

    @property
    def is_outside(self) -> bool:
        """Whether the broker is outside the overlay."""


Tables = TypeVar("Tables", bound=EpochTables)
Plan = TypeVar("Plan", bound=PlanUnderWay)


class BrokerState(Generic[Tables, Plan]):
    """The state of one broker that its core and its kind of overlay share."""

    broker: str

    # The epoch that this broker stamps on what is published here. Invariant: it is a key of ``tables`` and never falls;
    # only a switch, to ``epoch_to`` of the plan, and INSTALL change it.
    epoch: int

    # The tables of the live epochs. Invariant: without a plan under way there is one entry, that of ``epoch``; with
    # one there are two, ``epoch_from`` and ``epoch_to`` of the plan. Notifications are routed by the tables of the
    # epoch that they are stamped with, and by no others.
    tables: dict[int, Tables]

    # The plan between the two epochs. Invariant: None exactly if ``tables`` has one entry; ``epoch`` is its
    # ``epoch_from`` until it ``is_active``, and its ``epoch_to`` from then on.
    under_way: Plan | None

    # Neighbours that links have reported dead. Invariant: each is named in all answers, so that the controller learns
    # of it, until a plan lets a later incarnation of it join; a neighbour that only the controller has reported is not
    # in it.
    lost_peers: set[str]

    # Which incarnation of a neighbour the next report of a link is about. Invariant: it has an entry for exactly those
    # neighbours that the controller has reported dead and whose link has yet to report that same death.
    incarnations: NeighbourIncarnations

    # Deliveries of the newer epoch that something of the older one may still have to precede. Invariant: in the order
    # of arrival; empty without a plan under way; each one is released as soon as the kind need not hold it any longer.
    held: deque[Deliver]

    # Requests of local publishers that must wait until the plan is over. Invariant: in the order of arrival; at most
    # two for each publisher, the end of a stay and the beginning of the next.
    postponed: deque[PublisherRequest]

    # Messages of epochs that are yet to be prepared here: another broker was prepared first. Invariant: all are of
    # epochs after those of ``tables`` and after ``epoch_aborted_max``, in the order of arrival. ``has_overflowed``: a
    # neighbour's was dropped, so the next prepare must be refused.
    early: EarlyMessages
    has_overflowed: bool

    # The newest epoch aborted here. Invariant: no epoch up to it is prepared any more; it never falls.
    epoch_aborted_max: int

    # The commands obeyed so far. Invariant: the term never falls, and an epoch never changes its plan.
    fence: CommandFence

    # Whether this broker may leave the overlay although no plan moves the clients here: their stays end with the epoch.
    leaves_clients: bool

    # The time of the message being handled.
    now_ms: float

    # Since boot: the most deliveries held back at one time, and the messages to neighbours except notifications.
    held_count_max: int
    control_messages_sent: int

    def __init__(self, broker: str, tables: Tables) -> None:
        self.broker = broker
        self.early = EarlyMessages()
        self.has_overflowed = False
        self.epoch_aborted_max = -1
        self.fence = CommandFence()
        self.leaves_clients = False
        self.now_ms = 0.0
        self.held_count_max = 0
        self.control_messages_sent = 0
        self.begin_with(tables)

    def begin_with(self, tables: Tables) -> None:
        """Hold these tables, and no other state of clients and neighbours."""
        self.epoch = tables.epoch
        self.tables = {tables.epoch: tables}
        self.under_way = None
        self.lost_peers = set()  # A dead neighbour of an earlier overlay may be back.
        self.incarnations = NeighbourIncarnations()
        self.held = deque()
        self.postponed = deque()

    # --- epochs and phases -------------------------------------------------------------------------------------------

    def epochs(self) -> list[Tables]:
        """Return the tables of all live epochs, oldest first."""
        return [self.tables[epoch] for epoch in sorted(self.tables)]

    def begin_plan(self, under_way: Plan, tables: Tables) -> None:
        """Start a plan, with the tables of its epoch to fill."""
        self.incarnations.begin_plan(self.tables[self.epoch].configuration, tables.configuration, tables.lost)
        self.tables[tables.epoch] = tables
        self.under_way = under_way

    @property
    def phase(self) -> BrokerPhase:
        """The phase of this broker in a transition."""
        if self.under_way is None:
            return BrokerPhase.STEADY
        if not self.under_way.is_active:
            return BrokerPhase.PREPARED if self.under_way.is_prepared else BrokerPhase.PREPARING
        return BrokerPhase.DRAINED if self.under_way.is_drained_reported else BrokerPhase.DRAINING

    @property
    def takes_clients(self) -> bool:
        """Whether clients may connect: the broker is in the overlay of every live epoch.

        A joining broker accepts none until the older epoch is retired: nothing published in that comes here.
        """
        return not any(tables.is_outside for tables in self.tables.values())

    def note_reported(self, dead: set[str]) -> None:
        """Note that the controller reports brokers dead; links to neighbours may have yet to do so."""
        self.incarnations.note_reported(dead.intersection(self.epochs()[0].neighbours) - self.lost_peers)

    # --- messages that come too early --------------------------------------------------------------------------------

    def keep_early(self, epoch: int, source: str | None, message: ControlMessage | ClientRequest) -> list[Effect]:
        """Keep a message of an epoch that is yet to be prepared; ignore one of a finished epoch."""
        if epoch > max(self.tables) and epoch > self.epoch_aborted_max:
            self.has_overflowed |= not self.early.keep(epoch, source, message)
        return []

    # --- requests that wait until the plan, or whatever else they wait for, is over ----------------------------------

    def postpone(self, request: PublisherRequest) -> list[Effect]:
        """Keep a request until the plan, or whatever else it waits for, is over."""
        self.postponed.append(request)
        return []

    def drop_postponed(self, request: UnadvertiseRequest) -> bool:
        """Forget the postponed requests of a stay that has ended; return True if there were any."""
        kept = deque(one for one in self.postponed if stay_of(one) != stay_of(request))
        has_waited = len(kept) < len(self.postponed)
        self.postponed = kept
        return has_waited

    def take_postponed(self) -> deque[PublisherRequest]:
        """Return the postponed requests, to be served again in order; those that must wait longer are kept again."""
        waiting, self.postponed = self.postponed, deque()
        return waiting
