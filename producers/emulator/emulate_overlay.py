"""The emulated overlay: brokers with a service queue, links with a delay, clients at their homes, on SimPy's clock.

In: a SimPy environment (virtual or wall clock: the model does not know which), an inventory, requests of clients and
commands. Out: telemetry cells and counters, results, and the ledger's account. What a broker does with a message is
decided by its core (:mod:`producers.brokers.broker_protocol`); who publishes and subscribes what, by a workload.

Times are milliseconds of the environment's clock. One hop of a notification is two events: its arrival and the end of
its service; both are plain timeouts with a callback, since a SimPy process for each message would double their cost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, cast

import simpy

from overlay.inventory import Inventory
from producers.brokers.broker_messages import (
    AdvertiseConfirmed,
    Answer,
    Cancelled,
    CancelRequest,
    ClientDropped,
    ClientRequest,
    Confirmed,
    Deliver,
    Dropped,
    Effect,
    Message,
    Notification,
    Published,
    PublisherLeaves,
    PublisherTaken,
    Send,
    SubscribeRequest,
    UserDrained,
    UserMoves,
    UserStays,
    UserTaken,
    control_messages_in,
)
from producers.brokers.broker_protocol import BrokerProtocol
from producers.brokers.match_content import Content, Filter
from producers.emulator.delivery_cells import DeliveryCells
from producers.emulator.ledger import Ledger
from producers.emulator.publisher_clients import PublisherClients
from producers.emulator.starting_point import StartingPoint
from producers.emulator.user_clients import UserClients
from schemas.client import Role
from schemas.command import Command, CommandResult
from schemas.telemetry import ClientChange

CONTROL_BYTES = 64  # What a control message is taken to weigh on a link, also in a bundle.
QUEUE_OVERFLOW = "queue_overflow"
BROKER_DIED = "broker_died"


@dataclass(frozen=True, slots=True)
class PeerLost:
    """A neighbour is dead."""

    peer: str


Served = Message | ClientRequest | Command | PeerLost


def _control_bytes(message: Served) -> int:
    return CONTROL_BYTES * control_messages_in(message)


def _handled(core: BrokerProtocol, source: str | None, message: Served, now_ms: float) -> list[Effect]:
    if isinstance(message, PeerLost):
        return core.lose_peer(message.peer, now_ms)
    return core.handle(source, message, now_ms)


@dataclass(frozen=True, slots=True)
class OverlayTiming:
    """How long things take, in ms; each can be replaced, by random delays in tests for example.

    ``service_ms(broker, message)``: one message in a broker's queue. ``link_delay_ms(broker, peer)``: asked for every
    message; a link keeps its order whatever the answers are. ``bytes_per_ms_max``: bandwidth of each direction of a
    link, None for no limit.
    """

    service_ms: Callable[[str, Served], float]
    link_delay_ms: Callable[[str, str], float]
    bytes_per_ms_max: float | None = None


def inventory_timing(
    inventory: Inventory, control_service_ms: float, bytes_per_ms_max: float | None = None
) -> OverlayTiming:
    """Take the inventory's costs as what they are in a demo: ms of service and of one-way delay."""
    processing_ms = {
        broker: float(cost) for broker, cost in zip(inventory.brokers, inventory.processing_cost, strict=True)
    }
    delays_ms: dict[tuple[str, str], float] = {}

    def service_ms(broker: str, message: Served) -> float:
        if message.__class__ is Notification:
            return processing_ms[broker]
        return control_service_ms * control_messages_in(message)

    def link_delay_ms(broker: str, peer: str) -> float:
        delay_ms = delays_ms.get((broker, peer))
        if delay_ms is None:
            delay_ms = delays_ms[broker, peer] = inventory.cost_of_link(broker, peer)
        return delay_ms

    return OverlayTiming(service_ms, link_delay_ms, bytes_per_ms_max)


class OverlayListener(Protocol):
    """Who is told what happens to clients and commands."""

    def on_client_change(self, client: str, role: Role, home: str, filter_: Filter | None) -> None:
        """A client has come or moved to another home, with its filter, or left, with None."""

    def on_may_publish(self, publisher: str) -> None:
        """All brokers that must know the publisher do."""

    def on_result(self, result: CommandResult) -> None:
        """A broker has answered a command."""


class UserListener(Protocol):
    """Who is told what happens to the users of a ring."""

    def on_user_change(self, user: str, home: str, topics: tuple[str, ...] | None) -> None:
        """A user has come, moved to another home or wants other topics, or has left, with None."""


class QueueCounters:
    """Counters of one queue since boot, as telemetry reports them."""

    __slots__ = (
        "busy_ms",
        "bytes_in",
        "bytes_out",
        "messages_in",
        "messages_out",
        "notifications_out",
        "queue_length_max",
        "wait_ms",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.messages_out = 0
        self.notifications_out = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.busy_ms = 0.0
        self.queue_length_max = 0  # Since telemetry last asked, which resets it.
        self.wait_ms = 0.0


class LinkEnd:
    """The outgoing end of a link: what is on its way from one broker to another, in the order it was sent."""

    __slots__ = ("broker", "busy_until_ms", "counters", "last_arrival_ms", "on_the_way", "peer", "waits_ms")

    def __init__(self, broker: str, peer: str) -> None:
        self.broker = broker
        self.peer = peer
        self.counters = QueueCounters()
        self.on_the_way: deque[Message] = deque()
        self.waits_ms: deque[float] = deque()  # Of the same messages; empty where the bandwidth is not limited.
        self.busy_until_ms = 0.0
        self.last_arrival_ms = 0.0


class EmulatedBroker:
    """One broker: its core behind one bounded service queue, and its telemetry."""

    __slots__ = (
        "cells",
        "changes",
        "core",
        "counters",
        "is_dead",
        "name",
        "overflow_count",
        "queue",
        "service_began_ms",
    )

    def __init__(self, core: BrokerProtocol, cells: DeliveryCells) -> None:
        self.name = core.broker
        self.core = core
        self.cells = cells
        self.changes: list[ClientChange] = []
        self.counters = QueueCounters()
        self.queue: deque[tuple[str | None, Served, float]] = deque()  # With its arrival; the first one is in service.
        self.service_began_ms = 0.0
        self.overflow_count = 0
        self.is_dead = False


class EmulatedOverlay:
    """All brokers, links and clients. ``queue_length_max`` bounds the notifications in front of a broker: beyond it
    they are dropped; control messages, markers, requests and commands never are. No ``start``: the bootstrap."""

    def __init__(
        self,
        env: simpy.Environment,
        inventory: Inventory,
        timing: OverlayTiming,
        ledger: Ledger,
        *,
        queue_length_max: int,
        cells_kept_s: int,
        start: StartingPoint | None = None,
    ) -> None:
        self.env = env
        self.inventory = inventory
        self.timing = timing
        self.ledger = ledger
        self.boot_ms = int(env.now)
        self.start = start or StartingPoint(inventory.bootstrap)
        cores = [self.start.core_of(broker, self.boot_ms) for broker in inventory.brokers]
        self.brokers = {core.broker: EmulatedBroker(core, DeliveryCells(cells_kept_s)) for core in cores}
        self.link_ends: dict[tuple[str, str], LinkEnd] = {}
        self.listeners: list[OverlayListener] = []
        self.user_listeners: list[UserListener] = []
        self.hop_count = 0  # Notifications handled by brokers: the benchmark's unit.
        self.control_count = 0
        self._queue_length_max = queue_length_max
        self.publishers = PublisherClients(
            env,
            ledger,
            lambda home, message: self._enqueue(self.brokers[home], None, message),
            self._change_publisher,
            lambda publisher, home, filter_: self._tell(publisher, Role.PUBLISHER, home, filter_),
        )
        self.users = UserClients(
            env,
            ledger,
            lambda home, request: self._enqueue(self.brokers[home], None, request),
            self._change_user,
            self._tell_user,
        )
        self._subscriptions: dict[str, tuple[str, Filter]] = {}  # subscription -> home, filter; until cancelled
        self._under_way = 0  # Messages in queues and on links.

    # --- clients ---------------------------------------------------------------------------------------------------

    def advertise(self, publisher: str, home: str, filter_: Filter) -> None:
        """Connect a publisher to its home; it may publish when the listeners are told so."""
        self.publishers.connect(publisher, home, filter_)

    def unadvertise(self, publisher: str) -> None:
        """Disconnect a publisher; what it has published is still delivered."""
        self.publishers.disconnect(publisher)

    def publish(self, publisher: str, content: Content, size_bytes: int) -> None:
        """Hand a notification to its publisher's home; raise ClientError when it may not publish yet."""
        self.publishers.publish(publisher, content, size_bytes)

    def subscribe(self, subscription: str, home: str, filter_: Filter) -> None:
        """Connect a subscriber with one subscription to its home; names are never used again."""
        self._subscriptions[subscription] = (home, filter_)
        self._change(subscription, Role.SUBSCRIBER, home, filter_)
        self._enqueue(self.brokers[home], None, SubscribeRequest(subscription, subscription, filter_))

    def cancel(self, subscription: str) -> None:
        """End a subscription now; nothing happens when it has ended before."""
        found = self._subscriptions.pop(subscription, None)
        if found is not None:
            home = found[0]
            self.ledger.cancel(subscription, self.env.now)
            self._change(subscription, Role.SUBSCRIBER, home, None)
            self._enqueue(self.brokers[home], None, CancelRequest(subscription))

    def connect_user(self, user: str, home: str, topics: Iterable[str]) -> None:
        """Connect a user of a ring to its home; it may come again after it has left."""
        self.users.connect(user, home, topics)

    def change_topics(self, user: str, topics: Iterable[str]) -> None:
        """Let a user want these topics and no others from now on."""
        self.users.change_topics(user, topics)

    def disconnect_user(self, user: str) -> None:
        """Disconnect a user; what was published before is still delivered."""
        self.users.disconnect(user)

    def user_home(self, user: str) -> str | None:
        """Return where a user is, None when it is not connected."""
        return self.users.home_of(user)

    def kill(self, name: str, notice_ms: float) -> None:
        """Let a broker die: what it holds and what reaches it is lost, its subscribers end, its publishers go on
        wherever a broker takes them. Its neighbours notice after ``notice_ms`` and all that it had sent them.
        """
        dead = self.brokers[name]
        dead.is_dead = True
        for _, message, _ in dead.queue:
            self._lose(message)
        self._under_way -= len(dead.queue)
        dead.queue.clear()
        for notification in dead.core.held_notifications:
            self._lose(notification)
        for subscription in [one for one, (home, _) in self._subscriptions.items() if home == name]:
            self.cancel(subscription)
        self.publishers.lose_home(name)
        self.users.lose_home(name)
        for peer in dead.core.live_neighbours:
            end = self.link_ends.get((name, peer))
            last_ms = self.env.now if end is None else end.last_arrival_ms
            notice = self.env.timeout(max(notice_ms, last_ms - self.env.now), (name, peer))
            notice.callbacks.append(self._notice_death)

    def _notice_death(self, event: simpy.Event) -> None:
        """Put the news into the neighbour's queue, behind what the dead broker had sent it."""
        name, peer = cast("tuple[str, str]", event.value)
        self._enqueue(self.brokers[peer], None, PeerLost(name))

    def _lose(self, message: Served) -> None:
        if isinstance(message, Notification):
            self.ledger.drop(message, BROKER_DIED)

    def obey(self, command: Command) -> None:
        """Put a command into its broker's queue; raise KeyError when there is no such broker."""
        self._enqueue(self.brokers[command.broker], None, command)

    @property
    def is_quiet(self) -> bool:
        """Tell whether no message is in a queue or on a link, no delivery is held back and no publisher is homeless."""
        is_held = any(broker.core.held_notifications for broker in self.brokers.values() if not broker.is_dead)
        return not self._under_way and not is_held and not self.publishers.is_any_moving

    @property
    def overflow_count(self) -> int:
        """How many notifications found a full queue."""
        return sum(broker.overflow_count for broker in self.brokers.values())

    def _change(self, client: str, role: Role, home: str, filter_: Filter | None, connection: int = 0) -> None:
        what = "left" if filter_ is None else f"came as {role}"
        self.brokers[home].changes.append(ClientChange(client, 2 * connection + (filter_ is None), what))
        self._tell(client, role, home, filter_)

    def _change_publisher(self, publisher: str, connection: int, home: str, filter_: Filter | None) -> None:
        self._change(publisher, Role.PUBLISHER, home, filter_, connection)

    def _change_user(self, user: str, home: str, topics: tuple[str, ...] | None, changes: int) -> None:
        what = "left" if topics is None else "came as user" if changes == 1 else "wants other topics"
        self.brokers[home].changes.append(ClientChange(user, changes, what))
        self._tell_user(user, home, topics)

    def _tell_user(self, user: str, home: str, topics: tuple[str, ...] | None) -> None:
        for listener in self.user_listeners:
            listener.on_user_change(user, home, topics)

    def _tell(self, client: str, role: Role, home: str, filter_: Filter | None) -> None:
        for listener in self.listeners:
            listener.on_client_change(client, role, home, filter_)

    # --- brokers: arrival and end of service -----------------------------------------------------------------------

    def _enqueue(self, broker: EmulatedBroker, source: str | None, message: Served) -> None:
        if broker.is_dead:
            self._lose(message)
            return
        queue = broker.queue
        counters = broker.counters
        if message.__class__ is Notification:
            if len(queue) >= self._queue_length_max:
                broker.overflow_count += 1
                self.ledger.drop(message, QUEUE_OVERFLOW)
                return
            counters.bytes_in += message.size_bytes
        else:
            counters.bytes_in += _control_bytes(message)
        self._under_way += 1
        counters.messages_in += 1
        queue.append((source, message, self.env.now))
        length = len(queue)
        if length > counters.queue_length_max:
            counters.queue_length_max = length
        if length == 1:
            self._begin_service(broker)

    def _begin_service(self, broker: EmulatedBroker) -> None:
        env = self.env
        broker.service_began_ms = env.now
        service_ms = self.timing.service_ms(broker.name, broker.queue[0][1])
        env.timeout(service_ms, broker).callbacks.append(self._end_service)

    def _end_service(self, event: simpy.Event) -> None:
        broker = cast(EmulatedBroker, event.value)
        if broker.is_dead:
            return
        now_ms = self.env.now
        source, message, arrived_ms = broker.queue[0]
        counters = broker.counters
        counters.messages_out += 1
        counters.busy_ms += now_ms - broker.service_began_ms
        counters.wait_ms += broker.service_began_ms - arrived_ms
        if message.__class__ is Notification:
            counters.notifications_out += 1
            counters.bytes_out += message.size_bytes
            self.hop_count += 1
        else:
            counters.bytes_out += _control_bytes(message)
            self.control_count += control_messages_in(message)
        for effect in _handled(broker.core, source, message, now_ms):
            self._carry_out(broker, effect)
        broker.queue.popleft()  # Only now: what its effects put into this very queue must not begin a second service.
        self._under_way -= 1
        if broker.queue:
            self._begin_service(broker)

    def _carry_out(self, broker: EmulatedBroker, effect: Effect) -> None:
        if isinstance(effect, Send):
            self._send(broker.name, effect.peer, effect.message)
            return
        match effect:
            case Deliver(notification, subscriptions):
                broker.cells.note_delivered(notification, len(subscriptions))
                for subscription in subscriptions:
                    self.ledger.deliver(notification, subscription, self.env.now)
            case Published(notification):
                broker.cells.note_published(notification)
            case Confirmed(subscription):
                if subscription in self._subscriptions:
                    self.ledger.confirm(subscription, self._subscriptions[subscription][1], self.env.now)
                elif not self.users.confirm(subscription, broker.name):
                    self.ledger.confirm_ended(subscription, self.env.now)
            case AdvertiseConfirmed(publisher, connection):
                if self.publishers.allow(publisher, connection):
                    for listener in self.listeners:
                        listener.on_may_publish(publisher)
            case PublisherLeaves(publisher, home_to, connection):
                self.publishers.leave(publisher, connection, home_to)
            case PublisherTaken(publisher, connection):
                self.publishers.take(publisher, connection, broker.name)
            case UserMoves(user, connection, home_to, epoch):
                self.users.move(user, connection, home_to, epoch)
            case UserStays(user, connection):
                self.users.stay(user, connection)
            case UserTaken(user):
                self.users.take(user, broker.name)
            case UserDrained(user, subscription, home_to):
                self.users.drain(user, subscription, home_to)
            case Answer(result):
                for listener in self.listeners:
                    listener.on_result(result)
            case ClientDropped(client, connection):
                if not self.publishers.drop(client, connection) and not self.users.drop(client, connection):
                    self.cancel(client)
            case Dropped(notification, reason):
                self.ledger.drop(notification, reason)
            case Cancelled():
                pass  # The client left when it cancelled; that its brokers have forgotten it concerns nobody.

    # --- links -----------------------------------------------------------------------------------------------------

    def _send(self, source_broker: str, peer: str, message: Message) -> None:
        end = self.link_ends.get((source_broker, peer))
        if end is None:
            end = self.link_ends[source_broker, peer] = LinkEnd(source_broker, peer)
        env, counters = self.env, end.counters
        now_ms = env.now
        size_bytes = message.size_bytes if message.__class__ is Notification else _control_bytes(message)
        self._under_way += 1
        counters.messages_in += 1
        counters.bytes_in += size_bytes
        end.on_the_way.append(message)
        if len(end.on_the_way) > counters.queue_length_max:
            counters.queue_length_max = len(end.on_the_way)
        leaves_ms = now_ms
        if self.timing.bytes_per_ms_max is not None:
            transmission_ms = size_bytes / self.timing.bytes_per_ms_max
            leaves_ms = end.busy_until_ms = max(now_ms, end.busy_until_ms) + transmission_ms
            end.waits_ms.append(leaves_ms - now_ms)
            counters.busy_ms += transmission_ms
        arrival_ms = leaves_ms + self.timing.link_delay_ms(source_broker, peer)
        if arrival_ms < end.last_arrival_ms:
            arrival_ms = end.last_arrival_ms
        end.last_arrival_ms = arrival_ms
        env.timeout(arrival_ms - now_ms, end).callbacks.append(self._arrive)

    def _arrive(self, event: simpy.Event) -> None:
        """Hand over the longest on its way, whichever message the event was made for: rounding cannot break order."""
        end = cast(LinkEnd, event.value)
        message = end.on_the_way.popleft()
        counters = end.counters
        counters.messages_out += 1
        if end.waits_ms:
            counters.wait_ms += end.waits_ms.popleft()
        if message.__class__ is Notification:
            counters.notifications_out += 1
            counters.bytes_out += message.size_bytes
        else:
            counters.bytes_out += _control_bytes(message)
        self._under_way -= 1
        self._enqueue(self.brokers[end.peer], end.broker, message)
