"""The connected publishers: where each is, what it may do, and how it changes from one home to the next.

In: what a workload wants published, what brokers report to publishers. Out: requests and notifications for the homes. A
publisher between two homes buffers its notifications until the next home has accepted it: a notification counts as
published, and is owed, from when it is handed over. The same holds if its home has died or has ended its stay, until it
may publish in a new one. A long backlog is handed over at little more than the usual pace, because no queue could hold
all of it. Subscribers and queues do not belong here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import simpy

from regraft.producers.brokers.broker_messages import (
    UNSTAMPED_EPOCH,
    AdvertiseRequest,
    ClientRequest,
    LeaveRequest,
    Notification,
    UnadvertiseRequest,
)
from regraft.producers.brokers.match_content import Content, Filter
from regraft.producers.emulator.ledger import Ledger

WAIT_OVERFLOW = "publisher_wait_overflow"
WAITING_MAX = 100_000  # Notifications that one publisher buffers.
HANDED_OVER_AT_ONCE_MAX = 20  # From one publisher's buffer; 500 publishers together fill a queue of 10,000.
# A publisher that catches up is this many times as fast as usual: a broker that every notification crosses is busy for
# up to 0.6 of the time, so it copes with all publishers of an overlay coming home at once.
CATCH_UP_FACTOR = 1.5
STAYS_KEPT_MAX = 100_000  # Departed publishers whose numbering continues if they return.
ANY_HOME = ""  # Next home of a publisher whose home has died; no broker has an empty name.


class ClientError(ValueError):
    """A client does something that is not allowed, such as publishing before all brokers know it."""


def is_always_serving(_: str) -> bool:
    """Return True, for overlays in which no broker dies: every broker accepts clients."""
    return True


@dataclass(slots=True)
class MoveCounts:
    """Publishers that changed their home: how many, how long they could not publish, what they buffered."""

    moved: int = 0
    wait_ms_sum: float = 0.0
    wait_ms_max: float = 0.0
    notifications_waited: int = 0


@dataclass(slots=True)
class _Numbers:
    """What carries over between stays of a publisher: numbers of stays and notifications never repeat."""

    connection_next: int = 0
    sequence_next: int = 0


@dataclass(slots=True)
class _Publisher:
    """A connected publisher.

    Between two homes ``goes_to`` is the next one; ``accepted_by`` is a home that has accepted it, perhaps before it
    left; ``came_from`` is its previous home in this stay. ``has_published``: it was once allowed to publish, in this
    stay or an earlier one. ``waiting``: its buffer, with arrival times; ``is_catching_up``: the next buffered
    notification is scheduled.
    """

    home: str
    filter_: Filter
    connection: int
    may_publish: bool = False
    goes_to: str | None = None
    left_ms: float = 0.0
    accepted_by: str | None = None
    waiting: deque[tuple[float, Content, int]] = field(default_factory=deque)
    came_from: str = ANY_HOME
    is_catching_up: bool = False
    is_ending: bool = False
    has_published: bool = False

    @property
    def is_homeless(self) -> bool:
        """Whether its home has died or ended its stay, so that it waits for that one or another."""
        return self.goes_to == ANY_HOME

    @property
    def may_hand_over(self) -> bool:
        """Whether it is at a home where it may publish."""
        return self.goes_to is None and self.may_publish


class PublisherClients:
    """All publishers of one overlay.

    ``ask`` puts a request or notification into the queue of a home. ``on_change`` is called with the stay's number when
    a publisher has connected to a broker, with its filter, or has left, with None; ``on_move`` when it has moved from
    one home to the next. Effects about finished stays are ignored. ``is_serving`` returns True if a broker accepts
    clients; a client of any other waits. ``may_accept`` returns True if a broker is alive, also to the others, and in a
    live overlay, such as a joining one: a publisher asked to leave for any other waits as if that one had just died.
    """

    def __init__(
        self,
        env: simpy.Environment,
        ledger: Ledger,
        ask: Callable[[str, ClientRequest | Notification], None],
        on_change: Callable[[str, int, str, Filter | None], None],
        on_move: Callable[[str, str, Filter], None],
        is_serving: Callable[[str], bool] = is_always_serving,
        may_accept: Callable[[str], bool] = is_always_serving,
    ) -> None:
        self.moves = MoveCounts()
        self.reconnected_count = 0
        self._env = env
        self._ledger = ledger
        self._ask = ask
        self._on_change = on_change
        self._on_move = on_move
        self._is_serving = is_serving
        self._may_accept = may_accept
        self._publishers: dict[str, _Publisher] = {}
        self._numbers: dict[str, _Numbers] = {}  # Also of departed ones, ordered by their last connect.
        self._is_stopped = False

    @property
    def is_any_moving(self) -> bool:
        """Whether a publisher is on its way to a known home."""
        return any(client.goes_to for client in self._publishers.values())

    @property
    def waiting_count(self) -> int:
        """Number of publishers that wait for a home."""
        return sum(client.is_homeless for client in self._publishers.values())

    @property
    def kept_count(self) -> int:
        """Number of notifications in the publishers' buffers."""
        return sum(len(client.waiting) for client in self._publishers.values())

    def stop(self) -> None:
        """Stop catching up: what publishers still buffer is not published any more."""
        self._is_stopped = True

    def home_of(self, publisher: str) -> str | None:
        """Return the home that a publisher has or had last, or None if it is not connected."""
        client = self._publishers.get(publisher)
        return None if client is None else client.home

    def connect(self, publisher: str, home: str, filter_: Filter) -> None:
        """Connect a publisher to its home; raise ClientError if it is already connected."""
        if publisher in self._publishers:
            raise ClientError(f"publisher {publisher} is already connected, to {self._publishers[publisher].home}")
        numbers = self._numbers[publisher] = self._numbers.pop(publisher, _Numbers())
        connection, numbers.connection_next = numbers.connection_next, numbers.connection_next + 1
        self._forget_oldest()
        client = self._publishers[publisher] = _Publisher(home, filter_, connection)
        if not self._is_serving(home):
            client.goes_to = ANY_HOME
            return
        self._on_change(publisher, connection, home, filter_)
        self._ask(home, AdvertiseRequest(publisher, filter_, connection))

    def disconnect(self, publisher: str) -> None:
        """Disconnect a publisher; one between two homes, or with a backlog, only once everything is handed over."""
        client = self._publishers[publisher]
        if client.goes_to or (client.waiting and client.may_hand_over):
            client.is_ending = True
            return
        gone = self._publishers.pop(publisher)
        self._on_change(publisher, gone.connection, gone.home, None)
        if not gone.is_homeless:
            self._ask(gone.home, UnadvertiseRequest(publisher, gone.connection))
        self._end_at_next_home(publisher, gone)

    def allow(self, publisher: str, connection: int) -> bool:
        """Let a publisher publish from now on; return True if it is still connected and never could before."""
        client = self._stay(publisher, connection)
        if client is None:
            return False
        is_first, client.may_publish, client.has_published = not client.has_published, True, True
        if client.goes_to is None:
            self._hand_over_waiting(publisher, client, HANDED_OVER_AT_ONCE_MAX)  # The backlog of this stay.
        return is_first and publisher in self._publishers

    def publish(self, publisher: str, content: Content, size_bytes: int) -> None:
        """Hand a notification to its publisher's home, or buffer it behind others or until there is a home.

        Raises ClientError before all brokers know the publisher.
        """
        client = self._publishers.get(publisher)
        if client is None or not client.has_published:
            raise ClientError(f"publisher {publisher} may not publish: its advertisement is not confirmed")
        if client.may_hand_over and not client.waiting:
            self._ask(client.home, self._new_notification(publisher, client, content, size_bytes))
        elif len(client.waiting) < WAITING_MAX:
            client.waiting.append((self._env.now, content, size_bytes))
            self.moves.notifications_waited += not client.may_hand_over
        else:
            self._ledger.drop(self._new_notification(publisher, client, content, size_bytes), WAIT_OVERFLOW)

    def leave(self, publisher: str, connection: int, home_to: str, by: str = ANY_HOME) -> None:
        """Let a publisher leave its home for the next one, and notify the old one that nothing follows.

        ``by``: the broker that asks, by default its home; a publisher follows no other one.
        """
        client = self._stay(publisher, connection)
        if client is not None and by in (ANY_HOME, client.home):
            self._ask(client.home, LeaveRequest(publisher, connection))
            self._go_to(publisher, client, home_to)
            if client.goes_to == home_to and not self._may_accept(home_to):
                client.home, client.goes_to = home_to, ANY_HOME

    def lose_home(self, broker: str) -> None:
        """Let the publishers of a dead broker go to the home that has accepted them, or wait for one."""
        for publisher, client in list(self._publishers.items()):
            if client.accepted_by == broker:
                client.accepted_by = None
            if client.home == broker and client.goes_to is None:
                self._go_to(publisher, client, client.accepted_by or ANY_HOME)
            elif client.goes_to == broker:
                client.home, client.goes_to = broker, ANY_HOME  # It has left the old home.

    def reconnect_waiting(self, broker: str) -> None:
        """Let the publishers that wait for a broker reconnect to it."""
        for publisher, client in list(self._publishers.items()):
            if client.is_homeless and client.home == broker:
                self.reconnect(publisher, broker)

    def reconnect(self, publisher: str, home: str) -> None:
        """Begin a new stay at this home for a publisher that has lost its own; others stay where they are."""
        client = self._publishers.get(publisher)
        if client is None or not client.is_homeless:
            return
        numbers = self._numbers[publisher]
        client.connection, numbers.connection_next = numbers.connection_next, numbers.connection_next + 1
        client.home, client.goes_to, client.accepted_by, client.may_publish = home, None, None, False
        client.came_from = ANY_HOME
        self.reconnected_count += client.has_published
        self._on_change(publisher, client.connection, home, client.filter_)
        self._ask(home, AdvertiseRequest(publisher, client.filter_, client.connection))

    def drop(
        self, publisher: str, connection: int, *, may_return: bool, by: str = ANY_HOME, is_over: bool = False
    ) -> bool:
        """Note that a broker has ended a publisher's stay; return False if that is not the current stay there.

        ``by``: the broker, by default its home. The publisher believes its home and the one that it is on its way to,
        the one that it came from only if the stay ``is_over`` everywhere. It begins a new stay at that broker if it may
        return at once, and otherwise waits for its next home; one that was about to disconnect is gone.
        """
        client = self._stay(publisher, connection)
        if client is None or client.is_homeless:
            return False
        if by not in (ANY_HOME, client.home, client.goes_to):
            if not is_over or by != client.came_from:
                return False
            self._ask(client.home, UnadvertiseRequest(publisher, connection))
        self._end_at_next_home(publisher, client)
        if client.is_ending:
            del self._publishers[publisher]
            self._on_change(publisher, connection, client.home, None)
            return True
        waits_for = client.goes_to or client.home
        client.goes_to, client.accepted_by, client.left_ms = ANY_HOME, None, self._env.now
        if may_return:
            self.reconnect(publisher, by or client.home)
        else:
            client.home = waits_for
        return True

    def take(self, publisher: str, connection: int, home: str) -> None:
        """Note that a broker has accepted a publisher, which arrives there as soon as it has left its old home."""
        client = self._stay(publisher, connection)
        if client is None:
            self._ask(home, UnadvertiseRequest(publisher, connection))  # It is in another stay, or gone.
            return
        client.accepted_by = home
        if client.goes_to in (home, ANY_HOME):
            self._arrive(publisher, client, home)

    def _stay(self, publisher: str, connection: int) -> _Publisher | None:
        """Return a publisher that is connected in this stay, or None."""
        client = self._publishers.get(publisher)
        return client if client is not None and client.connection == connection else None

    def _end_at_next_home(self, publisher: str, client: _Publisher) -> None:
        """Also end a stay at a home that has accepted the publisher before the old one asked it to leave.

        The old home reports the end, too, but that report is lost if a broker between the two dies.
        """
        if client.accepted_by is not None and client.accepted_by != client.home:
            self._ask(client.accepted_by, UnadvertiseRequest(publisher, client.connection))

    def _forget_oldest(self) -> None:
        if len(self._numbers) > len(self._publishers) + STAYS_KEPT_MAX:
            del self._numbers[next(name for name in self._numbers if name not in self._publishers)]

    def _go_to(self, publisher: str, client: _Publisher, home_to: str) -> None:
        client.goes_to, client.left_ms = home_to, self._env.now
        if client.accepted_by == home_to:
            self._arrive(publisher, client, home_to)

    def _arrive(self, publisher: str, client: _Publisher, home: str) -> None:
        client.came_from, client.home, client.goes_to, client.accepted_by = client.home, home, None, None
        wait_ms = self._env.now - client.left_ms
        self.moves.moved += 1
        self.moves.wait_ms_sum += wait_ms
        self.moves.wait_ms_max = max(self.moves.wait_ms_max, wait_ms)
        self._on_move(publisher, home, client.filter_)
        self._hand_over_waiting(publisher, client, HANDED_OVER_AT_ONCE_MAX)

    def _hand_over_waiting(self, publisher: str, client: _Publisher, count_max: int) -> None:
        """Hand over this many buffered notifications now and the rest in time; then end a stay that is ending."""
        if client.may_hand_over and client.waiting:
            for _ in range(min(count_max, len(client.waiting))):
                kept_ms, content, size_bytes = client.waiting.popleft()
                self._ask(client.home, self._new_notification(publisher, client, content, size_bytes))
            if client.waiting and not client.is_catching_up:
                client.is_catching_up = True
                pause_ms = (client.waiting[0][0] - kept_ms) / CATCH_UP_FACTOR
                self._env.timeout(pause_ms, (publisher, client)).callbacks.append(self._catch_up)
        if client.is_ending:
            self.disconnect(publisher)

    def _catch_up(self, event: simpy.Event) -> None:
        publisher, client = cast("tuple[str, _Publisher]", event.value)
        client.is_catching_up = False
        if client.may_hand_over and self._publishers.get(publisher) is client and not self._is_stopped:
            self._hand_over_waiting(publisher, client, 1)

    def _new_notification(self, publisher: str, client: _Publisher, content: Content, size_bytes: int) -> Notification:
        """Return the publisher's next notification, entered in the ledger."""
        numbers = self._numbers[publisher]
        notification = Notification(
            publisher, numbers.sequence_next, self._env.now, client.home, UNSTAMPED_EPOCH, content, size_bytes
        )
        numbers.sequence_next += 1
        self._ledger.publish(notification)
        return notification
