"""How a broker of a tree handles each message.

In: one message at a time from a neighbour or a local client, and the time. Out: effects. Notifications are routed here;
subscriptions and advertisements belong to :mod:`producers.brokers.tree_interests`, the change from one configuration to
the next to :mod:`producers.brokers.tree_change`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers.broker_messages import (
    Advertise,
    AdvertiseAck,
    AdvertiseRequest,
    ArriveRequest,
    CancelRequest,
    ClientRequest,
    ControlMessage,
    Dropped,
    Effect,
    End,
    LeaveRequest,
    Notification,
    Published,
    ReadyRequest,
    Send,
    Subscribe,
    SubscribeAck,
    SubscribeRequest,
    TreeMessage,
    Unadvertise,
    UnadvertiseRequest,
    Unsubscribe,
    UnsubscribeAck,
)
from regraft.producers.brokers.broker_reports import NOT_ADVERTISED, ProtocolError
from regraft.producers.brokers.broker_state import BrokerState
from regraft.producers.brokers.epoch_change import rejected
from regraft.producers.brokers.tree_change import TreeChange
from regraft.producers.brokers.tree_interests import TreeInterests
from regraft.producers.brokers.tree_tables import LOCAL, RoutingTables, TreePlanUnderWay, TreeState
from regraft.producers.brokers.two_epochs import TwoEpochBroker

TreeBroker = TwoEpochBroker[RoutingTables, TreePlanUnderWay]


def tree_broker(broker: str, configuration: TreeConfiguration, boot_ms: int, *, is_outside: bool = False) -> TreeBroker:
    """Return the protocol core of a broker of a tree, or of an outsider."""
    state: TreeState = BrokerState(broker, RoutingTables(broker, configuration, is_outside=is_outside))
    return TwoEpochBroker(state, boot_ms, partial(TreeRouting, state))


class TreeRouting:
    """Message routing at one broker of a tree. A :class:`producers.brokers.epoch_change.Routing`."""

    def __init__(self, state: TreeState) -> None:
        self._state = state
        self.broker = state.broker
        self.interests = TreeInterests(state)
        self.change = TreeChange(state, self.interests)

    @property
    def covered_forwards(self) -> int:
        """Number of subscriptions sent to a neighbour that already had a wider one from here."""
        return self.interests.covered_forwards

    @property
    def ended_count(self) -> int:
        """Number of subscriptions that have ended but are not yet gone from every broker."""
        return self.interests.ended_count

    def clients_here(self) -> dict[str, int]:
        """Return the publishers and subscribers whose home this broker is, with the number of their stay."""
        return self.interests.clients_here()

    def release_ended(self) -> list[Effect]:
        """Return nothing: on a tree subscriptions are forgotten as soon as they have ended everywhere."""
        return []

    # --- notifications -----------------------------------------------------------------------------------------------

    def route(self, source: str | None, notification: Notification) -> list[Effect]:
        """Pass a notification on towards all interested brokers, and hand it over to local subscriptions."""
        effects: list[Effect] = []
        if source is None:
            if not self.interests.is_advertised_here(notification.publisher):
                return [Dropped(notification, NOT_ADVERTISED)]
            if notification.epoch != self._state.epoch:  # Nodes pass the current epoch: replace is slow.
                notification = replace(notification, epoch=self._state.epoch)
            effects.append(Published(notification))
        tables = self.change.tables_for(source, notification)
        if isinstance(tables, Dropped):
            return [tables]
        destinations = tables.index.destinations(notification.content, source)
        for peer in sorted(destinations):
            if peer != LOCAL:
                effects.append(Send(peer, notification))
        if LOCAL in destinations:
            self.change.hand_over(notification, tables.index.keys_for(notification.content, LOCAL), effects)
        return effects

    # --- clients and neighbours --------------------------------------------------------------------------------------

    def serve(self, request: ClientRequest) -> list[Effect]:
        """Handle a request of a local client."""
        if isinstance(request, SubscribeRequest) and not self._state.takes_clients:
            return rejected(request)
        match request:
            case SubscribeRequest():
                return self.interests.subscribe(request)
            case CancelRequest():
                return self.interests.cancel(request)
            case AdvertiseRequest() | UnadvertiseRequest():
                return self.change.serve_publisher(request)
            case LeaveRequest():
                return self.change.note_leave(request)
            case ArriveRequest():
                return self.change.movers.arrive(request)
            case ReadyRequest():
                return self.change.movers.note_ready(request)
        raise ProtocolError(f"{self.broker} got {type(request).__name__} from a client")

    def converse(self, source: str, message: ControlMessage) -> list[Effect]:
        """Handle a control message from a neighbour; raise ProtocolError for one of another kind of overlay."""
        if not isinstance(message, TreeMessage):  # At once: it might have to wait for a plan.
            raise ProtocolError(f"{self.broker} got {type(message).__name__} from {source}")
        if message.epoch not in self._state.tables:
            return self._state.keep_early(message.epoch, source, message)
        tables = self._state.tables[message.epoch]
        if source in tables.dead:
            return []
        if tables.is_outside:
            return []  # It is for an earlier incarnation of this broker.
        match message:
            case Advertise():
                return self.interests.learn_advertisement(source, message) + self.interests.settle(())
            case AdvertiseAck():
                self.interests.repairs.accept_ack(source, message)
                return self.interests.settle(())
            case Unadvertise():
                effects = self.interests.forget_advertisement(source, message) + self.change.serve_postponed()
                return effects + self.interests.settle(())
            case Subscribe():
                return self.interests.accept_subscription(tables, source, message)
            case SubscribeAck():
                entry = tables.entries.get(message.subscription)
                if entry is not None:
                    entry.unconfirmed.discard(source)
                return self.interests.settle((message.subscription,))
            case Unsubscribe():
                return self.interests.release_subscription(tables, source, message)
            case UnsubscribeAck():
                return self.interests.accept_release(tables, source, message.subscription)
            case End():
                return self.change.note_end(tables, source)
