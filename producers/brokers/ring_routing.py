"""How a broker of a Chord ring handles each message.

In: one message at a time from a neighbour or a local client, and the time. Out: effects. Notifications are routed here;
trees belong to :mod:`producers.brokers.ring_trees`, publishers to :mod:`producers.brokers.ring_publishers`, END to
:mod:`producers.brokers.ring_endings`, users that move to :mod:`producers.brokers.ring_moves`, and the change from one
configuration to the next to :mod:`producers.brokers.ring_change`.

A notification goes by greedy lookup from its publisher's home to the rendezvous of its topic, and from there down the
topic's tree.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import cast

from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.producers.brokers.answer_commands import count_control
from regraft.producers.brokers.broker_messages import (
    AdvertiseRequest,
    CancelRequest,
    ClientRequest,
    ControlMessage,
    Dropped,
    Effect,
    Notification,
    Published,
    Send,
    SubscribeRequest,
    UnadvertiseRequest,
)
from regraft.producers.brokers.broker_reports import BROKER_DIED, EPOCH_UNKNOWN, FROM_THE_DEAD, OUTSIDE, ProtocolError
from regraft.producers.brokers.epoch_change import rejected
from regraft.producers.brokers.ring_broker_state import RingPlanUnderWay, RingState
from regraft.producers.brokers.ring_change import RingChange
from regraft.producers.brokers.ring_descent import TopicDescent
from regraft.producers.brokers.ring_endings import TopicEndings
from regraft.producers.brokers.ring_messages import (
    AskEndTopic,
    AskFlush,
    AttachRequest,
    DrainedRequest,
    EndBehind,
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
    RoutedMessage,
    Unregister,
)
from regraft.producers.brokers.ring_moves import MovingUsers
from regraft.producers.brokers.ring_publishers import TopicPublishers
from regraft.producers.brokers.ring_tables import TOPIC, RingTables
from regraft.producers.brokers.ring_trees import TopicTrees
from regraft.producers.brokers.two_epochs import TwoEpochBroker

RingBroker = TwoEpochBroker[RingTables, RingPlanUnderWay]


def ring_broker(broker: str, configuration: RingConfiguration, boot_ms: int, *, is_outside: bool = False) -> RingBroker:
    """Return the protocol core of a broker of a ring, or of an outsider."""
    state = RingState(broker, RingTables(broker, configuration, is_outside=is_outside))
    return TwoEpochBroker(state, boot_ms, partial(RingRouting, state))


class RingRouting:
    """Message routing at one broker of a ring. A :class:`producers.brokers.epoch_change.Routing`."""

    covered_forwards = 0  # Topics do not cover each other.

    def __init__(self, state: RingState) -> None:
        self._state = state
        self._descent = TopicDescent(state)
        self._endings = TopicEndings(state)
        self._trees = TopicTrees(state)
        self._publishers = TopicPublishers(state)
        self._moves = MovingUsers(state)
        self.change = RingChange(state)
        self.broker = state.broker

    @property
    def ended_count(self) -> int:
        """Number of ended subscriptions that wait for a flush."""
        return self._trees.ended_count

    def clients_here(self) -> dict[str, int]:
        """Return the publishers and users whose home this broker is, as far as it knows, with their stays."""
        publishers = {name: one.connection for name, one in self._state.here.items()}
        return publishers | self._trees.users_here() | self._moves.users_of_plan()

    def release_ended(self) -> list[Effect]:
        """Return nothing: on a ring subscriptions are forgotten as soon as they have ended everywhere."""
        return []

    # --- notifications -----------------------------------------------------------------------------------------------

    def route(self, source: str | None, notification: Notification) -> list[Effect]:
        """Pass a notification on towards its rendezvous or down its topic's tree, and hand it over."""
        if source is not None and self._state.is_dead(source, notification.epoch):
            return [Dropped(notification, FROM_THE_DEAD)]
        effects = self._route_to_all(source, notification)
        count_control(self._state, self.change.is_of_plan, effects)
        return effects

    def _route_to_all(self, source: str | None, notification: Notification) -> list[Effect]:
        effects: list[Effect] = []
        if source is None:
            if self._state.tables[self._state.epoch].is_outside:
                return [Dropped(notification, OUTSIDE)]
            notification = replace(notification, epoch=self._state.epoch)
            effects.append(Published(notification))
        oldest, topic = min(self._state.tables), str(notification.content[TOPIC])
        tables = self._state.tables.get(max(notification.epoch, oldest))
        if tables is None:
            return [Dropped(notification, EPOCH_UNKNOWN)]
        if (
            notification.from_rendezvous
            and notification.epoch < oldest
            and not self._state.downward_unchanged(notification.epoch, topic, self.broker)
        ):
            return []  # From a parent that did not know yet that we had left the tree.
        if tables.is_outside:
            return [Dropped(notification, OUTSIDE)]
        if not notification.from_rendezvous:
            if notification.epoch < oldest and not self._state.upward_unchanged(
                notification.epoch, notification.home, topic
            ):
                return [Dropped(notification, BROKER_DIED)]  # Else we would have waited for END behind it.
            root = tables.rendezvous(topic)
            if root != self.broker:
                effects.append(Send(tables.next_hop(root), notification))
                return effects
            if self._state.must_keep_at_root(topic, notification):
                return effects + self._endings.keep_at_root(topic, notification)
        return effects + self._descent.pass_down(tables, notification)

    # --- clients and neighbours --------------------------------------------------------------------------------------

    def serve(self, request: ClientRequest) -> list[Effect]:
        """Handle a request of a local client."""
        if isinstance(request, SubscribeRequest) and not self._accepts(request):
            return rejected(request)
        match request:
            case SubscribeRequest():
                return self._trees.subscribe(request) + self._moves.notify_late(request)
            case GoneRequest() if (epoch := self._state.early.epoch_of((request.user, request.connection))) is not None:
                return self._state.keep_early(epoch, None, request)
            case CancelRequest() | DrainedRequest() if (
                epoch := self._state.early.epoch_of(request.subscription)
            ) is not None:
                return self._state.keep_early(epoch, None, request)  # Behind the user's AttachRequest, also kept.
            case CancelRequest():
                return self._trees.cancel(request)
            case AdvertiseRequest() | UnadvertiseRequest():
                return self._publishers.serve(request)
            case AttachRequest():
                return self._moves.attach(request)
            case MoveAckRequest():
                return self._moves.confirm_move(request)
            case DrainedRequest():
                return self._moves.note_drained(request)
            case GoneRequest():
                return self._moves.note_gone(request)
        raise ProtocolError(f"{self.broker} got {type(request).__name__} from a client")

    def _accepts(self, request: SubscribeRequest) -> bool:
        """Return True if a subscriber may use this broker: one that joins or leaves serves only users that move."""
        if self._state.takes_clients:
            return True
        return self._moves.is_of_plan(request.client, request.connection)

    def converse(self, source: str, message: ControlMessage) -> list[Effect]:
        """Handle a control message from a neighbour."""
        if self._state.is_dead(source, message.epoch):
            return []
        tables = self._state.tables.get(message.epoch)
        if tables is None:
            if any(one.epoch == message.epoch for one in self._state.retired):
                return self._handle_late(source, message)
            return self._state.keep_early(message.epoch, source, message)
        if tables.is_outside and not self._concerns_leaving(tables, source, message):
            return []  # It is for an earlier incarnation of this broker, or of another plan.
        match message:
            case Join():
                return self._trees.accept_join(tables, source, message)
            case JoinAck():
                return self._trees.accept_join_ack(tables, message)
            case Leave():
                return self._trees.accept_leave(tables, source, message)
            case EndTopic():
                return self.change.note_topic_over(tables, message.topic)
            case AskEndTopic():
                return self._endings.accept_topic_end_request(source, message)
            case EndBehind():
                return self.change.note_end_behind(tables, message)
        return self._route_onward(tables, cast(RoutedMessage, message))

    def _concerns_leaving(self, tables: RingTables, source: str, message: ControlMessage) -> bool:
        """Return True if this broker, outside this epoch's ring, must handle a message of it.

        That is so for a leaving broker if END is wanted, or if another leaving broker relays over it.
        """
        is_passed_on = getattr(message, "target", self.broker) != self.broker
        is_leaving = tables.epoch > min(self._state.tables)
        is_from_leaving = source not in tables.configuration.place_of  # Else rings of two controllers may form a loop.
        return is_leaving and (isinstance(message, AskEndTopic) or (is_passed_on and is_from_leaving))

    def _handle_late(self, source: str, message: ControlMessage) -> list[Effect]:
        """Apply what a message of a retired epoch means for the epoch derived from it.

        Only messages that no broker waits for may come so late: a child or a publisher has left, and its path is the
        same in both epochs. Everything else in transit is useless now.
        """
        oldest = self._state.tables[min(self._state.tables)]
        if oldest.is_outside:
            return []
        match message:
            case Leave() if oldest.epoch > message.issued_max:
                return self._trees.accept_leave(oldest, source, message)
            case Unregister() if oldest.epoch > message.issued_max:
                return self._route_onward(oldest, message)
        return []

    def _route_onward(self, tables: RingTables, message: RoutedMessage) -> list[Effect]:
        """Send a message one hop towards its target, or accept it if this broker is the target."""
        if message.target != self.broker:
            return self._state.send_onward(tables, message)
        match message:
            case NotComing():
                return self._moves.stop_awaiting(message.user)
            case HandedOver():
                return self._endings.note_handed_over(message.user)
            case AskFlush() | Probe() | ProbeBack() | GrantFlush():
                return self._trees.accept_of_flush(tables, message)
        return self._publishers.accept(tables, message)
