"""The subscribers of a tree, each with one subscription: where each is, and how it returns after its home has died.

In: what a workload wants, what brokers send and what happens to them. Out: requests for homes. Each stay of a
subscriber has a new subscription, because names of subscriptions are never reused; a move continues the same stay.
Publishers and queues do not belong here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import simpy

from regraft.producers.brokers.broker_messages import (
    ArriveRequest,
    CancelRequest,
    ClientRequest,
    ReadyRequest,
    SubscribeRequest,
)
from regraft.producers.brokers.match_content import Filter
from regraft.producers.emulator.ledger import Ledger

STAY_MARK = "~"  # Separates a subscriber's name from the number of its stay, from the second stay on.
ENDED_KEPT_MAX = 10_000  # Ended subscriptions to which something published before may still be handed over.


@dataclass(slots=True)
class _Subscriber:
    """A subscriber; ``subscription`` is that of its stay, empty while it waits for its home.

    ``goes_to`` is the next home that a plan has for it, in ``epoch``. It stays set if that plan is aborted: cancelling
    a subscription that never came there does nothing.
    """

    home: str
    filter_: Filter
    subscription: str = ""
    stays: int = 0
    goes_to: str = ""
    epoch: int = -1


class SubscriberClients:
    """All subscribers of one overlay.

    ``ask`` puts a request into the queue of a home. ``on_change`` is called with a subscriber at a broker and its
    filter, or None when it has ended; ``on_move`` when a subscriber has moved to another home. ``is_serving`` returns
    True if a broker accepts clients; until it does they wait. ``place`` is called with the broker of a subscription
    from an epoch on. ``turns`` decides from which homes its client takes notifications.
    """

    def __init__(
        self,
        env: simpy.Environment,
        ledger: Ledger,
        ask: Callable[[str, ClientRequest], None],
        on_change: Callable[[str, str, Filter | None], None],
        on_move: Callable[[str, str, Filter], None],
        is_serving: Callable[[str], bool],
        place: Callable[[str, str, int], None],
        turns: HomesInTurn | None = None,
    ) -> None:
        self.reconnected_count = 0
        self.moved_count = 0
        self._env = env
        self._ledger = ledger
        self._ask = ask
        self._on_change = on_change
        self._on_move = on_move
        self._is_serving = is_serving
        self._place = place
        self._turns = turns or HomesInTurn()
        self._subscribers: dict[str, _Subscriber] = {}
        self._owners: dict[str, str] = {}  # Subscriber by subscription, until that ends.

    @property
    def waiting_count(self) -> int:
        """Number of subscribers that wait for their home."""
        return sum(not one.subscription for one in self._subscribers.values())

    def subscribe(self, name: str, home: str, filter_: Filter) -> None:
        """Connect a subscriber to its home, or let it wait until that accepts clients."""
        self._subscribers[name] = _Subscriber(home, filter_)
        if self._is_serving(home):
            self._connect(name, self._subscribers[name])

    def cancel(self, name: str) -> None:
        """End a subscriber's subscription; do nothing if it has already ended."""
        subscriber = self._subscribers.pop(name, None)
        if subscriber is not None:
            self._end(subscriber)
            self._on_change(name, subscriber.home, None)

    def drop(self, subscription: str, by: str = "") -> bool:
        """Note that a subscriber's home has ended its stay; return False if the stay is already over.

        ``by``: the broker that says so. A subscriber believes only its home, not one that it has left or is to move to.
        """
        name = self._owners.get(subscription)
        if name is None or by not in ("", self._subscribers[name].home):
            return False
        self.cancel(name)
        return True

    def confirm(self, subscription: str) -> bool:
        """Note that a subscription is confirmed; return False if it has ended or does not belong to a subscriber."""
        name = self._owners.get(subscription)
        if name is None:
            return False
        self._ledger.confirm(subscription, self._subscribers[name].filter_, self._env.now)
        return True

    def move(self, subscription: str, home_to: str, epoch: int) -> None:
        """Bring a subscription to the next home that a plan has for it, too; do nothing if it has ended."""
        if subscription not in self._owners:
            return
        subscriber = self._subscribers[self._owners[subscription]]
        subscriber.goes_to, subscriber.epoch = home_to, epoch
        self._turns.move(subscription, subscriber.home, home_to)
        self._ask(home_to, ArriveRequest(epoch, subscription, subscription, subscriber.filter_))

    def expect(self, subscription: str, epoch: int) -> None:
        """Notify the old home of a subscription that the next one has it."""
        if subscription in self._owners:
            self._ask(self._subscribers[self._owners[subscription]].home, ReadyRequest(epoch, subscription))

    def take(self, subscription: str, home: str, epoch: int) -> str:
        """Make a broker the home of a subscription, and return its previous home.

        Returns an empty string if the subscription has ended: its end has also reached the new home.
        """
        if subscription not in self._owners:
            return ""
        name = self._owners[subscription]
        subscriber = self._subscribers[name]
        home_from, subscriber.home, subscriber.goes_to = subscriber.home, home, ""
        self.moved_count += 1
        self._place(subscription, home, epoch)
        self._on_move(name, home, subscriber.filter_)
        return home_from

    def lose_home(self, broker: str) -> None:
        """End the stays at a dead broker, and those that were to move there; their clients wait for it.

        A subscriber whose other home is alive reconnects there, in a new stay: a broker may be the home of one epoch
        only.
        """
        for name, one in self._subscribers.items():
            if broker not in (one.home, one.goes_to) or not one.subscription:
                continue
            left = one.goes_to if one.home == broker else one.home
            if one.goes_to:
                self._place(one.subscription, one.goes_to, one.epoch)
            self._end(one)
            one.home, one.goes_to = left or broker, ""
            if left and self._is_serving(left):
                self.reconnected_count += 1
                self._connect(name, one)

    def reconnect_waiting(self, broker: str) -> None:
        """Let the subscribers that wait for a broker connect to it."""
        for name, one in self._subscribers.items():
            if one.home == broker and not one.subscription:
                self.reconnected_count += one.stays > 0
                self._connect(name, one)

    def _connect(self, name: str, one: _Subscriber) -> None:
        one.subscription = f"{name}{STAY_MARK}{one.stays}" if one.stays else name
        one.stays += 1
        self._owners[one.subscription] = name
        self._place(one.subscription, one.home, 0)
        self._on_change(name, one.home, one.filter_)
        self._ask(one.home, SubscribeRequest(one.subscription, one.subscription, one.filter_))

    def _end(self, one: _Subscriber) -> None:
        if one.subscription:
            subscription, one.subscription = one.subscription, ""
            del self._owners[subscription]
            self._ledger.cancel(subscription, self._env.now)
            self._turns.end(subscription)
            self._ask(one.home, CancelRequest(subscription))
            if one.goes_to:
                self._ask(one.goes_to, CancelRequest(subscription))


class HomesInTurn:
    """The homes of each subscription that has moved: once one has handed over anything, the earlier ones may not.

    A next home hands over nothing before the earlier one has handed over everything, unless it no longer waits for that
    one, which then counts as dead. It may live nevertheless and come later with something older: the client ignores it,
    so that it counts as lost with that broker instead of being out of order.
    """

    def __init__(self, ended_kept_max: int = ENDED_KEPT_MAX) -> None:
        self.ignored_count = 0
        self._ended_kept_max = ended_kept_max
        self._homes: dict[str, tuple[str, ...]] = {}  # Those that may hand over something, oldest first.
        self._ended: deque[str] = deque()

    def move(self, subscription: str, home: str, home_to: str) -> None:
        """Note that a subscription is about to move; if that is aborted, the next home hands over nothing."""
        homes = self._homes.get(subscription, (home,))
        self._homes[subscription] = (*(one for one in homes if one != home_to), home_to)

    def end(self, subscription: str) -> None:
        """Note that a subscription has ended: only the last ones are remembered."""
        if subscription not in self._homes:
            return
        self._ended.append(subscription)
        while len(self._ended) > self._ended_kept_max:
            del self._homes[self._ended.popleft()]

    def takes(self, subscription: str, broker: str) -> bool:
        """Return True if the client takes what a broker hands over; then it takes nothing from earlier homes."""
        homes = self._homes.get(subscription)
        if homes is None:
            return True
        if broker not in homes:
            self.ignored_count += 1
            return False
        self._homes[subscription] = homes[homes.index(broker) :]
        return True
