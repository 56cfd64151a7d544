"""One broker's protocol core: what it does with each message that comes to it.

In: one message at a time (from a neighbour, a local client or the controller) and the time. Out: effects. It owns no
queue, no link and no clock, so that any scheduler can drive it: the emulator, and tests that try every order. What it
asks of its surroundings: messages of one link arrive in the order they were sent, and nothing is lost.

Notifications are routed here; subscriptions and advertisements by :mod:`producers.brokers.broker_routing`, the change
from one configuration to the next by :mod:`producers.brokers.broker_transition`.
"""

from __future__ import annotations

from dataclasses import replace

from producers.brokers.broker_messages import (
    Advertise,
    AdvertiseAck,
    AdvertiseRequest,
    CancelRequest,
    ClientRequest,
    Deliver,
    Dropped,
    Effect,
    End,
    LeaveRequest,
    Notification,
    Published,
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
from producers.brokers.broker_transition import BrokerTransition
from producers.brokers.routing_tables import LOCAL
from producers.brokers.two_epochs import EPOCH_UNKNOWN, ProtocolError

NOT_ADVERTISED = "publisher_not_advertised"  # Here: it has ended its stay, or its home has.


class BrokerCore(BrokerTransition):
    """The protocol state of one broker. Deterministic: equal inputs give equal effects in equal order."""

    def _look_around(self, now_ms: float) -> list[Effect]:
        return []  # Whatever may be possible now is looked at where it becomes so.

    # --- notifications -----------------------------------------------------------------------------------------------

    def _route(self, source: str | None, notification: Notification) -> list[Effect]:
        effects: list[Effect] = []
        if source is None:
            if not self._is_advertised_here(notification.publisher):
                return [Dropped(notification, NOT_ADVERTISED)]
            notification = replace(notification, epoch=self.epoch)
            effects.append(Published(notification))
        tables = self.tables.get(notification.epoch)
        if tables is None:
            return [Dropped(notification, EPOCH_UNKNOWN)]
        destinations = tables.index.destinations(notification.content, source)
        for peer in sorted(destinations):
            if peer != LOCAL:
                effects.append(Send(peer, notification))
        if LOCAL in destinations:
            wanted = tables.index.keys_for(notification.content, LOCAL)
            subscriptions = tuple(sorted(key for key in wanted if key in self.locals and self.locals[key].is_confirmed))
            if subscriptions:
                self._deliver_or_hold(Deliver(notification, subscriptions), effects)
        return effects

    # --- clients and neighbours --------------------------------------------------------------------------------------

    def _serve(self, request: ClientRequest, now_ms: float) -> list[Effect]:
        match request:
            case SubscribeRequest():
                return self._subscribe(request, now_ms)
            case CancelRequest():
                return self._cancel(request, now_ms)
            case AdvertiseRequest():
                return self._advertise(request, now_ms)
            case UnadvertiseRequest():
                return self._unadvertise(request, now_ms)
            case LeaveRequest():
                return self._see_leave(request, now_ms)
        raise ProtocolError(f"{self.broker} got {type(request).__name__} from a client")

    def _advertise(self, request: AdvertiseRequest, now_ms: float) -> list[Effect]:
        """Advertise a local publisher, or keep that until the transition is over and its earlier stay has ended here.

        Whoever learns of a publisher must still hold the tables it derived the next ones from.
        """
        if self.under_way is not None or request.publisher in self.advertisements:
            self._postponed.append(request)
            return []
        message = Advertise(self.epoch, request.publisher, request.connection, self.broker, request.filter_)
        return self._learn_advertisement(LOCAL, message) + self._settle((), now_ms)

    def _unadvertise(self, request: UnadvertiseRequest, now_ms: float) -> list[Effect]:
        """Say that a local publisher has ended; when this broker stamps the new epoch, after the transition.

        It must go over the tree that its last notifications took, behind them, and be everywhere before that epoch is
        retired: END of this broker must follow it. A stay that ends before it was advertised leaves no trace.
        """
        if request in self._postponed:
            return []  # It had been cut off before it said so itself.
        if self._drop_postponed(request):
            return []
        if self.under_way is not None and self.under_way.is_active:
            self._postponed.append(request)
            return []
        end = Unadvertise(self.epoch, request.publisher, request.connection)
        switched = self._see_leave(request, now_ms)  # Behind the end, or END would overtake it.
        effects = self._forget_advertisement(LOCAL, end) + switched + self._take_postponed(now_ms)
        return effects + self._settle((), now_ms)

    def _converse(self, source: str, message: TreeMessage, now_ms: float) -> list[Effect]:
        if message.epoch not in self.tables:
            return self._keep_early(message.epoch, source, message)
        tables = self.tables[message.epoch]
        match message:
            case Advertise():
                return self._learn_advertisement(source, message) + self._settle((), now_ms)
            case AdvertiseAck():
                known = self.advertisements.get(message.publisher)
                if known is not None and known.connection == message.connection:
                    known.unanswered.discard(source)
                return self._settle((), now_ms)
            case Unadvertise():
                effects = self._forget_advertisement(source, message) + self._take_postponed(now_ms)
                return effects + self._settle((), now_ms)
            case Subscribe():
                return self._accept_subscription(tables, source, message, now_ms)
            case SubscribeAck():
                entry = tables.entries.get(message.subscription)
                if entry is not None:
                    entry.unconfirmed.discard(source)
                return self._settle((message.subscription,), now_ms)
            case Unsubscribe():
                return self._release_subscription(tables, source, message, now_ms)
            case UnsubscribeAck():
                return self._accept_release(tables, source, message.subscription, now_ms)
            case End():
                tables.ends_received.add(source)
                return self._release_held() + self._drain(now_ms)
        raise ProtocolError(f"{self.broker} got {type(message).__name__} from {source}")
