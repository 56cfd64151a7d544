"""One node: the protocol core of a broker between a real broker's connector, links to other nodes, Kafka and the clock.

In: messages from peers, commands, and what the connector reports. Out: the core's effects. Each input is handled
completely before the next, on one event loop; nothing here waits. What a broker does with a message belongs to its core
(:mod:`producers.brokers.tree_routing`), bytes and sockets to the links and the connector.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Protocol, cast

import structlog

from regraft.infra.process.handle_each import count_logged
from regraft.producers.brokers.broker_messages import (
    AdvertiseConfirmed,
    Answer,
    Bundle,
    Cancelled,
    ClientDropped,
    ClientRequest,
    Confirmed,
    Deliver,
    Dropped,
    Effect,
    Message,
    Published,
    Send,
    SubscriberAwaited,
    SubscriberMoves,
    SubscriberTaken,
)
from regraft.producers.brokers.broker_protocol import BrokerProtocol
from regraft.producers.brokers.broker_reports import BrokerPhase, ProtocolError
from regraft.producers.brokers.bundle_messages import bundled
from regraft.producers.emulator.delivery_cells import DeliveryCells
from regraft.producers.emulator.due_heartbeats import HeartbeatRule, Heartbeats, has_news
from regraft.producers.emulator.emit_telemetry import queue_sample
from regraft.producers.emulator.emulated_broker import PeerLost, QueueCounters, Served
from regraft.producers.emulator.emulator_ports import ClientSink, ResultSink, TelemetrySink
from regraft.producers.nodes.connectors.connector import Connector, LocalMessage
from regraft.producers.nodes.connectors.connector_checks import ConnectorChecks
from regraft.producers.nodes.connectors.groups_once import GroupHandlers, excluded_groups
from regraft.producers.nodes.links.carried_messages import CarriedNotification
from regraft.producers.nodes.links.run_links import Links
from regraft.producers.nodes.node_clients import NodeClients
from regraft.producers.nodes.node_kinds import is_subscribed, subscriptions_in
from regraft.producers.nodes.receipts import Receipts
from regraft.producers.nodes.reply_inboxes import ReplyInboxes
from regraft.producers.nodes.reported_clients import ReportedClients
from regraft.producers.nodes.wanted_elsewhere import WantedElsewhere
from regraft.producers.nodes.watch_congestion import CongestionWatch
from regraft.schemas.command import Command, CommandPhase, CommandResult, Outcome, Refusal
from regraft.schemas.sampled_blocks import FULL, Sampling
from regraft.schemas.split_batch import split_batch
from regraft.schemas.telemetry import LinkProbe, TelemetryBatch

log = structlog.get_logger(__name__)

CELLS_KEPT_S = 120
CONSIDERED_DEAD = "the controller or a neighbour considered this node dead: it starts over, and joins again by a plan"
NO_MOVES = "clients of a real broker stay where they connect: choose a planner that exchanges links only"
LINK_FULL, IMPOSSIBLE, ELSEWHERE = "link_full", "impossible_message", "handled_elsewhere"
PEER_LOST = "peer_lost"  # In place of a plan's name: this result answers no command.


class NodePorts(TelemetrySink, ResultSink, ClientSink, Protocol):
    """What a node sends to Kafka."""


class BrokerNode:
    """A core and everything around it. ``connector`` and the links that ``links_of`` returns call back here.

    ``candidates`` are brokers that may become neighbours: the node connects to them so that a link to them is measured.
    ``heartbeats``: which flushes without news still send, None for all.
    """

    def __init__(
        self,
        core: BrokerProtocol,
        ports: NodePorts,
        connector: Connector,
        links_of: Callable[[BrokerNode], Links],
        now_ms: Callable[[], float],
        candidates: Collection[str] = (),
        sampling: Sampling = FULL,
        heartbeats: HeartbeatRule | None = None,
    ) -> None:
        self.core, self.connector = core, connector
        self.broker = core.broker
        self.counts: Counter[str] = Counter()
        self.counters = QueueCounters()
        self.on_detour: Callable[[CarriedNotification], None] = lambda _: None  # Before it is handed over.
        self._ports, self._now_ms = ports, now_ms
        self._cells = DeliveryCells(CELLS_KEPT_S, sampling)
        self._batches_sent = 0
        self._heartbeats, self._heartbeat_rule = Heartbeats(), heartbeats
        self._installs, self._prepared = 0, cast(Command | None, None)
        self._neighbours: tuple[str, ...] = ()
        self._candidates = frozenset(candidates)
        self._is_busy = False
        self._inbox: deque[tuple[str | None, Served]] = deque()
        self._groups = GroupHandlers(self.broker, partial(is_subscribed, core))
        self._reported = ReportedClients(self.broker, self._cells, ports, self._groups, now_ms)
        self.clients = self._new_clients(core)
        self._agents = self._reported.agents = self.clients.agents
        self._agents.connect(connector.agents, self._refuse_move)
        self.clients.handlers = self._groups.choose
        self.wanted = WantedElsewhere(connector, self._serve, self._groups)
        self.links = links_of(self)
        self.links.roaming = connector.roaming
        self.receipts = Receipts(self.links.frames_owed, self.links.frames_over, connector.release)
        self.congestion = CongestionWatch(core, self.links, self.counts)
        self._checks = ConnectorChecks(self.broker, self.counts, connector.release)  # For any connector.
        self._inboxes = ReplyInboxes(self._want, self._note_message)
        self._checks.begin(self._inboxes.note_interest, self._inboxes.take)

    def _new_clients(self, core: BrokerProtocol) -> NodeClients:
        own, change = (self.broker, str(core.boot_ms)), self._reported.change
        return NodeClients(*own, self._ask, change, lambda: core.epoch, lambda: core.takes_clients)

    def add_candidate(self, peer: str) -> None:
        """Connect to one more broker, so that a link to it is measured."""
        self._candidates |= {peer}
        self.links.want(self._candidates.union(self._neighbours))

    def renew_candidates(self, peers: Collection[str]) -> None:
        """Measure links to these peers instead of the previous candidates."""
        self._candidates = frozenset(peers)
        self.links.want(self._candidates.union(self._neighbours))
        self.links.close_idle()

    @property
    def sampling(self) -> Sampling:
        """Which deliveries the node reports in full."""
        return self._cells.rule.sampling

    @sampling.setter
    def sampling(self, sampling: Sampling) -> None:
        self._cells.rule.sampling = sampling

    def begin(self) -> None:
        """Start: connect to candidates and neighbours, and register clients if the core accepts them."""
        self.links.want(self._candidates)
        self._sync_overlay()

    # --- inputs ------------------------------------------------------------------------------------------------------

    def take(self, peer: str, message: Message) -> None:
        """Handle a message from a peer, once the connector has asked for what it subscribes."""
        self.wanted.take(peer, message)

    def lose(self, peer: str) -> None:
        """Note that a peer has begun another incarnation; if it is a neighbour, it is considered dead.

        This is reported unasked: the peer may still run in its old incarnation, and nothing else would show that this
        node ignores it from now on.
        """
        self.wanted.release(peer)
        if peer in self.core.live_neighbours:
            self._serve(None, PeerLost(peer))
            self._ports.send_result(
                CommandResult(
                    PEER_LOST, CommandPhase.REPORT, self.broker, self.core.epoch, Outcome.REPORTED, "", 0,
                    int(self._now_ms()), (peer,),
                )
            )  # fmt: skip

    def obey(self, command: Command) -> None:
        """Execute a command; refuse one to prepare a move from this broker of clients without an agent."""
        if command.phase is CommandPhase.PREPARE and not self._agents.may_obey(command):
            self._refuse(command, NO_MOVES)
            return
        steps = {
            CommandPhase.PREPARE: self._prepare, CommandPhase.INSTALL: self._install, CommandPhase.RETIRE: self._retire
        }  # fmt: skip
        steps.get(command.phase, partial(self._serve, None))(command)
        self._sync_overlay()

    def _prepare(self, command: Command) -> None:
        """Prepare a plan; unless the core refuses, messages to brokers it admits are for their current incarnations."""
        joined = sorted(set(command.brokers_joined) - {self.broker})
        was_steady = self.core.phase is BrokerPhase.STEADY
        self._prepared = command
        if was_steady:
            for peer in joined:
                self.links.renew(peer)
        self._serve(None, command)
        if was_steady and self.core.phase is BrokerPhase.STEADY:
            for peer in joined:
                self.links.cancel_renewal(peer)

    def _retire(self, command: Command) -> None:
        """Retire the old epoch; report what the overlay no longer serves if this node was in that alone."""
        was_steady = self.core.phase is BrokerPhase.STEADY
        self._serve(None, command)
        if not (was_steady or self.core.takes_clients) and self.core.phase is BrokerPhase.STEADY:
            log.warning("overlay_left", broker=self.broker, subjects_unserved=self.clients.interest_count)

    def _install(self, command: Command) -> None:
        """Install; if the core restarts, begin another incarnation of the links: what was held or sent is void."""
        held = (self.core.epoch, self.core.takes_clients)
        self._serve(None, command)
        if (self.core.epoch, self.core.takes_clients) != held:
            self._installs += 1
            self.wanted.void()
            if held[1]:
                log.warning("life_over", broker=self.broker, epoch=held[0], reason=CONSIDERED_DEAD)
            self.receipts.begin_incarnation()
            self.links.begin_incarnation(f"{self.core.boot_ms}.{self._installs}")

    def note_interest(self, subject: str, is_wanted: bool) -> None:
        """Note that local clients want a subject, or no longer do."""
        self._checks.note_interest(subject, is_wanted)

    def _want(self, subject: str, is_wanted: bool) -> None:
        self.clients.note_interest(subject, is_wanted)
        self.clients.settle(self.core.takes_clients)

    def note_message(self, message: LocalMessage) -> None:
        """Handle a message that a local client has published."""
        self.counts["published"] += 1
        self._checks.note_message(message)

    def settle_receipts(self) -> None:
        """Release safe messages at the connector, and publish those that could not be published before."""
        self._inboxes.release_overdue()
        if len(self.receipts):
            for message in self.receipts.settle():
                self._note_message(message)

    def _note_message(self, message: LocalMessage) -> None:
        self.clients.note_message(message, self.core.takes_clients, self._now_ms(), self.core.epoch)

    def _ask(self, request: ClientRequest | CarriedNotification) -> None:
        self._serve(None, request)

    def _serve(self, source: str | None, message: Served) -> None:
        """Let the core handle a message, after the effects of earlier ones if it is still busy with them."""
        self._inbox.append((source, message))
        if not self._is_busy:
            self._serve_waiting()

    def _serve_waiting(self) -> None:
        self._is_busy = True
        try:
            while self._inbox:
                source, message = self._inbox.popleft()
                began_s = time.perf_counter()
                effects = self._effects_of(source, message)
                dropped_count = self.counts[LINK_FULL]
                self._apply(effects)
                self._agents.follow(self.core)
                if isinstance(message, CarriedNotification) and message.receipt:
                    self._note_receipt(message, effects, is_sent=self.counts[LINK_FULL] == dropped_count)
                self.counters.note_served(message, (time.perf_counter() - began_s) * 1_000)
        finally:
            self._is_busy = False

    def _note_receipt(self, carried: CarriedNotification, effects: list[Effect], *, is_sent: bool) -> None:
        message = LocalMessage(carried.subject, carried.payload, carried.reply, carried.headers, carried.receipt)
        if is_sent and any(isinstance(effect, Published) for effect in effects):
            self.receipts.note_published(message)
        else:
            self.receipts.note_failed(message)

    def _effects_of(self, source: str | None, message: Served) -> list[Effect]:
        if isinstance(message, PeerLost):
            return self.core.lose_peer(message.peer, self._now_ms())
        if source is None:
            return self.core.handle(source, message, self._now_ms())
        messages = message.messages if isinstance(message, Bundle) else (message,)
        effects = [effect for one in messages for effect in self._effects_of_one(source, one)]
        return bundled(effects) if len(messages) > 1 else effects

    def _effects_of_one(self, source: str, message: Message | ClientRequest | Command) -> list[Effect]:
        """Let the core handle a peer's message; one that is impossible is refused alone, before it changes anything."""
        try:
            return self.core.handle(source, message, self._now_ms())
        except ProtocolError as error:
            facts = {"broker": self.broker, "peer": source, "reason": str(error)}
            count_logged(self.counts, IMPOSSIBLE, log.error, "message_impossible", **facts)
            return []

    def _refuse(self, command: Command, reason: str) -> None:
        self._ports.send_result(
            CommandResult(
                command.plan, command.phase, self.broker, command.epoch_to, Outcome.REFUSED, reason, 0,
                int(self._now_ms()), (), command.term, command.digest, Refusal.PHASE,
            )
        )  # fmt: skip

    def _refuse_move(self, reason: str) -> None:
        """Refuse the plan that is being prepared, here or elsewhere: an agent does not take a subscription along."""
        if self._prepared is not None and self.core.phase in (BrokerPhase.PREPARING, BrokerPhase.PREPARED):
            self._refuse(self._prepared, reason)

    def _sync_overlay(self) -> None:
        """Update links and clients after a possible change of the overlay."""
        neighbours = self.core.live_neighbours
        if neighbours != self._neighbours:
            self._neighbours = neighbours
            self.links.want(self._candidates.union(neighbours))
        self.clients.settle(self.core.takes_clients)

    # --- effects of the core -----------------------------------------------------------------------------------------

    def _apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(peer, message):
                    if not self.links.send(peer, message):
                        self.counts[LINK_FULL] += 1
                case Deliver(notification, subscriptions):
                    self._deliver(cast(CarriedNotification, notification), subscriptions)
                case Published(notification):
                    self._cells.note_published(notification)
                    self._agents.note_published(cast(CarriedNotification, notification))
                case Dropped(_, reason):
                    self.counts[f"dropped_{reason}"] += 1
                case Answer(result):
                    self._ports.send_result(result)
                case AdvertiseConfirmed(publisher, connection):
                    self.clients.allow(publisher, connection, self._now_ms())
                case ClientDropped(client, connection, _):
                    self.clients.drop(client, connection)
                case Confirmed(subscription):
                    self._inboxes.note_confirmed(self.clients.confirm(subscription))
                case SubscriberMoves() | SubscriberAwaited() | SubscriberTaken():
                    self._reported.take_effect(effect)
                case Cancelled():
                    pass  # The real broker has already notified its client.
                case _:
                    log.error("effect_unknown", broker=self.broker, effect=type(effect).__name__)

    def _deliver(self, notification: CarriedNotification, subscriptions: Sequence[str]) -> None:
        self._reported.note_delivered(notification, subscriptions)
        if notification.is_detour:
            self.on_detour(notification)
        if notification.home == self.broker:
            return  # The broker has already delivered it to its own clients.
        if self._agents.is_early(notification, self.core):
            return
        arriving, is_private = self._agents.arriving_among(subscriptions)
        if is_private and not arriving:
            return  # The clients that a plan has brought for it have left.
        excluded = excluded_groups(subscriptions, notification.handlers, self.broker)
        if excluded is None:
            self.counts[ELSEWHERE] += 1
            return
        message = LocalMessage(
            notification.subject, notification.payload, notification.reply, notification.headers,
            publisher=notification.publisher, number=notification.sequence, groups_excluded=excluded,
            home=notification.home, agents=self._agents.groups_of(subscriptions),
            only_for=arriving if is_private else (), apart_for=arriving, epoch=notification.epoch,
        )  # fmt: skip
        try:
            is_handed_over = self.connector.publish(message)
        except Exception:  # What a broker's library cannot express is this message's error alone.
            log.exception("message_not_handed_over", broker=self.broker, subject=message.subject)
            is_handed_over = False
        self.counts["delivered" if is_handed_over else "not_handed_over"] += 1

    # --- telemetry ---------------------------------------------------------------------------------------------------

    def flush(self, *, is_last: bool = False) -> None:
        """Send a batch of telemetry if it has news or is due; the last one includes counts of spans not ended."""
        now_ms = self._now_ms()
        self.wanted.refresh(partial(subscriptions_in, self.core))
        self.clients.follow_agents(self.core.takes_clients, now_ms)
        self._agents.note_time()
        deliveries = self._cells.pop_changed(math.inf if is_last else now_ms)
        changes = tuple(self._reported.changes)
        is_wanted = is_last or has_news(deliveries, changes, self.core.phase)
        if not self._heartbeats.take_turn(self._heartbeat_rule, now_ms, has_news=is_wanted):
            return
        self._reported.changes.clear()
        own = queue_sample("", self.counters, len(self._inbox))
        batch = TelemetryBatch(
            broker=self.broker,
            boot=self.core.boot_ms,
            sequence=self._batches_sent,
            time_ms=int(now_ms),
            epoch=self.core.epoch,
            deliveries=deliveries,
            queues=(own, *map(self.links.sample, self.core.live_neighbours)),
            probes=tuple(LinkProbe(*each) for each in self.congestion.round_trips()),
            clients=changes,
        )
        for part in split_batch(batch):
            self._batches_sent += 1
            self._ports.send_batch(part)
