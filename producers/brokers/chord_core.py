"""One broker's protocol core on a Chord ring: what it does with each message that comes to it.

In: one message at a time (from a neighbour, a local client or the controller) and the time. Out: effects. Like
:mod:`producers.brokers.broker_core` it owns no queue, no link and no clock, and asks of its surroundings that messages
of one link arrive in the order they were sent, and that nothing is lost.

A notification goes by greedy lookup from its publisher's home to the rendezvous of its topic, and from there down the
topic's tree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from overlay.chord_configuration import ChordConfiguration
from producers.brokers.broker_messages import (
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
from producers.brokers.chord_messages import (
    AskEndPublisher,
    AskEndTopic,
    AskFlush,
    AttachRequest,
    DrainedRequest,
    EndPublisher,
    EndTopic,
    GoneRequest,
    GrantFlush,
    HandedOver,
    Join,
    JoinAck,
    Leave,
    MoveHeardRequest,
    NotComing,
    Probe,
    ProbeBack,
    Register,
    RegisterAck,
    RoutedMessage,
    Unregister,
)
from producers.brokers.chord_tables import ChordTables
from producers.brokers.chord_transition import ChordTransitions
from producers.brokers.chord_trees import TOPIC
from producers.brokers.two_epochs import EPOCH_UNKNOWN, PlanUnderWay, ProtocolError

RETIRED_KEPT_MAX = 16  # Epochs of which something may still be under way; what comes of an older one goes no further.


class ChordCore(ChordTransitions):
    """The protocol state of one broker of a ring. Deterministic: equal inputs give equal effects in equal order."""

    covered_forwards = 0  # Topics do not cover each other.

    def __init__(self, broker: str, configuration: ChordConfiguration, boot_ms: int) -> None:
        super().__init__(broker, configuration, boot_ms)
        self._retired: deque[ChordConfiguration] = deque(maxlen=RETIRED_KEPT_MAX)
        self._as_ever: dict[tuple[int, str, str], bool] = {}  # By epoch, topic and broker, since the last retirement.

    def _look_around(self, now_ms: float) -> list[Effect]:
        return self._tell_prepared(now_ms) + self._drain(now_ms)

    # --- notifications -----------------------------------------------------------------------------------------------

    def _route(self, source: str | None, notification: Notification) -> list[Effect]:
        effects = self._route_to_all(source, notification)
        self._count_control(effects)
        return effects

    def _route_to_all(self, source: str | None, notification: Notification) -> list[Effect]:
        effects: list[Effect] = []
        if source is None:
            notification = replace(notification, epoch=self.epoch)
            effects.append(Published(notification))
        oldest, topic = min(self.tables), str(notification.content[TOPIC])
        tables = self.tables.get(max(notification.epoch, oldest))
        if tables is None:
            return [Dropped(notification, EPOCH_UNKNOWN)]
        if (
            notification.from_rendezvous
            and notification.epoch < oldest
            and not self._comes_as_ever(notification.epoch, topic, self.broker)
        ):
            return []  # From a parent that had not heard yet that we had left the tree: nobody here wants it.
        if not notification.from_rendezvous:
            root = tables.rendezvous(topic)
            if root != self.broker:
                effects.append(Send(tables.next_hop(root), notification))
                return effects
            if self._must_keep_at_root(topic, notification):
                return effects + self._keep_at_root(topic, notification)
        return effects + self._pass_down(tables, notification)

    def _comes_as_ever(self, epoch: int, topic: str, broker: str) -> bool:
        """Return True if the topic's way to a broker is what it was in an epoch that is retired here, and always since.

        What is still under way then belongs to the tables of now.
        """
        key = (epoch, topic, broker)
        if key not in self._as_ever:
            since = [one for one in self._retired if one.epoch >= epoch]
            is_known = bool(since) and since[0].epoch == epoch
            now = self.tables[min(self.tables)].configuration
            ways = {one.route(one.rendezvous(topic), broker) for one in (*since, now)} if is_known else ()
            self._as_ever[key] = len(ways) == 1
        return self._as_ever[key]

    def _forget_epoch(self, gone: ChordTables, under_way: PlanUnderWay | None, now_ms: float) -> list[Effect]:
        if gone.epoch < self.epoch:
            self._retired.append(gone.configuration)
            self._as_ever.clear()
        return super()._forget_epoch(gone, under_way, now_ms)

    def _pass_down(self, tables: ChordTables, notification: Notification) -> list[Effect]:
        entry = tables.topics.get(str(notification.content[TOPIC]))
        if entry is None:
            return []
        if not notification.from_rendezvous:
            notification = replace(notification, from_rendezvous=True)
        children: Iterable[str] = entry.children
        if notification.epoch < min(self.tables):  # A child with another way since then has got it over its old one.
            epoch, topic = notification.epoch, entry.topic
            children = [peer for peer in children if self._comes_as_ever(epoch, topic, peer)]
        effects: list[Effect] = [Send(peer, notification) for peer in children]
        if entry.subscriptions:
            self._hand_over(notification, tuple(entry.subscriptions), effects)
        return effects + self._ask_flush(tables, entry) if entry.ended_here else effects

    def _hand_over(self, notification: Notification, names: tuple[str, ...], effects: list[Effect]) -> None:
        known = self.locals
        wanted = tuple(name for name in names if known[name].wants(notification))
        if len(self.tables) == 1:
            if wanted:
                effects.append(Deliver(notification, wanted))
            return
        at_once = []
        for name in wanted:  # Those who moved here and those who were here wait for different things.
            if self._may_come_older(notification, name):
                self._deliver_or_hold(Deliver(notification, (name,)), effects)
            else:
                at_once.append(name)
        if at_once:
            effects.append(Deliver(notification, tuple(at_once)))

    # --- clients and neighbours --------------------------------------------------------------------------------------

    def _serve(self, request: ClientRequest, now_ms: float) -> list[Effect]:
        match request:
            case SubscribeRequest():
                return self._subscribe(request, now_ms)
            case CancelRequest() | DrainedRequest() if (
                epoch := self._epoch_awaited_by(request.subscription)
            ) is not None:
                return self._keep_early(epoch, None, request)  # Behind the user's coming, which is kept, too.
            case CancelRequest():
                return self._cancel(request)
            case AdvertiseRequest():
                if self.under_way is not None:
                    # Whoever drains an epoch must know all who publish in it.
                    self._postponed.append(request)
                    return []
                return self._advertise(request)
            case UnadvertiseRequest():
                self._drop_postponed(request)
                return self._unadvertise(request)
            case AttachRequest():
                return self._attach(request, now_ms)
            case MoveHeardRequest():
                return self._see_heard(request)
            case DrainedRequest():
                return self._see_drained(request)
            case GoneRequest():
                return self._see_gone(request)
        raise ProtocolError(f"{self.broker} got {type(request).__name__} from a client")

    def _converse(self, source: str, message: Any, now_ms: float) -> list[Effect]:
        tables = self.tables.get(message.epoch)
        if tables is None:
            is_late = any(one.epoch == message.epoch for one in self._retired)
            return self._take_late(source, message) if is_late else self._keep_early(message.epoch, source, message)
        match message:
            case Join():
                return self._accept_join(tables, source, message, now_ms)
            case JoinAck():
                return self._accept_join_ack(tables, message, now_ms)
            case Leave():
                return self._accept_leave(tables, source, message)
            case EndTopic():
                return self._see_topic_over(tables, message.topic)
            case AskEndTopic():
                return self._accept_end_wanted(source, message)
        return self._route_on(tables, message)

    def _take_late(self, source: str, message: Any) -> list[Effect]:
        """Take from a message of a retired epoch what it says of the epoch that was derived from it.

        Only what nobody waits for may come so late: that a child has left, and that a publisher has, where its way is
        the same in both. Whatever else is under way is of no more use.
        """
        oldest = self.tables[min(self.tables)]
        match message:
            case Leave() if oldest.epoch > message.issued_max:
                return self._accept_leave(oldest, source, message)
            case Unregister() if oldest.epoch > message.issued_max:
                return self._route_on(oldest, message)
        return []

    def _arrive(self, tables: ChordTables, message: RoutedMessage) -> list[Effect]:
        match message:
            case Unregister() | ProbeBack() if self._must_keep_at_root(message.topic, message):
                return self._keep_at_root(message.topic, message)  # Behind what was published before it.
            case Register():
                return self._accept_registration(tables, message)
            case RegisterAck():
                return self._confirm_publisher(message.publisher, message.connection, tables.epoch)
            case Unregister():
                return self._release_behind(message) + self._accept_unregistration(tables, message)
            case EndPublisher():
                return self._accept_end_of_publisher(message)
            case AskEndPublisher():
                return self._accept_end_asked(message)
            case AskFlush():
                return self._begin_flush(tables, message)
            case Probe():
                return self._answer_probe(tables, message)
            case ProbeBack():
                return self._take_probe_back(tables, message)
            case GrantFlush():
                return self._end_flush(tables, message) + self._release_held()
            case NotComing():
                return self._await_no_longer(message.user, self.now_ms)
            case HandedOver():
                return self._see_handed_over(message.user, self.now_ms)
