"""One broker of a structured cyclic overlay: routing between clusters around congested links (Shafique).

In: one message at a time and the time, and what its links have measured. Out: effects. Subscriptions are known to all
brokers of their cluster; an advertisement goes no further than the region of its home, whose brokers tell it which
clusters want what is published. A plan is refused: there are no transitions yet.

What follows from copies that take different ways: the order of one publisher's notifications is kept while nothing is
congested, and not beyond. A subscription that has ended is served for ``LINGER_MS`` more, as nobody can tell what is
still on its way over a detour; what takes longer is lost to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from regraft.overlay.link_congestion import PRODUCT, CongestionRule, QueueWindow
from regraft.overlay.scot_configuration import ScotConfiguration
from regraft.producers.brokers.answer_commands import AnsweringBroker
from regraft.producers.brokers.broker_messages import (
    Advertise,
    AdvertiseAck,
    AdvertiseConfirmed,
    AdvertiseRequest,
    Bundle,
    Cancelled,
    CancelRequest,
    ClientRequest,
    Confirmed,
    Deliver,
    Dropped,
    Effect,
    Message,
    Notification,
    Published,
    Send,
    Subscribe,
    SubscribeAck,
    SubscribeRequest,
    Unadvertise,
    UnadvertiseRequest,
    Unsubscribe,
    bundled,
)
from regraft.producers.brokers.broker_protocol import BrokerPhase
from regraft.producers.brokers.command_fence import CommandFence
from regraft.producers.brokers.match_content import Filter, MatchIndex, intersects
from regraft.producers.brokers.report_state import reported
from regraft.producers.brokers.scot_copies import copies
from regraft.producers.brokers.scot_messages import VectorAck, VectorBit
from regraft.producers.brokers.tree_routing import NOT_ADVERTISED
from regraft.producers.brokers.tree_tables import LOCAL
from regraft.producers.brokers.two_epochs import ProtocolError
from regraft.schemas.command import Command, CommandPhase, Outcome, Refusal

LINGER_MS = 30_000.0  # Longer than the longest way over congested links.
NO_PLANS = "brokers of a structured cyclic overlay carry out no plans yet: start again with another overlay"


@dataclass(slots=True)
class _Publisher:
    """A publisher at home here; ``vector`` has the bits of the other clusters that want what it publishes."""

    filter_: Filter
    connection: int
    vector: int = 0
    awaited: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Remote:
    """A publisher at home at another broker of the region; ``is_wanted`` here, as the host was told.

    ``unanswered`` counts what it was told and has not acknowledged yet.
    """

    host: str
    connection: int
    filter_: Filter
    is_wanted: bool = False
    unanswered: int = 0


@dataclass(slots=True)
class _Subscription:
    """A subscription of this cluster and whose acknowledgements it waits for: neighbours and publishers."""

    filter_: Filter
    source: str | None
    awaited: set[str]
    awaited_bits: set[str]
    is_confirmed: bool = False


class ScotBroker(AnsweringBroker):
    """The protocol state of one broker. A :class:`producers.brokers.broker_protocol.BrokerProtocol`.

    ``rule`` says when a link is congested. ``diverted`` counts the clusters that were left to another broker than
    static routing has for them.
    """

    covered_forwards = 0
    held_count_max = 0

    def __init__(
        self, broker: str, configuration: ScotConfiguration, boot_ms: int, rule: CongestionRule = PRODUCT
    ) -> None:
        self.broker, self.configuration, self.boot_ms = broker, configuration, boot_ms
        self.rule = rule
        self.epoch = configuration.epoch
        self.fence = CommandFence()
        self.control_messages_sent = self.diverted = 0
        self.lost_peers: set[str] = set()
        self.under_way = self._change = None
        self.loads: dict[str, float] = {}
        self.hot: frozenset[str] = frozenset()
        self._within = configuration.cluster_neighbours(broker)
        self._region = configuration.region_of(broker)
        self._cluster = configuration.place_of[broker][1]
        self._index = MatchIndex()
        self._subscriptions: dict[str, _Subscription] = {}
        self._publishers: dict[str, _Publisher] = {}
        self._remotes: dict[str, _Remote] = {}
        self._ended: deque[tuple[float, str]] = deque()

    def begin_at(self, plan: str, digest: str, term: int) -> None:
        """Take this broker's epoch for the one that a plan led to."""
        self.fence.begin_at(self.epoch, plan, digest, term)

    def handle(self, source: str | None, message: Message | ClientRequest | Command, now_ms: float) -> list[Effect]:
        """Take one message and return what is to be done, in order. ``source`` is a neighbour or None for our own."""
        effects = self._release_ended(now_ms)
        if isinstance(message, Notification):
            return effects + self._route(source, message)
        if isinstance(message, Command):
            effects += self._obey(message, now_ms)
        else:
            for one in message.messages if isinstance(message, Bundle) else (message,):
                effects += self._serve(one, now_ms) if source is None else self._converse(source, one)
        self.count_control(effects)
        return bundled(effects)

    def observe_links(self, windows: Mapping[str, QueueWindow]) -> None:
        """Take note of what happened at the queues of all links in the last window, by neighbour."""
        self.loads = {peer: self.rule.measure(window) for peer, window in windows.items()}
        self.hot = frozenset(
            peer for peer, load in self.loads.items() if self.rule.is_above(load, was=peer in self.hot)
        )

    def lose_peer(self, peer: str, now_ms: float) -> list[Effect]:
        """Take note that a neighbour is gone; what had to cross it is lost, as nothing is repaired yet."""
        self.lost_peers.add(peer)
        return []

    @property
    def phase(self) -> BrokerPhase:
        """Where this broker is in a transition: in none."""
        return BrokerPhase.STEADY

    @property
    def live_neighbours(self) -> tuple[str, ...]:
        """The neighbours in the cluster and in the region, sorted."""
        return self.configuration.neighbours[self.broker]

    @property
    def takes_clients(self) -> bool:
        """May clients come: always."""
        return True

    @property
    def held_notifications(self) -> list[Notification]:
        """Nothing is ever held back."""
        return []

    @property
    def ended_count(self) -> int:
        """How many subscriptions have ended and are served a while longer."""
        return len(self._ended)

    # --- notifications -----------------------------------------------------------------------------------------------

    def _route(self, source: str | None, notification: Notification) -> list[Effect]:
        effects: list[Effect] = []
        if source is None:
            host = self._publishers.get(notification.publisher)
            if host is None:
                return [Dropped(notification, NOT_ADVERTISED)]
            notification = replace(notification, epoch=self.epoch, vector=host.vector)
            effects.append(Published(notification))
        destinations = self._index.destinations(notification.content, source)
        vector = notification.vector
        for peer, left in copies(destinations - {LOCAL}, self._region, vector, self.hot, self.loads):
            effects.append(Send(peer, replace(notification, vector=left)))
            self.diverted += left.bit_count()
        if LOCAL in destinations:
            wanted = self._index.keys_for(notification.content, LOCAL)
            confirmed = tuple(sorted(key for key in wanted if self._subscriptions[key].is_confirmed))
            if confirmed:
                effects.append(Deliver(notification, confirmed))
        return effects

    # --- clients -----------------------------------------------------------------------------------------------------

    def _serve(self, request: Any, now_ms: float) -> list[Effect]:
        match request:
            case SubscribeRequest(subscription, _, filter_):
                return self._learn(None, subscription, filter_, self.broker)
            case CancelRequest(subscription):
                self._ended.append((now_ms, subscription))
                return []
            case AdvertiseRequest(publisher, filter_, connection):
                peers = set(self._region) - {self.broker}
                self._publishers[publisher] = _Publisher(filter_, connection, awaited=peers)
                message = Advertise(self.epoch, publisher, connection, self.broker, filter_)
                return [Send(peer, message) for peer in sorted(peers)] + self._confirm_publisher(publisher)
            case UnadvertiseRequest(publisher, connection):
                return self._forget_publisher(publisher, connection)
        raise ProtocolError(f"{self.broker} got {type(request).__name__} from a client")

    def _forget_publisher(self, publisher: str, connection: int) -> list[Effect]:
        known = self._publishers.get(publisher)
        if known is None or known.connection != connection:
            return []
        del self._publishers[publisher]
        message = Unadvertise(self.epoch, publisher, connection)
        return [Send(peer, message) for peer in self._region if peer != self.broker]

    def _release_ended(self, now_ms: float) -> list[Effect]:
        effects: list[Effect] = []
        while self._ended and now_ms - self._ended[0][0] > LINGER_MS:
            subscription = self._ended.popleft()[1]
            effects += [*self._forget(None, subscription), Cancelled(subscription)]
        return effects

    # --- neighbours --------------------------------------------------------------------------------------------------

    def _converse(self, source: str, message: Any) -> list[Effect]:
        match message:
            case Subscribe(_, subscription, home, filter_):
                return self._learn(source, subscription, filter_, home)
            case SubscribeAck(_, subscription):
                if subscription in self._subscriptions:
                    self._subscriptions[subscription].awaited.discard(source)
                return self._acknowledge(subscription)
            case Unsubscribe(_, subscription):
                return self._forget(source, subscription)
            case Advertise(_, publisher, connection, home, filter_):
                self._remotes[publisher] = _Remote(home, connection, filter_)
                bits = self._tell_wanted(publisher)
                return [*bits, Send(source, AdvertiseAck(self.epoch, publisher, connection))]
            case AdvertiseAck(_, publisher, connection):
                return self._see_heard(source, publisher, connection)
            case Unadvertise(_, publisher, connection):
                return self._forget_remote(publisher, connection)
            case VectorBit():
                return self._set_bit(source, message)
            case VectorAck(_, publisher, connection):
                return self._see_bit_set(publisher, connection)
        raise ProtocolError(f"{self.broker} got {type(message).__name__} from {source}")

    def _learn(self, source: str | None, subscription: str, filter_: Filter, home: str) -> list[Effect]:
        """Install a subscription, pass it on in the cluster, and let the hosts of publishers it meets know."""
        beyond = {peer for peer in self._within if peer != source}
        self._index.add(subscription, filter_, LOCAL if source is None else source)
        known = self._subscriptions[subscription] = _Subscription(filter_, source, set(beyond), set())
        effects: list[Effect] = [
            Send(peer, Subscribe(self.epoch, subscription, home, filter_, self.epoch)) for peer in sorted(beyond)
        ]
        for publisher, remote in self._remotes.items():
            if intersects(remote.filter_, filter_):
                effects += self._tell_wanted(publisher)
                if remote.unanswered:
                    known.awaited_bits.add(publisher)
        return effects + self._acknowledge(subscription)

    def _acknowledge(self, subscription: str) -> list[Effect]:
        """Tell whoever the subscription came from when nothing is awaited for it any more, once."""
        known = self._subscriptions.get(subscription)
        if known is None or known.is_confirmed or known.awaited or known.awaited_bits:
            return []
        known.is_confirmed = True
        if known.source is None:
            return [Confirmed(subscription)]
        return [Send(known.source, SubscribeAck(self.epoch, subscription))]

    def _forget(self, source: str | None, subscription: str) -> list[Effect]:
        if self._subscriptions.pop(subscription, None) is None:
            return []
        self._index.remove(subscription)
        message = Unsubscribe(self.epoch, subscription)
        effects: list[Effect] = [Send(peer, message) for peer in self._within if peer != source]
        for publisher in self._remotes:
            effects += self._tell_wanted(publisher)
        return effects

    def _tell_wanted(self, publisher: str) -> list[Effect]:
        """Tell the host of a publisher whether this cluster wants what it publishes, where that has changed."""
        remote = self._remotes[publisher]
        is_wanted = any(intersects(remote.filter_, known.filter_) for known in self._subscriptions.values())
        if is_wanted == remote.is_wanted:
            return []
        remote.is_wanted = is_wanted
        remote.unanswered += 1
        return [Send(remote.host, VectorBit(self.epoch, publisher, remote.connection, is_wanted))]

    def _set_bit(self, source: str, message: VectorBit) -> list[Effect]:
        host, bit = self._publishers.get(message.publisher), 1 << self._region.index(source)
        if host is not None and host.connection == message.connection:
            host.vector = host.vector | bit if message.is_on else host.vector & ~bit
        return [Send(source, VectorAck(self.epoch, message.publisher, message.connection))]

    def _see_bit_set(self, publisher: str, connection: int) -> list[Effect]:
        remote = self._remotes.get(publisher)
        if remote is None or remote.connection != connection:
            return []
        remote.unanswered -= 1
        return [] if remote.unanswered else self._stop_awaiting(publisher)

    def _forget_remote(self, publisher: str, connection: int) -> list[Effect]:
        remote = self._remotes.get(publisher)
        if remote is None or remote.connection != connection:
            return []
        del self._remotes[publisher]
        return self._stop_awaiting(publisher)

    def _stop_awaiting(self, publisher: str) -> list[Effect]:
        effects: list[Effect] = []
        for name, known in self._subscriptions.items():
            if publisher in known.awaited_bits:
                known.awaited_bits.discard(publisher)
                effects += self._acknowledge(name)
        return effects

    def _see_heard(self, source: str, publisher: str, connection: int) -> list[Effect]:
        known = self._publishers.get(publisher)
        if known is None or known.connection != connection:
            return []
        known.awaited.discard(source)
        return self._confirm_publisher(publisher)

    def _confirm_publisher(self, publisher: str) -> list[Effect]:
        known = self._publishers[publisher]
        return [] if known.awaited else [AdvertiseConfirmed(publisher, known.connection)]

    # --- commands ----------------------------------------------------------------------------------------------------

    def _obey(self, command: Command, now_ms: float) -> list[Effect]:
        refusal, reason = self.fence.refusal_of(command, self.epoch)
        if refusal is not Refusal.NONE:
            return [self._refuse(command, refusal, reason, now_ms)]
        if command.phase is CommandPhase.REPORT:
            answer = self._answer(command, Outcome.REPORTED, now_ms)
            return [reported(answer, self.configuration, self.phase, self.fence)]
        return [self._refuse(command, Refusal.PHASE, NO_PLANS, now_ms)]
