"""How a broker of a Chord ring handles each message.

In: one message at a time from a neighbour or a local client, and the time. Out: effects. Notifications are routed here;
trees belong to :mod:`producers.brokers.ring_trees`, publishers to :mod:`producers.brokers.ring_publishers`, END to
:mod:`producers.brokers.ring_endings`, users that move to :mod:`producers.brokers.ring_moves`, and the change from one
configuration to the next to :mod:`producers.brokers.ring_change`.

A notification goes by greedy lookup from its publisher's home to the rendezvous of its topic, and from there down the
topic's tree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.producers.brokers.broker_messages import (
    AdvertiseRequest,
    CancelRequest,
    ClientRequest,
    Deliver,
    Dropped,
    Effect,
    Notification,
    Published,
    Send,
    SubscribeRequest,
    UnadvertiseRequest,
)
from regraft.producers.brokers.epoch_change import rejected
from regraft.producers.brokers.ring_change import RingChange
from regraft.producers.brokers.ring_deaths import DeadBrokers
from regraft.producers.brokers.ring_endings import TopicEndings
from regraft.producers.brokers.ring_messages import (
    AskEndPublisher,
    AskEndTopic,
    AskFlush,
    AttachRequest,
    DrainedRequest,
    EndBehind,
    EndPublisher,
    EndTopic,
    GoneRequest,
    GrantFlush,
    HandedOver,
    Join,
    JoinAck,
    Leave,
    MoveAckRequest,
    NotComing,
    Probe,
    ProbeBack,
    Register,
    RegisterAck,
    RoutedMessage,
    Unregister,
)
from regraft.producers.brokers.ring_moves import MovingUsers
from regraft.producers.brokers.ring_parts import RingBroker
from regraft.producers.brokers.ring_publishers import TopicPublishers
from regraft.producers.brokers.ring_tables import RingTables, TopicEntry, TopicSubscription
from regraft.producers.brokers.ring_trees import TOPIC, TopicTrees
from regraft.producers.brokers.two_epochs import (
    BROKER_DIED,
    EPOCH_UNKNOWN,
    FROM_THE_DEAD,
    OUTSIDE,
    ProtocolError,
    TwoEpochBroker,
)

RETIRED_KEPT_MAX = 16  # Retired epochs that may have messages in transit; older messages are dropped.


def ring_broker(broker: str, configuration: RingConfiguration, boot_ms: int, *, is_outside: bool = False) -> RingBroker:
    """Return the protocol core of a broker of a ring, or of an outsider."""
    return TwoEpochBroker(broker, RingTables(broker, configuration, is_outside=is_outside), boot_ms, RingRouting)


@dataclass(frozen=True, slots=True)
class _Retired:
    """What a broker remembers of a retired epoch: its ring, and whose incarnations ended before it or in it."""

    epoch: int
    configuration: RingConfiguration
    lost: frozenset[str]
    dead: frozenset[str]


class RingRouting:
    """Message routing at one broker of a ring. A :class:`producers.brokers.epoch_change.Routing`."""

    covered_forwards = 0  # Topics do not cover each other.

    def __init__(self, core: RingBroker) -> None:
        self._core = core
        self.broker = core.broker
        self.trees = TopicTrees(core, self)
        self.publishers = TopicPublishers(core, self, self.trees)
        self.endings = TopicEndings(core, self, self.publishers)
        self.moves = MovingUsers(core, self, self.trees, self.endings)
        self.deaths = DeadBrokers(core, self.trees, self.publishers, self.endings, self.moves)
        self.change = RingChange(core, self, self.trees, self.publishers, self.endings, self.moves, self.deaths)
        self._retired: deque[_Retired] = deque(maxlen=RETIRED_KEPT_MAX)
        # Cache of _path_unchanged, cleared at each retirement.
        self._unchanged: dict[tuple[int, str, str, bool], bool] = {}

    @property
    def ended_count(self) -> int:
        """Number of ended subscriptions that wait for a flush."""
        return self.trees.ended_count

    def clients_here(self) -> dict[str, int]:
        """Return the publishers and users whose home this broker is, as far as it knows, with their stays."""
        publishers = {name: one.connection for name, one in self.publishers.here.items()}
        return publishers | self.trees.users_here() | self.moves.users_of_plan()

    def check_progress(self, now_ms: float) -> list[Effect]:
        """Report prepared or drained if that is due: any message may have been the last one needed."""
        return self._core.answer_prepare(now_ms) + self._core.drain(now_ms)

    # --- notifications -----------------------------------------------------------------------------------------------

    def route(self, source: str | None, notification: Notification) -> list[Effect]:
        """Pass a notification on towards its rendezvous or down its topic's tree, and hand it over."""
        if source is not None and self._is_dead(source, notification.epoch):
            return [Dropped(notification, FROM_THE_DEAD)]
        effects = self._route_to_all(source, notification)
        self._core.count_control(effects)
        return effects

    def _route_to_all(self, source: str | None, notification: Notification) -> list[Effect]:
        effects: list[Effect] = []
        if source is None:
            if self._core.tables[self._core.epoch].is_outside:
                return [Dropped(notification, OUTSIDE)]
            notification = replace(notification, epoch=self._core.epoch)
            effects.append(Published(notification))
        oldest, topic = min(self._core.tables), str(notification.content[TOPIC])
        tables = self._core.tables.get(max(notification.epoch, oldest))
        if tables is None:
            return [Dropped(notification, EPOCH_UNKNOWN)]
        if (
            notification.from_rendezvous
            and notification.epoch < oldest
            and not self._downward_unchanged(notification.epoch, topic, self.broker)
        ):
            return []  # From a parent that did not know yet that we had left the tree.
        if tables.is_outside:
            return [Dropped(notification, OUTSIDE)]
        if not notification.from_rendezvous:
            if notification.epoch < oldest and not self._upward_unchanged(notification.epoch, notification.home, topic):
                return [Dropped(notification, BROKER_DIED)]  # Else we would have waited for END behind it.
            root = tables.rendezvous(topic)
            if root != self.broker:
                effects.append(Send(tables.next_hop(root), notification))
                return effects
            if self.endings.must_keep_at_root(topic, notification):
                return effects + self.endings.keep_at_root(topic, notification)
        return effects + self.pass_down(tables, notification)

    def _is_dead(self, source: str, epoch: int) -> bool:
        """Return True if a broker has died in an epoch or, if that is retired here, in a later one."""
        tables = self._core.tables.get(epoch)
        if tables is not None:
            return source in tables.dead
        retired = (one.dead for one in self._retired if one.epoch >= epoch)
        live = (one.dead for one in self._core.epochs() if one.epoch >= epoch)
        return any(source in dead for dead in (*retired, *live))

    def _upward_unchanged(self, epoch: int, start: str, topic: str) -> bool:
        """Return True if a broker's path to a topic's rendezvous has not changed since a retired epoch."""
        return self._path_unchanged(epoch, topic, start, is_up=True)

    def _downward_unchanged(self, epoch: int, topic: str, broker: str) -> bool:
        """Return True if the topic's path to a broker has not changed since an epoch that is retired here.

        Messages of that epoch still in transit may then use the current tables.
        """
        return self._path_unchanged(epoch, topic, broker, is_up=False)

    def _path_unchanged(self, epoch: int, topic: str, broker: str, *, is_up: bool) -> bool:
        key = (epoch, topic, broker, is_up)
        if key not in self._unchanged:
            since = [one for one in self._retired if one.epoch >= epoch]
            is_known = bool(since) and since[0].epoch == epoch
            now = self._core.tables[min(self._core.tables)]
            rings = (*(one.configuration for one in since), now.configuration) if is_known else ()
            is_always_member = all(broker in one.place_of for one in rings)
            paths = {one.topic_route(topic, broker, is_up=is_up) for one in rings} if is_always_member else set()
            lost = now.lost.union(*(one.lost for one in since[1:]))
            self._unchanged[key] = len(paths) == 1 and lost.isdisjoint(*paths)
        return self._unchanged[key]

    def retire(self, gone: RingTables) -> None:
        """Remember an epoch that may have messages in transit."""
        self._retired.append(_Retired(gone.epoch, gone.configuration, gone.lost, frozenset(gone.dead)))
        self._unchanged.clear()

    def pass_down(self, tables: RingTables, notification: Notification) -> list[Effect]:
        """Pass on a notification that has come to the rendezvous of its topic, or down from it."""
        entry = tables.topics.get(str(notification.content[TOPIC]))
        if entry is None:
            return []
        if not notification.from_rendezvous:
            notification = replace(notification, from_rendezvous=True)
        children: Iterable[str] = entry.children
        if notification.epoch < min(self._core.tables):
            # A child whose path has changed since then got it over its old one.
            epoch, topic = notification.epoch, entry.topic
            children = [peer for peer in children if self._downward_unchanged(epoch, topic, peer)]
        effects: list[Effect] = [Send(peer, notification) for peer in children]
        if entry.subscriptions:
            self._hand_over(notification, tuple(entry.subscriptions), effects)
        return effects

    def _hand_over(self, notification: Notification, names: tuple[str, ...], effects: list[Effect]) -> None:
        known = self.trees.locals
        wanted = tuple(name for name in names if known[name].wants(notification))
        if len(self._core.tables) == 1:
            if wanted:
                effects.append(Deliver(notification, wanted))
            return
        at_once = []
        for name in wanted:  # Those that moved here wait for other ENDs.
            if self.change.may_get_older(notification, name):
                self._core.deliver_or_hold(Deliver(notification, (name,)), effects)
            else:
                at_once.append(name)
        if at_once:
            effects.append(Deliver(notification, tuple(at_once)))

    # --- clients and neighbours --------------------------------------------------------------------------------------

    def serve(self, request: ClientRequest, now_ms: float) -> list[Effect]:
        """Handle a request of a local client."""
        if isinstance(request, SubscribeRequest | AdvertiseRequest) and not self._accepts(request):
            return rejected(request)
        match request:
            case SubscribeRequest():
                return self.trees.subscribe(request, now_ms) + self.moves.notify_late(request)
            case GoneRequest() if (epoch := self.moves.epoch_of_arrival(request.user, request.connection)) is not None:
                return self._core.keep_early(epoch, None, request)
            case CancelRequest() | DrainedRequest() if (
                epoch := self.moves.epoch_awaited_by(request.subscription)
            ) is not None:
                return self._core.keep_early(epoch, None, request)  # Behind the user's AttachRequest, also kept.
            case CancelRequest():
                return self.trees.cancel(request)
            case AdvertiseRequest():
                if self._core.under_way is not None:
                    # A broker that drains an epoch must know all its publishers.
                    return self._core.postpone(request)
                return self.publishers.advertise(request)
            case UnadvertiseRequest():
                self._core.drop_postponed(request)
                return self.publishers.unadvertise(request)
            case AttachRequest():
                return self.moves.attach(request, now_ms)
            case MoveAckRequest():
                return self.moves.confirm_move(request)
            case DrainedRequest():
                return self.moves.note_drained(request)
            case GoneRequest():
                return self.moves.note_gone(request)
        raise ProtocolError(f"{self.broker} got {type(request).__name__} from a client")

    def _accepts(self, request: SubscribeRequest | AdvertiseRequest) -> bool:
        """Return True if a client may use this broker: one that joins or leaves serves only users that move."""
        if self._core.takes_clients:
            return True
        return isinstance(request, SubscribeRequest) and self.moves.is_of_plan(request.client, request.connection)

    def converse(self, source: str, message: Any, now_ms: float) -> list[Effect]:
        """Handle a control message from a neighbour."""
        if self._is_dead(source, message.epoch):
            return []
        tables = self._core.tables.get(message.epoch)
        if tables is None:
            if any(one.epoch == message.epoch for one in self._retired):
                return self._handle_late(source, message)
            return self._core.keep_early(message.epoch, source, message)
        if tables.is_outside and not self._concerns_leaving(tables, source, message):
            return []  # It is for an earlier incarnation of this broker, or of another plan.
        match message:
            case Join():
                return self.trees.accept_join(tables, source, message, now_ms)
            case JoinAck():
                return self.trees.accept_join_ack(tables, message, now_ms)
            case Leave():
                return self.trees.accept_leave(tables, source, message)
            case EndTopic():
                return self.change.note_topic_over(tables, message.topic)
            case AskEndTopic():
                return self.endings.accept_topic_end_request(source, message)
            case EndBehind():
                return self.deaths.note_end_behind(tables, message)
        return self.route_onward(tables, message)

    def _concerns_leaving(self, tables: RingTables, source: str, message: Any) -> bool:
        """Return True if this broker, outside this epoch's ring, must handle a message of it.

        That is so for a leaving broker if END is wanted, or if another leaving broker relays over it.
        """
        is_passed_on = getattr(message, "target", self.broker) != self.broker
        is_leaving = tables.epoch > min(self._core.tables)
        is_from_leaving = source not in tables.configuration.place_of  # Else rings of two controllers may form a loop.
        return is_leaving and (isinstance(message, AskEndTopic) or (is_passed_on and is_from_leaving))

    def _handle_late(self, source: str, message: Any) -> list[Effect]:
        """Apply what a message of a retired epoch means for the epoch derived from it.

        Only messages that no broker waits for may come so late: a child or a publisher has left, and its path is the
        same in both epochs. Everything else in transit is useless now.
        """
        oldest = self._core.tables[min(self._core.tables)]
        if oldest.is_outside:
            return []
        match message:
            case Leave() if oldest.epoch > message.issued_max:
                return self.trees.accept_leave(oldest, source, message)
            case Unregister() if oldest.epoch > message.issued_max:
                return self.route_onward(oldest, message)
        return []

    def arrive(self, tables: RingTables, message: RoutedMessage) -> list[Effect]:
        """Accept a message that has reached its target."""
        match message:
            case Unregister() | ProbeBack() if self.endings.must_keep_at_root(message.topic, message):
                return self.endings.keep_at_root(message.topic, message)  # Behind earlier publications.
            case Register():
                return self.publishers.accept_registration(tables, message)
            case RegisterAck():
                return self.publishers.confirm_publisher(message.publisher, message.connection, tables.epoch)
            case Unregister():
                return self.endings.release_behind(message) + self.publishers.accept_unregistration(tables, message)
            case EndPublisher():
                return self.endings.accept_end_of_publisher(message)
            case AskEndPublisher():
                return self.endings.accept_publisher_end_request(message)
            case AskFlush():
                return self.trees.begin_flush(tables, message)
            case Probe():
                return self.trees.answer_probe(tables, message)
            case ProbeBack():
                return self.trees.accept_probe_back(tables, message)
            case GrantFlush():
                return self.trees.end_flush(tables, message) + self._core.release_held()
            case NotComing():
                return self.moves.stop_awaiting(message.user, self._core.now_ms)
            case HandedOver():
                return self.moves.note_handed_over(message.user, self._core.now_ms)

    def route_onward(self, tables: RingTables, message: RoutedMessage) -> list[Effect]:
        """Send a message one hop towards its target, or accept it if this broker is the target."""
        if message.target == self.broker:
            return self.arrive(tables, message)
        peer = self._relay_into(tables) if tables.is_outside else tables.find_hop(message.target)
        return [] if peer is None else [Send(peer, message)]  # None: from another plan for the epoch.

    def _relay_into(self, tables: RingTables) -> str:
        """Return which broker relays messages of a leaving broker into an epoch that does not contain it.

        This is a neighbour that stays, or else the successor, which also leaves and does the same.
        """
        old = self._core.tables[min(self._core.tables)]
        staying = [peer for peer in old.neighbours if peer in tables.configuration.place_of]
        ring = old.configuration
        return staying[0] if staying else ring.broker_at[(ring.position_of[self.broker] + 1) % len(ring.brokers)]

    # --- what parts ask of the parts above: :class:`producers.brokers.ring_parts.RingParts` --------------------------

    def epochs_for(self, request: SubscribeRequest) -> tuple[int, list[RingTables]]:
        """Return the last epoch in which a new subscription is served here, and the epochs in which it is issued."""
        return self.moves.epochs_for(request)

    def on_issued(self, tables: RingTables, local: TopicSubscription) -> list[Effect]:
        """React to a subscription that has entered an epoch's tree."""
        return self.moves.on_issued(tables, local)

    def on_flushed(self, tables: RingTables, names: Iterable[str]) -> list[Effect]:
        """React to subscriptions that have received everything owed to them in an epoch."""
        return self.moves.on_flushed(tables, names)

    def on_joined(self, tables: RingTables, topic: str, source: str) -> list[Effect]:
        """React to a child that has joined a topic's tree."""
        return self.endings.on_joined(tables, topic, source)

    def passes_end(self, tables: RingTables, entry: TopicEntry, peer: str) -> bool:
        """Return True if this broker passes END of a topic on to a child in this epoch."""
        return self.endings.passes_end(tables, entry, peer)

    def on_registered(self, tables: RingTables, message: Register) -> list[Effect]:
        """React to a publisher that has registered at its rendezvous."""
        return self.endings.on_registered(tables, message)
