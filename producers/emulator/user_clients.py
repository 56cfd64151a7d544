"""The connected users of a ring: where each is, what it wants, and how it changes from one home to the next.

In: what a workload wants for its users, what brokers send them. Out: requests for homes. A moving user is attached at
both homes: the old one serves it to the end of the older epoch, the next one from the beginning of the newer. From the
request to move until its next home has accepted it, it sends all its requests to both. A user whose home has died
returns in a new stay. Publishers and queues do not belong here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import simpy

from regraft.producers.brokers.broker_messages import CancelRequest, ClientRequest, SubscribeRequest
from regraft.producers.brokers.match_content import Filter, Operator, Predicate
from regraft.producers.brokers.ring_messages import (
    AttachRequest,
    DrainedRequest,
    GoneRequest,
    MoveAckRequest,
    MovedSubscription,
)
from regraft.producers.brokers.ring_tables import TOPIC
from regraft.producers.emulator.count_users import BrokerTopics, UserCounts
from regraft.producers.emulator.ledger import Ledger
from regraft.producers.emulator.publisher_clients import ClientError, is_always_serving
from regraft.producers.emulator.subscriber_clients import HomesInTurn


def topic_filter(topic: str) -> Filter:
    """Return the filter of publishers on, or subscribers to, a topic."""
    return (Predicate(TOPIC, Operator.EQ, topic),)


def ignore_placement(subscription: str, home: str, epoch: int) -> None:
    """Do nothing: for overlays in which no broker dies, nobody asks where a subscription is."""


@dataclass(slots=True)
class _User:
    """A connected user.

    ``has``: its subscription to each topic it wants. ``unconfirmed``: by subscription, the homes that have yet to
    confirm it. Between two homes ``goes_to`` is the next one, in ``epoch``; ``asked_ms``: when each still unconfirmed
    request of that time was made. ``brought``: moved subscriptions that its old home ``came_from`` still serves.
    """

    home: str
    first_home: str
    connection: int
    wants: frozenset[str] = frozenset()
    has: dict[str, str] = field(default_factory=dict)
    unconfirmed: dict[str, set[str]] = field(default_factory=dict)
    changes: int = 0
    goes_to: str | None = None
    epoch: int = -1
    asked_ms: dict[str, float] = field(default_factory=dict)
    came_from: str = ""
    brought: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _HomelessUser:
    """A user that waits for ``home``, the topics it wants meanwhile, and what its next stay continues."""

    home: str
    first_home: str
    wants: frozenset[str]
    changes: int


class UserClients:
    """All users of one overlay.

    ``ask`` puts a request into the queue of a home. ``on_change`` is called with a user at a broker and its topics, or
    None when it has left, and the number of changes it has made; ``on_move`` when it has moved to another home.
    ``is_serving`` returns True if a broker accepts clients; a client of any other waits. ``place`` is called with the
    broker of a subscription from an epoch on. ``turns`` decides from which homes its client takes notifications.
    """

    def __init__(
        self,
        env: simpy.Environment,
        ledger: Ledger,
        ask: Callable[[str, ClientRequest], None],
        on_change: Callable[[str, str, tuple[str, ...] | None, int], None],
        on_move: Callable[[str, str, tuple[str, ...]], None],
        is_serving: Callable[[str], bool] = is_always_serving,
        place: Callable[[str, str, int], None] = ignore_placement,
        turns: HomesInTurn | None = None,
    ) -> None:
        self.reconnected_count = 0
        self.counts = UserCounts()
        self.topics = BrokerTopics()
        self.topics_at_first_homes = BrokerTopics()  # As if no user had ever moved.
        self._env = env
        self._ledger = ledger
        self._ask = ask
        self._on_change = on_change
        self._on_move = on_move
        self._is_serving = is_serving
        self._place = place
        self._turns = turns or HomesInTurn()
        self._users: dict[str, _User] = {}
        self._homeless: dict[str, _HomelessUser] = {}
        self._owners: dict[str, tuple[str, str]] = {}  # Subscription -> user, topic; until it ends.
        self._named = 0
        self._connected = 0

    @property
    def user_count(self) -> int:
        """Number of connected users."""
        return len(self._users)

    @property
    def waiting_count(self) -> int:
        """Number of users that wait for a home."""
        return len(self._homeless)

    @property
    def subscription_count(self) -> int:
        """Number of subscriptions of all users."""
        return len(self._owners)

    @property
    def is_any_moving(self) -> bool:
        """Whether a user is between two homes."""
        return any(user.goes_to is not None for user in self._users.values())

    def home_of(self, user: str) -> str | None:
        """Return the home that a user has or waits for, or None if it is gone."""
        client = self._users.get(user) or self._homeless.get(user)
        return None if client is None else client.home

    # --- what users do -----------------------------------------------------------------------------------------------

    def connect(self, user: str, home: str, topics: Iterable[str]) -> None:
        """Connect a user to its home; raise ClientError if it is already connected."""
        if user in self._users or user in self._homeless:
            raise ClientError(f"user {user} is already connected, to {self.home_of(user)}")
        if not self._is_serving(home):
            self._homeless[user] = _HomelessUser(home, home, frozenset(topics), 0)
            return
        self._users[user] = _User(home, home, self._connected)
        self._connected += 1
        self.change_topics(user, topics)

    def change_topics(self, user: str, topics: Iterable[str]) -> None:
        """Set the topics that a user subscribes to; raise ClientError if it is not connected."""
        wanted = frozenset(topics)
        if user in self._homeless:
            self._homeless[user].wants = wanted
            return
        client = self._users.get(user)
        if client is None:
            raise ClientError(f"user {user} is not connected")
        if wanted != client.wants or not client.changes:
            self._request(user, client, wanted)

    def _request(self, user: str, client: _User, wanted: frozenset[str]) -> None:
        self._count(client, wanted)
        client.wants = wanted
        client.changes += 1
        self._follow(user, client)
        self._on_change(user, client.home, tuple(sorted(wanted)), client.changes)

    def disconnect(self, user: str) -> None:
        """Disconnect a user; what was published before is still delivered."""
        waiting = self._homeless.pop(user, None)
        if waiting is not None:
            self._on_change(user, waiting.home, None, waiting.changes + 1)
        elif user in self._users:
            client = self._users.pop(user)
            self._end_stay(user, client)
            self._on_change(user, client.home, None, client.changes + 1)

    def _end_stay(self, name: str, user: _User) -> None:
        """End a stay at each of its homes."""
        self._count(user, frozenset())
        for topic in sorted(user.has):
            self._end(user, topic)
        self._ask(user.home, GoneRequest(name, user.connection))
        if user.goes_to is not None:
            self._ask(user.goes_to, GoneRequest(name, user.connection))

    def drop(self, user: str, connection: int, by: str = "", *, is_over: bool = False) -> bool:
        """Note that a broker has ended a user's stay; return False if that is not the current stay there.

        ``by``: the broker, by default its home. The home that it came from is believed if the stay ``is_over``.
        """
        client = self._users.get(user)
        if client is None or client.connection != connection:
            return False
        if by not in ("", client.home) and not (is_over and by == client.came_from):
            return False
        self.disconnect(user)
        return True

    def lose_home(self, broker: str) -> None:
        """End the stays of a dead broker's users, and of those that were about to move there.

        A user whose other home is alive reconnects there, the others wait. Users that have moved on from the dead
        broker repeat the requests that it had not confirmed yet.
        """
        for name, user in [(name, user) for name, user in self._users.items() if broker in (user.home, user.goes_to)]:
            left = user.goes_to if user.home == broker else user.home
            del self._users[name]
            self._end_stay(name, user)
            self._homeless[name] = _HomelessUser(left or broker, user.first_home, user.wants, user.changes)
            if left is not None and self._is_serving(left):
                self.reconnect(name, left)
        for name, user in self._users.items():
            for topic in [topic for topic, one in user.has.items() if broker in user.unconfirmed.get(one, ())]:
                self._end(user, topic)
            self._follow(name, user)

    def reconnect_waiting(self, broker: str) -> None:
        """Let the users that wait for a broker reconnect to it."""
        for name in [name for name, waiting in self._homeless.items() if waiting.home == broker]:
            self.reconnect(name, broker)

    def reconnect(self, user: str, home: str) -> None:
        """Begin a new stay at this home for a user that has lost its own; others stay where they are."""
        waiting = self._homeless.pop(user, None)
        if waiting is None:
            return
        client = self._users[user] = _User(home, waiting.first_home, self._connected, changes=waiting.changes)
        self._connected += 1
        self.reconnected_count += waiting.changes > 0
        self._request(user, client, waiting.wants)

    def _follow(self, name: str, user: _User) -> None:
        """End subscriptions that the user no longer wants, and make those it wants: at both homes if it has two."""
        for topic in sorted(set(user.has) - user.wants):
            self._end(user, topic)
        for topic in sorted(user.wants - set(user.has)):
            subscription = f"{name}#{self._named}"
            self._named += 1
            user.has[topic] = subscription
            self._owners[subscription] = name, topic
            self._place(subscription, user.home, 0)
            user.unconfirmed[subscription] = {user.home}
            self._ask(user.home, SubscribeRequest(subscription, name, topic_filter(topic), user.connection))
            if user.goes_to is not None:
                user.unconfirmed[subscription].add(user.goes_to)
                user.asked_ms[subscription] = self._env.now
                self._attach(name, user, user.goes_to, {topic: subscription})

    def _attach(self, name: str, user: _User, home_to: str, has: Mapping[str, str]) -> None:
        for subscription in has.values():
            self._turns.move(subscription, user.home, home_to)
        moved = tuple(MovedSubscription(subscription, topic) for topic, subscription in sorted(has.items()))
        self._ask(home_to, AttachRequest(user.epoch, name, user.connection, moved))

    def _end(self, user: _User, topic: str) -> None:
        subscription, now_ms = user.has.pop(topic), self._env.now
        del self._owners[subscription]
        user.unconfirmed.pop(subscription, None)
        user.asked_ms.pop(subscription, None)
        self._ledger.cancel(subscription, now_ms)
        self._turns.end(subscription)
        self._ask(user.home, CancelRequest(subscription))
        if user.goes_to is not None:
            self._ask(user.goes_to, CancelRequest(subscription))
        elif subscription in user.brought:
            self._ask(user.came_from, CancelRequest(subscription))

    def _count(self, user: _User, wanted: frozenset[str]) -> None:
        gone, come = user.wants - wanted, wanted - user.wants
        for topics, home in ((self.topics, user.home), (self.topics_at_first_homes, user.first_home)):
            topics.add(home, come)
            topics.remove(home, gone)

    # --- what brokers send users -------------------------------------------------------------------------------------

    def confirm(self, subscription: str, broker: str) -> bool:
        """Note that a home has confirmed a subscription; return False if its user has ended it.

        Once all its homes have confirmed it, everything published from then on is owed to it.
        """
        owner = self._owners.get(subscription)
        if owner is None:
            return False
        name, topic = owner
        missing = self._users[name].unconfirmed.get(subscription, set())
        missing.discard(broker)
        if missing:
            self._ledger.confirm_partly(subscription, topic_filter(topic))
        else:
            self._owe(self._users[name], topic, subscription)
        return True

    def _owe(self, user: _User, topic: str, subscription: str) -> None:
        if user.unconfirmed.pop(subscription, None) is None:
            return  # It was already confirmed.
        self._ledger.confirm(subscription, topic_filter(topic), self._env.now)
        asked_ms = user.asked_ms.pop(subscription, None)
        if asked_ms is not None:
            wait_ms = self._env.now - asked_ms
            self.counts.asked += 1
            self.counts.wait_ms_sum += wait_ms
            self.counts.wait_ms_max = max(self.counts.wait_ms_max, wait_ms)

    def move(self, user: str, connection: int, home_to: str, epoch: int) -> None:
        """Attach a user, with all its subscriptions so far, to the next home that its home asks it to move to.

        The next home is prepared only after that, so nothing is published in the new epoch before the subscriptions are
        in place there: the old home alone confirms what it has yet to confirm.
        """
        client = self._users.get(user)
        if client is None or client.connection != connection or client.goes_to is not None:
            self._ask(home_to, AttachRequest(epoch, user, connection, ()))  # That stay is over.
            self._ask(home_to, GoneRequest(user, connection))
            return
        self._ask(client.home, MoveAckRequest(user, connection))
        client.goes_to, client.epoch = home_to, epoch
        for subscription in client.unconfirmed:
            self._ledger.confirm_partly(subscription, topic_filter(self._owners[subscription][1]))
        self._attach(user, client, home_to, client.has)

    def stay(self, user: str, connection: int) -> None:
        """Note that the move was aborted."""
        client = self._users.get(user)
        if client is None or client.connection != connection or client.goes_to is None:
            return
        home_to, client.goes_to = client.goes_to, None
        self._stop_awaiting(client, home_to)

    def _stop_awaiting(self, user: _User, home: str) -> None:
        """Wait for no confirmation of a home any more; what all others have confirmed is owed."""
        for subscription, missing in list(user.unconfirmed.items()):
            missing.discard(home)
            if not missing:
                self._owe(user, self._owners[subscription][1], subscription)

    def take(self, user: str, broker: str) -> None:
        """Make ``broker`` the user's home from now on; a second time, await nothing of its previous home any more."""
        client = self._users.get(user)
        if client is None or client.goes_to != broker:
            if client is not None and client.home == broker:
                self._stop_awaiting(client, client.came_from)
            return
        self.topics.remove(client.home, client.wants)
        self.topics.add(broker, client.wants)
        client.came_from, client.brought = client.home, set(client.has.values())
        client.home, client.goes_to = broker, None
        for subscription in client.brought:
            self._place(subscription, broker, client.epoch)
        self.counts.moved += 1
        self._ask(broker, MoveAckRequest(user, client.connection))  # From now on its old home gets no new requests.
        self._on_move(user, broker, tuple(sorted(client.wants)))

    def drain(self, user: str, subscription: str, home_to: str) -> None:
        """Report to the next home that the old one has handed over everything of a moved subscription."""
        self._ask(home_to, DrainedRequest(subscription))
        client = self._users.get(user)
        if client is not None:
            client.brought.discard(subscription)
