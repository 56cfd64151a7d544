"""The emulated overlay: brokers with a service queue, links with a delay, clients at their homes, on SimPy's clock.

In: a SimPy environment (virtual or wall clock: the model does not know which), an inventory, requests of clients and
commands. Out: telemetry cells and counters, results, and the ledger's account. A broker's core decides how it handles a
message (:mod:`producers.brokers.broker_protocol`), a workload who publishes and subscribes to what. Without a starting
point, brokers begin at the bootstrap overlay.

Times are milliseconds of the environment's clock. One hop of a notification is two events, its arrival and the end of
its service: plain timeouts with a callback, because a SimPy process for each message would double their cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import cast

import simpy

from regraft.overlay.inventory.inventory import Inventory
from regraft.producers.brokers.broker_messages import (
    AdvertiseConfirmed,
    Answer,
    Cancelled,
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
    SubscriberEffect,
    control_messages_in,
)
from regraft.producers.brokers.match_content import Content, Filter
from regraft.producers.brokers.ring_messages import UserEffect
from regraft.producers.emulator.delivery_cells import CellRule
from regraft.producers.emulator.emulated_broker import EmulatedBroker, Homes, LinkEnd, PeerLost, QueueCounters, Served
from regraft.producers.emulator.emulator_ports import OverlayListener
from regraft.producers.emulator.judge_losses import IncarnationEnd, LossJudge, copy_key
from regraft.producers.emulator.ledger import Ledger
from regraft.producers.emulator.link_faults import LinkFaults
from regraft.producers.emulator.notify_movers import drop_client, hand_over, notify_mover
from regraft.producers.emulator.publisher_clients import PublisherClients
from regraft.producers.emulator.starting_point import StartingPoint
from regraft.producers.emulator.subscriber_clients import HomesInTurn, SubscriberClients
from regraft.producers.emulator.user_clients import UserClients
from regraft.schemas.client import Role
from regraft.schemas.command import Command, CommandPhase, CommandResult, Outcome
from regraft.schemas.telemetry import ClientChange

CONTROL_BYTES = 64  # Assumed size of a control message on a link, also in a bundle.
QUEUE_OVERFLOW = "queue_overflow"
CLIENTS_ASSIGNED_MAX = 10_000  # Brokers that will take over clients of lost ones, in plans not active yet.


def _control_bytes(message: Served) -> int:
    return CONTROL_BYTES * control_messages_in(message)


@dataclass(frozen=True, slots=True)
class OverlayTiming:
    """How long things take, in ms; tests replace them, for example by random delays.

    ``service_ms(broker, message)``: service of one message in a broker's queue. ``link_delay_ms(broker, peer)``: called
    for every message; a link keeps its order whatever this returns. ``bytes_per_ms_max``: bandwidth of a link in each
    direction, None for no limit.
    """

    service_ms: Callable[[str, Served], float]
    link_delay_ms: Callable[[str, str], float]
    bytes_per_ms_max: float | None = None


def inventory_timing(
    inventory: Inventory, control_service_ms: float, bytes_per_ms_max: float | None = None
) -> OverlayTiming:
    """Return a timing with the inventory's costs as a demo means them: ms of service and of one-way delay."""
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


class EmulatedOverlay:
    """All brokers, links and clients; a queue of ``queue_length_max`` messages drops notifications, but no others."""

    def __init__(
        self,
        env: simpy.Environment,
        inventory: Inventory,
        timing: OverlayTiming,
        ledger: Ledger,
        *,
        queue_length_max: int,
        cells: CellRule,
        start: StartingPoint | None = None,
    ) -> None:
        self.env = env
        self.inventory = inventory
        self.timing = timing
        self.ledger = ledger
        self.boot_ms = int(env.now)
        self.start = start or StartingPoint(inventory.bootstrap, clients_stay=inventory.clients_stay)
        cores = [self.start.core_of(broker, self.boot_ms) for broker in self.start.brokers_of(inventory)]
        self.brokers = {core.broker: EmulatedBroker(core, cells.new_cells()) for core in cores}
        self.link_ends: dict[tuple[str, str], LinkEnd] = {}
        self.listeners: list[OverlayListener] = []
        self.hop_count = 0  # Notifications handled by brokers; the benchmark counts these.
        self.control_count = 0
        self._queue_length_max = queue_length_max
        self.cells = cells
        self.link_faults = LinkFaults(env)
        self._clients_assigned: dict[tuple[int, str], set[str]] = {}  # Clients of lost brokers, by epoch and next home.
        self.judge = ledger.excuses = LossJudge(self.start.configuration, clients_stay=self.start.clients_stay)
        self.turns = HomesInTurn()
        self._connect_clients()
        self._in_flight = 0  # Messages in queues and on links.

    def _connect_clients(self) -> None:
        env, ledger, homes, place = self.env, self.ledger, Homes(self.brokers), self.judge.place

        def ask(home: str, message: ClientRequest | Notification) -> None:
            self._enqueue(self.brokers[home], None, message)

        def move_publisher(publisher: str, home: str, filter_: Filter) -> None:
            self._notify(publisher, Role.PUBLISHER, home, filter_)

        def change_subscriber(name: str, home: str, filter_: Filter | None) -> None:
            self._change(name, Role.SUBSCRIBER, home, filter_)

        def move_subscriber(name: str, home: str, filter_: Filter) -> None:
            self._notify(name, Role.SUBSCRIBER, home, filter_)

        self.publishers = PublisherClients(
            env, ledger, ask, self._change_publisher, move_publisher, homes.is_serving, homes.may_accept
        )
        self.subscribers = SubscriberClients(
            env, ledger, ask, change_subscriber, move_subscriber, homes.is_serving, place, self.turns
        )
        self.users = UserClients(
            env, ledger, ask, self._change_user, self._notify_user, homes.is_serving, place, self.turns
        )

    # --- clients ---------------------------------------------------------------------------------------------------

    def advertise(self, publisher: str, home: str, filter_: Filter) -> None:
        """Connect a publisher to its home; it may publish once the listeners are notified."""
        self.publishers.connect(publisher, home, filter_)

    def publish(self, publisher: str, content: Content, size_bytes: int) -> None:
        """Hand a notification to its publisher's home; raise ClientError if the publisher may not publish yet."""
        self.publishers.publish(publisher, content, size_bytes)

    def subscribe(self, subscription: str, home: str, filter_: Filter) -> None:
        """Connect a subscriber with one subscription to its home; names are never reused."""
        self.subscribers.subscribe(subscription, home, filter_)

    def cancel(self, subscription: str) -> None:
        """End a subscription now; do nothing if it has already ended."""
        self.subscribers.cancel(subscription)

    # --- outages -----------------------------------------------------------------------------------------------------

    def kill(self, name: str, notice_ms: float) -> None:
        """Kill a broker with all it holds; neighbours notice after ``notice_ms`` and after all that it had sent."""
        dead = self.brokers[name]
        if dead.is_dead:
            return
        end = self._end_incarnation(dead)
        dead.is_dead = True
        for _, message, _ in dead.queue:
            self._note_loss(dead, message)
        dead.lost.update(copy_key(one) for one in dead.core.held_notifications)
        self._in_flight -= len(dead.queue)
        dead.queue.clear()
        aware = {peer for peer, other in self.brokers.items() if name in other.core.live_neighbours}
        for peer in sorted(aware.union(dead.core.live_neighbours)):
            sent = self.link_ends.get((name, peer))
            last_ms = self.env.now if sent is None else sent.last_arrival_ms
            pause_ms = max(notice_ms, last_ms - self.env.now)
            dead.arrives_from_ms = max(dead.arrives_from_ms, self.env.now + pause_ms)
            self.brokers[peer].neighbour_deaths.append(end)
            self.env.timeout(pause_ms, (name, self.brokers[peer])).callbacks.append(self._notice_death)

    def _notice_death(self, event: simpy.Event) -> None:
        """Put the death into the neighbour's queue, behind everything the dead broker had sent it."""
        name, peer = cast("tuple[str, EmulatedBroker]", event.value)
        self._enqueue(peer, None, PeerLost(name))

    def _note_loss(self, dead: EmulatedBroker, message: Served) -> None:
        if isinstance(message, Notification):
            dead.lost.add(copy_key(message))

    def _mark_cut_off(self, broker: EmulatedBroker, notification: Notification) -> None:
        """Note a notification that a neighbour of a dead broker handles only now: it can no longer cross that."""
        publisher, sequence, _ = copy_key(notification)
        for end in broker.neighbour_deaths:
            if notification.publish_ms < end.ended_ms:
                end.lost.update(((publisher, sequence, False), (publisher, sequence, True)))

    def _end_incarnation(self, broker: EmulatedBroker, *, is_alive: bool = False) -> IncarnationEnd:
        """End this incarnation of a broker, which may only be suspended: from now on it counts as dead."""
        end = IncarnationEnd(self.env.now, broker.lost, is_alive)
        self.judge.end_incarnation(broker.name, end)
        broker.is_outside = broker.counts_as_dead = True
        for clients in (self.publishers, self.subscribers, self.users):
            clients.lose_home(broker.name)
        return end

    def restart_broker(self, name: str) -> None:
        """Restart a dead broker, empty and outside the overlay, until a plan lets it join."""
        dead = self.brokers[name]
        if not dead.is_dead:
            return
        core = self.start.outsider(name, int(self.env.now))
        back = self.brokers[name] = EmulatedBroker(core, self.cells.new_cells())
        back.is_outside, back.arrives_from_ms, back.known_as = True, dead.arrives_from_ms, dead.known_as
        for pair in [pair for pair in self.link_ends if pair[0] == name]:
            del self.link_ends[pair]

    def suspend(self, name: str) -> None:
        """Suspend a broker: its input waits, and it sends nothing."""
        self.brokers[name].is_suspended = True

    def resume(self, name: str) -> None:
        """Resume a suspended broker with everything that has arrived meanwhile."""
        broker = self.brokers[name]
        broker.is_suspended = False
        if broker.is_overdue:
            broker.is_overdue = False
            self._begin_service(broker)

    def link_delay_ms(self, broker: str, peer: str) -> float:
        """Return how long a message sent now takes over a link, including the wait for the end of a cut."""
        return self.link_faults.delayed_ms(broker, peer, self.timing.link_delay_ms(broker, peer))

    def _reconnect_links(self, broker: str, peers: Iterable[str]) -> None:
        """Connect a broker to the present incarnation of peers that join by a plan."""
        for peer in peers:
            end = self.link_ends.get((broker, peer))
            if end is None or end.target is not self.brokers[peer]:
                self._open_link(broker, self.brokers[peer], QueueCounters() if end is None else end.counters)

    def _open_link(self, broker: str, target: EmulatedBroker, counters: QueueCounters) -> LinkEnd:
        end = LinkEnd(broker, target, counters, self.brokers[broker].arrives_from_ms)
        self.link_ends[broker, target.name] = end
        return end

    def _note_command(self, command: Command) -> None:
        """Note the next overlay, the lost brokers and the next homes of their clients from a command."""
        for name in self.judge.note_command(command):
            if not self.brokers[name].is_dead:
                self._end_incarnation(self.brokers[name], is_alive=True)
        given = {move.client for move in command.moves if move.home_from in command.lost_brokers}
        if command.phase is CommandPhase.PREPARE and given:
            here = {move.client for move in command.moves if move.client in given and move.home_to == command.broker}
            self._clients_assigned[command.epoch_to, command.broker] = here
            while len(self._clients_assigned) > CLIENTS_ASSIGNED_MAX:
                del self._clients_assigned[next(iter(self._clients_assigned))]

    def _admit_clients(self, broker: EmulatedBroker, *, is_over: bool) -> None:
        """Let clients connect that a plan sends to this broker; once the plan is over, also those that wait for it."""
        for client in sorted(self._clients_assigned.pop((broker.core.epoch, broker.name), ())):
            self.publishers.reconnect(client, broker.name)
            self.users.reconnect(client, broker.name)
        if is_over and broker.is_awaited and self.judge.participates(broker.name, broker.core.epoch):
            broker.is_outside, broker.has_rejected, broker.known_as = False, False, broker
            for clients in (self.publishers, self.subscribers, self.users):
                clients.reconnect_waiting(broker.name)

    def obey(self, command: Command) -> None:
        """Put a command into its broker's queue; raise KeyError if there is no such broker."""
        self._note_command(command)
        self._enqueue(self.brokers[command.broker], None, command)

    @property
    def is_quiet(self) -> bool:
        """Whether no message is in transit, no delivery is held and no publisher is on its way to a known home."""
        is_held = any(broker.core.held_notifications for broker in self.brokers.values() if not broker.is_dead)
        return not self._in_flight and not is_held and not self.publishers.is_any_moving

    @property
    def overflow_count(self) -> int:
        """Number of notifications that found a full queue."""
        return sum(broker.overflow_count for broker in self.brokers.values())

    def _change(self, client: str, role: Role, home: str, filter_: Filter | None, connection: int = 0) -> None:
        what = "left" if filter_ is None else f"came as {role}"
        self.brokers[home].changes.append(ClientChange(client, 2 * connection + (filter_ is None), what))
        self._notify(client, role, home, filter_)

    def _change_publisher(self, publisher: str, connection: int, home: str, filter_: Filter | None) -> None:
        self._change(publisher, Role.PUBLISHER, home, filter_, connection)

    def _change_user(self, user: str, home: str, topics: tuple[str, ...] | None, changes: int) -> None:
        what = "left" if topics is None else "came as user" if changes == 1 else "wants other topics"
        self.brokers[home].changes.append(ClientChange(user, changes, what))
        self._notify_user(user, home, topics)

    def _notify_user(self, user: str, home: str, topics: tuple[str, ...] | None) -> None:
        for listener in self.listeners:
            listener.on_user_change(user, home, topics)

    def _report_result(self, broker: EmulatedBroker, result: CommandResult) -> None:
        broker.counts_as_dead &= result.outcome is not Outcome.INSTALLED
        if result.outcome in (Outcome.ACTIVATED, Outcome.RETIRED, Outcome.ABORTED):
            self._admit_clients(broker, is_over=result.outcome is not Outcome.ACTIVATED)
        for listener in self.listeners:
            listener.on_result(result)

    def _notify(self, client: str, role: Role, home: str, filter_: Filter | None) -> None:
        for listener in self.listeners:
            listener.on_client_change(client, role, home, filter_)

    # --- brokers: arrival and end of service -----------------------------------------------------------------------

    def _enqueue(self, broker: EmulatedBroker, source: str | None, message: Served) -> None:
        if broker.is_dead:
            self._note_loss(broker, message)
            return
        queue, counters = broker.queue, broker.counters
        if message.__class__ is Notification:
            if len(queue) >= self._queue_length_max:
                broker.overflow_count += 1
                self.ledger.drop(message, QUEUE_OVERFLOW)
                return
            counters.bytes_in += message.size_bytes
        else:
            counters.bytes_in += _control_bytes(message)
        self._in_flight += 1
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
        if broker.is_suspended:
            broker.is_overdue = True
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
            if broker.neighbour_deaths:
                self._mark_cut_off(broker, message)
        else:
            counters.bytes_out += _control_bytes(message)
            self.control_count += control_messages_in(message)
        if message.__class__ is Command and message.phase is CommandPhase.PREPARE and message.brokers_joined:
            self._reconnect_links(broker.name, message.brokers_joined)
        for effect in broker.handle(source, message, now_ms):
            self._execute(broker, effect)
        broker.queue.popleft()  # Only now: what its effects put into this queue must not start a second service.
        self._in_flight -= 1
        if broker.queue:
            self._begin_service(broker)

    def _execute(self, broker: EmulatedBroker, effect: Effect) -> None:
        if isinstance(effect, Send):
            self._send(broker.name, effect.peer, effect.message)
            return
        if isinstance(effect, SubscriberEffect | UserEffect):
            notify_mover(effect, broker, self.subscribers, self.users, self.env.now)
            return
        match effect:
            case Deliver():
                hand_over(effect, broker, self.turns, self.ledger, self.env.now)
            case Published(notification):
                broker.cells.note_published(notification)
                self.ledger.stamp(notification)
            case Confirmed(subscription):
                if not self.subscribers.confirm(subscription) and not self.users.confirm(subscription, broker.name):
                    self.ledger.confirm_ended(subscription, self.env.now)
            case Cancelled(subscription):
                self.ledger.release(subscription, self.env.now)
            case AdvertiseConfirmed(publisher, connection):
                if self.publishers.allow(publisher, connection):
                    for listener in self.listeners:
                        listener.on_may_publish(publisher)
            case PublisherLeaves(publisher, home_to, connection):
                self.publishers.leave(publisher, connection, home_to, broker.name)
            case PublisherTaken(publisher, connection):
                self.publishers.take(publisher, connection, broker.name)
            case Answer(result):
                self._report_result(broker, result)
            case ClientDropped():
                drop_client(effect, broker, self.publishers, self.subscribers, self.users)
            case Dropped(notification, reason):
                self.ledger.drop(notification, reason)

    # --- links -----------------------------------------------------------------------------------------------------

    def _send(self, source_broker: str, peer: str, message: Message) -> None:
        end = self.link_ends.get((source_broker, peer))
        if end is None:
            # Brokers that do not know yet of the plan by which it joins know only its earlier incarnation.
            facts = self.brokers[peer].known_as if self.brokers[peer].is_outside else self.brokers[peer]
            end = self._open_link(source_broker, facts, QueueCounters())
        env, now_ms, counters = self.env, self.env.now, end.counters
        size_bytes = message.size_bytes if message.__class__ is Notification else _control_bytes(message)
        self._in_flight += 1
        counters.messages_in += 1
        counters.bytes_in += size_bytes
        end.in_transit.append(message)
        counters.queue_length_max = max(counters.queue_length_max, len(end.in_transit))
        leaves_ms = now_ms
        if self.timing.bytes_per_ms_max is not None:
            transmission_ms = size_bytes / self.timing.bytes_per_ms_max
            leaves_ms = end.busy_until_ms = max(now_ms, end.busy_until_ms) + transmission_ms
            end.waits_ms.append(leaves_ms - now_ms)
            counters.busy_ms += transmission_ms
        arrival_ms = leaves_ms + self.link_delay_ms(source_broker, peer)
        if arrival_ms < end.last_arrival_ms:
            arrival_ms = end.last_arrival_ms
        end.last_arrival_ms = arrival_ms
        env.timeout(arrival_ms - now_ms, end).callbacks.append(self._arrive)

    def _arrive(self, event: simpy.Event) -> None:
        """Hand over the oldest message on the link, not the one the event was made for: rounding cannot break order."""
        end = cast(LinkEnd, event.value)
        message, counters = end.in_transit.popleft(), end.counters
        counters.messages_out += 1
        if end.waits_ms:
            counters.wait_ms += end.waits_ms.popleft()
        if message.__class__ is Notification:
            counters.notifications_out += 1
            counters.bytes_out += message.size_bytes
        else:
            counters.bytes_out += _control_bytes(message)
        self._in_flight -= 1
        self._enqueue(end.target, end.broker, message)
