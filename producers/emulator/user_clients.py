"""The users that are connected: where each is, what it wants, and how it changes from one home to the next.

In: what a workload wants for its users, what brokers tell them. Out: requests for homes. A user that moves is attached
at both homes: the old one serves it to the end of the older epoch, the next one from the beginning of the newer. From
when it is told to move until its next home has taken it, it asks for nothing new; what it ends, it ends at both.
Publishers and queues do not belong here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import simpy

from producers.brokers.broker_messages import CancelRequest, ClientRequest, SubscribeRequest
from producers.brokers.chord_messages import (
    AttachRequest,
    DrainedRequest,
    GoneRequest,
    MovedSubscription,
    MoveHeardRequest,
)
from producers.brokers.chord_trees import TOPIC
from producers.brokers.match_content import Filter, Operator, Predicate
from producers.emulator.ledger import Ledger
from producers.emulator.publisher_clients import ClientError


def topic_filter(topic: str) -> Filter:
    """Return the filter of who publishes on or subscribes to a topic."""
    return (Predicate(TOPIC, Operator.EQ, topic),)


class BrokerTopics:
    """Which broker subscribes to which topic because of its users, and how often that has changed.

    A broker subscribes to a topic as long as one of its users does (Zhao13, section 3). ``changes`` is what the
    paper calls brokers' subscription changes.
    """

    def __init__(self) -> None:
        self.changes = 0
        self._users: Counter[tuple[str, str]] = Counter()

    def add(self, home: str, topics: Iterable[str]) -> None:
        """A user of this broker wants these topics from now on."""
        for topic in topics:
            self._users[home, topic] += 1
            self.changes += self._users[home, topic] == 1

    def remove(self, home: str, topics: Iterable[str]) -> None:
        """A user of this broker wants them no longer."""
        for topic in topics:
            self._users[home, topic] -= 1
            if not self._users[home, topic]:
                del self._users[home, topic]
                self.changes += 1

    @property
    def subscription_count(self) -> int:
        """How many (broker, topic) pairs there are."""
        return len(self._users)


@dataclass(slots=True)
class UserCounts:
    """Users that changed their home: how many, how long they could not ask for anything new."""

    moved: int = 0
    wait_ms_sum: float = 0.0
    wait_ms_max: float = 0.0


@dataclass(slots=True)
class _User:
    """A connected user.

    ``has``: its subscription to each topic; ``wants``: the topics it would have. Between two homes ``goes_to`` is the
    next one, for ``epoch``. ``brought``: subscriptions that moved and that its old home ``came_from`` still serves.
    """

    home: str
    first_home: str
    connection: int
    wants: frozenset[str] = frozenset()
    has: dict[str, str] = field(default_factory=dict)
    confirmed: set[str] = field(default_factory=set)
    changes: int = 0
    goes_to: str | None = None
    epoch: int = -1
    told_ms: float = 0.0
    is_attached: bool = False
    came_from: str = ""
    brought: set[str] = field(default_factory=set)


class UserClients:
    """All users of one overlay.

    ``ask`` puts a request into the queue of a home; ``on_change`` is told of a user at a broker with its topics, or
    None when it has left, and how many changes it has made; ``on_move`` that it has come to another home.
    """

    def __init__(
        self,
        env: simpy.Environment,
        ledger: Ledger,
        ask: Callable[[str, ClientRequest], None],
        on_change: Callable[[str, str, tuple[str, ...] | None, int], None],
        on_move: Callable[[str, str, tuple[str, ...]], None],
    ) -> None:
        self.counts = UserCounts()
        self.topics = BrokerTopics()
        self.topics_at_first_homes = BrokerTopics()  # As if nobody had ever moved.
        self._env = env
        self._ledger = ledger
        self._ask = ask
        self._on_change = on_change
        self._on_move = on_move
        self._users: dict[str, _User] = {}
        self._owners: dict[str, tuple[str, str]] = {}  # Subscription -> user, topic; until it is ended.
        self._named = 0
        self._connected = 0

    @property
    def user_count(self) -> int:
        """How many users are connected."""
        return len(self._users)

    @property
    def subscription_count(self) -> int:
        """How many subscriptions they have together."""
        return len(self._owners)

    @property
    def is_any_moving(self) -> bool:
        """Tell whether a user is between two homes."""
        return any(user.goes_to is not None for user in self._users.values())

    def home_of(self, user: str) -> str | None:
        """Return a user's home, None when it is not connected."""
        found = self._users.get(user)
        return None if found is None else found.home

    def filter_of(self, subscription: str) -> Filter | None:
        """Return the filter of a subscription that has not ended, else None."""
        owner = self._owners.get(subscription)
        return None if owner is None else topic_filter(owner[1])

    # --- what users do -----------------------------------------------------------------------------------------------

    def connect(self, user: str, home: str, topics: Iterable[str]) -> None:
        """Connect a user to its home; raise ClientError when it is connected already."""
        if user in self._users:
            raise ClientError(f"user {user} is connected already, to {self._users[user].home}")
        self._users[user] = _User(home, home, self._connected)
        self._connected += 1
        self.change_topics(user, topics)

    def change_topics(self, user: str, topics: Iterable[str]) -> None:
        """Let a user want these topics and no others; raise ClientError when it is not connected."""
        found = self._users.get(user)
        if found is None:
            raise ClientError(f"user {user} is not connected")
        wanted = frozenset(topics)
        if wanted == found.wants and found.changes:
            return
        self._count(found, wanted)
        found.wants = wanted
        found.changes += 1
        self._follow(user, found)
        self._on_change(user, found.home, tuple(sorted(wanted)), found.changes)

    def disconnect(self, user: str) -> None:
        """Disconnect a user; what was published before is still delivered."""
        found = self._users.pop(user, None)
        if found is None:
            return
        self._count(found, frozenset())
        for topic in sorted(found.has):
            self._end(found, topic)
        self._ask(found.home, GoneRequest(user, found.connection))
        if found.goes_to is not None and not found.is_attached:
            self._ask(found.goes_to, AttachRequest(found.epoch, user, found.connection, ()))  # It is waited for there.
        self._on_change(user, found.home, None, found.changes + 1)

    def drop(self, user: str, connection: int) -> bool:
        """Take note that a home has ended a stay; return False if it is not a stay of now."""
        found = self._users.get(user)
        if found is None or found.connection != connection:
            return False
        self.disconnect(user)
        return True

    def lose_home(self, broker: str) -> None:
        """End the users of a broker that died, and those that were about to go there."""
        for name in [name for name, user in self._users.items() if broker in (user.home, user.goes_to)]:
            self.disconnect(name)

    def _follow(self, name: str, user: _User) -> None:
        """End what the user no longer wants; ask for what it wants, unless it is between two homes."""
        for topic in sorted(set(user.has) - user.wants):
            self._end(user, topic)
        if user.goes_to is not None:
            self._attach_when_settled(name, user)  # What it has just ended need not be confirmed.
            return
        for topic in sorted(user.wants - set(user.has)):
            subscription = f"{name}#{self._named}"
            self._named += 1
            user.has[topic] = subscription
            self._owners[subscription] = name, topic
            self._ask(user.home, SubscribeRequest(subscription, name, topic_filter(topic), user.connection))

    def _end(self, user: _User, topic: str) -> None:
        subscription, now_ms = user.has.pop(topic), self._env.now
        del self._owners[subscription]
        user.confirmed.discard(subscription)
        self._ledger.cancel(subscription, now_ms)
        self._ask(user.home, CancelRequest(subscription))
        if user.goes_to is not None and user.is_attached:
            self._ask(user.goes_to, CancelRequest(subscription))
        elif subscription in user.brought:
            self._ask(user.came_from, CancelRequest(subscription))

    def _count(self, user: _User, wanted: frozenset[str]) -> None:
        gone, come = user.wants - wanted, wanted - user.wants
        for topics, home in ((self.topics, user.home), (self.topics_at_first_homes, user.first_home)):
            topics.add(home, come)
            topics.remove(home, gone)

    # --- what brokers tell users -------------------------------------------------------------------------------------

    def confirm(self, subscription: str) -> bool:
        """A subscription stands: what is published from now on is owed to it. Return False if its user has ended it."""
        owner = self._owners.get(subscription)
        if owner is None:
            return False
        name, topic = owner
        self._ledger.confirm(subscription, topic_filter(topic), self._env.now)
        user = self._users[name]
        user.confirmed.add(subscription)
        self._attach_when_settled(name, user)
        return True

    def move(self, user: str, connection: int, home_to: str, epoch: int) -> None:
        """Its home tells a user to go on at another one; it goes when all it has asked for is confirmed."""
        found = self._users.get(user)
        if found is None or found.connection != connection or found.goes_to is not None:
            self._ask(home_to, AttachRequest(epoch, user, connection, ()))  # That stay is over.
            return
        self._ask(found.home, MoveHeardRequest(user, connection))
        found.goes_to, found.epoch, found.told_ms, found.is_attached = home_to, epoch, self._env.now, False
        self._attach_when_settled(user, found)

    def _attach_when_settled(self, name: str, user: _User) -> None:
        if user.goes_to is None or user.is_attached or len(user.confirmed) < len(user.has):
            return
        user.is_attached = True
        subscriptions = tuple(
            MovedSubscription(subscription, topic) for topic, subscription in sorted(user.has.items())
        )
        self._ask(user.goes_to, AttachRequest(user.epoch, name, user.connection, subscriptions))

    def stay(self, user: str, connection: int) -> None:
        """The move was called off."""
        found = self._users.get(user)
        if found is not None and found.connection == connection and found.goes_to is not None:
            found.goes_to = None
            self._end_wait(user, found)

    def take(self, user: str, broker: str) -> None:
        """``broker`` is the user's home from now on."""
        found = self._users.get(user)
        if found is None or found.goes_to != broker:
            return
        self.topics.remove(found.home, found.wants)
        self.topics.add(broker, found.wants)
        found.came_from, found.brought = found.home, set(found.has.values())
        found.home, found.goes_to = broker, None
        self.counts.moved += 1
        self._on_move(user, broker, tuple(sorted(found.wants)))
        self._end_wait(user, found)

    def drain(self, user: str, subscription: str, home_to: str) -> None:
        """The old home has handed over all of a subscription that moved: say so at the next one."""
        self._ask(home_to, DrainedRequest(subscription))
        found = self._users.get(user)
        if found is not None:
            found.brought.discard(subscription)

    def _end_wait(self, name: str, user: _User) -> None:
        wait_ms = self._env.now - user.told_ms
        self.counts.wait_ms_sum += wait_ms
        self.counts.wait_ms_max = max(self.counts.wait_ms_max, wait_ms)
        self._follow(name, user)
