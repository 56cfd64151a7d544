"""Clients of an any-order overlay that are far from their brokers: requests and effects are under way in any order.

In: what clients request from a broker, what a broker reports to a client. Out: both, later, each by an action. What one
client sends to one broker keeps its order, and so does what a broker reports to it; nothing else does. A notification
counts as published when it reaches its home: before that no broker could hand it over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from regraft.producers.brokers.broker_messages import (
    AdvertiseRequest,
    ClientDropped,
    ClientEffect,
    ClientRequest,
    Notification,
    SubscriberEffect,
    SubscribeRequest,
)
from regraft.producers.brokers.ring_messages import UserEffect
from regraft.producers.emulator.subscriber_clients import STAY_MARK

REMOTE = {"remote": "requests to brokers, and what they report to clients, take time"}
TOPIC_MARK = "#"  # Separates a user's name from the number of its subscription.
CLIENT_FIELDS = ("publisher", "user", "client", "subscription")


class RemoteClients:
    """Connections between clients and brokers. A part of an any-order overlay; without ``is_remote``, all are at hand.

    ``asks`` by client and broker, ``tells`` by broker and client: what is under way, with the broker's life.
    """

    account: Any
    brokers: dict[str, Any]
    busy: dict[str, None]
    clock: Any
    users: Any
    subscribers: Any
    _execute: Callable[[Any, Any], None]

    def set_up_connections(self) -> None:
        """Begin with nothing under way."""
        self.is_remote = False
        self.asks: dict[tuple[str, str], deque[tuple[Any, Any]]] = {}
        self.tells: dict[tuple[str, str], deque[tuple[Any, Any]]] = {}

    def is_on_its_way(self, broker: Any, source: str | None, message: Any) -> bool:
        """Put a client's request on its connection; return False for everything else, and if clients are at hand."""
        if not self.is_remote or source is not None or not isinstance(message, ClientRequest | Notification):
            return False
        self.asks.setdefault((client_of(message), broker.name), deque()).append((broker, message))
        return True

    def report(self, broker: Any, effect: Any) -> None:
        """Let a broker's effect happen, or put it on the connection of the client that it concerns."""
        if isinstance(effect, ClientDropped):
            self.account.drop_client(self._subscriptions_of(broker.name, effect))
            if not broker.core.takes_clients:
                self._close_connection((client_of(effect), broker.name), effect)
        if self.is_remote and isinstance(effect, ClientEffect | SubscriberEffect | UserEffect):
            self.tells.setdefault((broker.name, client_of(effect)), deque()).append((broker, effect))
        else:
            self._execute(broker, effect)

    def _close_connection(self, pair: tuple[str, str], dropped: ClientDropped) -> None:
        """Lose what a client had sent in a stay to a broker that has begun again since, up to its next stay there."""
        lane = self.asks.pop(pair, deque())
        while lane and not is_of_later_stay(lane[0][1], dropped):
            lane.popleft()
        if lane:
            self.asks[pair] = lane

    def _subscriptions_of(self, name: str, dropped: ClientDropped) -> list[str]:
        client = dropped.client
        user, one = self.users._users.get(client), self.subscribers._owners.get(client)
        if user is not None:
            is_present = (user.home, user.connection) == (name, dropped.connection)
            return list(user.has.values()) if is_present else []
        return [client] if one is not None and self.subscribers._subscribers[one].home == name else []

    def lose_connections(self, name: str) -> None:
        """Lose what is on the connections of a dead broker."""
        self.asks = {pair: queue for pair, queue in self.asks.items() if pair[1] != name}
        self.tells = {pair: queue for pair, queue in self.tells.items() if pair[0] != name}

    def do_ask(self, client: str, name: str) -> bool:
        """Let the first request of a client reach its broker."""
        found = _take_first(self.asks, (client, name))
        if found is None:
            return False
        broker, message = found
        if isinstance(message, Notification):
            self.account.arrive(message.publisher, message.sequence, self.clock.now)
        broker.queue.append((None, message, self.clock.now))
        self.busy[name] = None
        return True

    def do_tell(self, name: str, client: str) -> bool:
        """Let the first report of a broker reach its client."""
        found = _take_first(self.tells, (name, client))
        if found is None:
            return False
        self._execute(*found)
        return True


def client_of(message: Any) -> str:
    """Return the client that a request or an effect concerns; all subscriptions of one share a connection."""
    name = str(next(getattr(message, field) for field in CLIENT_FIELDS if hasattr(message, field)))
    return name.partition(TOPIC_MARK)[0].partition(STAY_MARK)[0]


def is_of_later_stay(request: Any, dropped: ClientDropped) -> bool:
    """Return True if a request begins a stay that a broker has not ended yet."""
    if isinstance(request, SubscribeRequest):
        return (request.client, request.connection) != (dropped.client, dropped.connection)
    return isinstance(request, AdvertiseRequest) and request.connection > dropped.connection


def _take_first(lanes: dict[tuple[str, str], deque[Any]], pair: tuple[str, str]) -> Any:
    queue = lanes.get(pair)
    if queue is None:
        return None
    first = queue.popleft()
    if not queue:
        del lanes[pair]
    return first
