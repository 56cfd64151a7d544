"""The publishers that are connected: where each is, what it may do, and how it changes from one home to the next.

In: what a workload wants published, what brokers send publishers. Out: requests and notifications for the homes. A
publisher between two homes keeps what it would publish until the next one has taken it: such a notification is
published, and owed, from when it is handed over. So does one whose home has died or has ended its stay, until it may
publish in a new one. Much that has waited it hands over at little more than its usual pace: no queue holds all of it.
Subscribers and queues do not belong here.
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
WAITING_MAX = 100_000  # Notifications that one publisher keeps between two homes.
HANDED_OVER_AT_ONCE_MAX = 20  # Of what one publisher keeps; 500 publishers together fill a queue of 10,000.
# A publisher that catches up publishes this many times as fast as usual: a broker that every notification crosses is
# busy for up to 0.6 of the time, so that it copes with all publishers of an overlay coming home together.
CATCH_UP_FACTOR = 1.5
STAYS_KEPT_MAX = 100_000  # Publishers that have left and whose numbers continue when they return.
WHOEVER_TAKES_IT = ""  # Where a publisher goes whose home has died; no broker has an empty name.


class ClientError(ValueError):
    """A client asks for something that it may not, such as publishing before all brokers know it."""


def is_always_serving(_: str) -> bool:
    """Assume that every broker accepts clients: for overlays where none dies."""
    return True


@dataclass(slots=True)
class MoveCounts:
    """Publishers that changed their home: how many, how long they could not publish, and what had to wait."""

    moved: int = 0
    wait_ms_sum: float = 0.0
    wait_ms_max: float = 0.0
    notifications_waited: int = 0


@dataclass(slots=True)
class _Numbers:
    """What carries over from one stay of a publisher to the next: stays and notifications never repeat a number."""

    connection_next: int = 0
    sequence_next: int = 0


@dataclass(slots=True)
class _Publisher:
    """A connected publisher. Between two homes ``goes_to`` names the next one; ``taken_by`` may have taken it before.

    ``has_published``: it might publish before, in this stay or an earlier one. ``waiting``: what it keeps, with when it
    came; ``is_catching_up``: the next of it is handed over in time.
    """

    home: str
    filter_: Filter
    connection: int
    may_publish: bool = False
    goes_to: str | None = None
    left_ms: float = 0.0
    taken_by: str | None = None
    waiting: deque[tuple[float, Content, int]] = field(default_factory=deque)
    is_catching_up: bool = False
    is_ending: bool = False
    has_published: bool = False

    @property
    def is_homeless(self) -> bool:
        """Return True if its home has died, so that it waits for that one or another."""
        return self.goes_to == WHOEVER_TAKES_IT

    @property
    def may_hand_over(self) -> bool:
        """Return True if it is at a home where it may publish."""
        return self.goes_to is None and self.may_publish


class PublisherClients:
    """All publishers of one overlay.

    ``ask`` puts a request or notification into the queue of a home; ``on_change`` is called with the stay's number when
    a publisher has come to a broker, with its filter, or has left, with None; ``on_move`` that it has come from one
    home to the next. What brokers say of a stay that is over changes nothing. ``is_serving`` returns True if a broker
    accepts clients; a client that comes to another waits. ``may_take`` returns True if one lives and is in a live
    overlay, such as a joining one: a publisher asked to leave for any other waits as if that had died now.
    """

    def __init__(
        self,
        env: simpy.Environment,
        ledger: Ledger,
        ask: Callable[[str, ClientRequest | Notification], None],
        on_change: Callable[[str, int, str, Filter | None], None],
        on_move: Callable[[str, str, Filter], None],
        is_serving: Callable[[str], bool] = is_always_serving,
        may_take: Callable[[str], bool] = is_always_serving,
    ) -> None:
        self.moves = MoveCounts()
        self.reconnected_count = 0
        self._env = env
        self._ledger = ledger
        self._ask = ask
        self._on_change = on_change
        self._on_move = on_move
        self._is_serving = is_serving
        self._may_take = may_take
        self._publishers: dict[str, _Publisher] = {}
        self._numbers: dict[str, _Numbers] = {}  # Also of those that have left, in the order of their last coming.
        self._is_stopped = False

    @property
    def is_any_moving(self) -> bool:
        """Return True if a publisher is on its way to a home that is known."""
        return any(client.goes_to for client in self._publishers.values())

    @property
    def waiting_count(self) -> int:
        """How many wait for a home."""
        return sum(client.is_homeless for client in self._publishers.values())

    @property
    def kept_count(self) -> int:
        """How many notifications publishers keep until they can hand them over."""
        return sum(len(client.waiting) for client in self._publishers.values())

    def stop(self) -> None:
        """Let those who catch up hand over no more: what they keep is not published any more."""
        self._is_stopped = True

    def home_of(self, publisher: str) -> str | None:
        """Return the home that a publisher has or had last; None when it is not connected."""
        client = self._publishers.get(publisher)
        return None if client is None else client.home

    def connect(self, publisher: str, home: str, filter_: Filter) -> None:
        """Connect a publisher to its home; raise ClientError when it is already connected."""
        if publisher in self._publishers:
            raise ClientError(f"publisher {publisher} is already connected, to {self._publishers[publisher].home}")
        numbers = self._numbers[publisher] = self._numbers.pop(publisher, _Numbers())
        connection, numbers.connection_next = numbers.connection_next, numbers.connection_next + 1
        self._forget_oldest()
        client = self._publishers[publisher] = _Publisher(home, filter_, connection)
        if not self._is_serving(home):
            client.goes_to = WHOEVER_TAKES_IT
            return
        self._on_change(publisher, connection, home, filter_)
        self._ask(home, AdvertiseRequest(publisher, filter_, connection))

    def disconnect(self, publisher: str) -> None:
        """Disconnect a publisher; one between two homes, or with more to hand over, as soon as all is handed over."""
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
        """Let a publisher publish from now on; return True if it is still connected and never might before."""
        client = self._stay(publisher, connection)
        if client is None:
            return False
        is_first, client.may_publish, client.has_published = not client.has_published, True, True
        if client.goes_to is None:
            self._hand_over_waiting(publisher, client, HANDED_OVER_AT_ONCE_MAX)  # What has waited for this stay.
        return is_first and publisher in self._publishers

    def publish(self, publisher: str, content: Content, size_bytes: int) -> None:
        """Hand a notification to its publisher's home, or keep it while it has none or others wait before it.

        Raises ClientError before all brokers know the publisher.
        """
        client = self._publishers.get(publisher)
        if client is None or not client.has_published:
            raise ClientError(f"publisher {publisher} may not publish: its advertisement is not confirmed")
        if client.may_hand_over and not client.waiting:
            self._ask(client.home, self._made(publisher, client, content, size_bytes))
        elif len(client.waiting) < WAITING_MAX:
            client.waiting.append((self._env.now, content, size_bytes))
            self.moves.notifications_waited += not client.may_hand_over
        else:
            self._ledger.drop(self._made(publisher, client, content, size_bytes), WAIT_OVERFLOW)

    def leave(self, publisher: str, connection: int, home_to: str) -> None:
        """Let a publisher leave its home for the next one, and notify the old one that nothing follows."""
        client = self._stay(publisher, connection)
        if client is not None:
            self._ask(client.home, LeaveRequest(publisher, connection))
            self._go(publisher, client, home_to)
            if client.goes_to == home_to and not self._may_take(home_to):
                client.home, client.goes_to = home_to, WHOEVER_TAKES_IT

    def lose_home(self, broker: str) -> None:
        """Let the publishers of a broker that died go to whichever broker takes them, or wait for a home."""
        for publisher, client in list(self._publishers.items()):
            if client.taken_by == broker:
                client.taken_by = None
            if client.home == broker and client.goes_to is None:
                self._go(publisher, client, client.taken_by or WHOEVER_TAKES_IT)
            elif client.goes_to == broker:
                client.home, client.goes_to = broker, WHOEVER_TAKES_IT  # It has left the old one.

    def come_home(self, broker: str) -> None:
        """Let the publishers that wait for a broker reconnect to it."""
        for publisher, client in list(self._publishers.items()):
            if client.is_homeless and client.home == broker:
                self.reconnect(publisher, broker)

    def reconnect(self, publisher: str, home: str) -> None:
        """Let a publisher that has lost its home begin a new stay at this one; others stay where they are."""
        client = self._publishers.get(publisher)
        if client is None or not client.is_homeless:
            return
        numbers = self._numbers[publisher]
        client.connection, numbers.connection_next = numbers.connection_next, numbers.connection_next + 1
        client.home, client.goes_to, client.taken_by, client.may_publish = home, None, None, False
        self.reconnected_count += client.has_published
        self._on_change(publisher, client.connection, home, client.filter_)
        self._ask(home, AdvertiseRequest(publisher, client.filter_, client.connection))

    def drop(self, publisher: str, connection: int, *, may_return: bool) -> bool:
        """Note that its home has ended a publisher's stay; return False if it is not a current stay.

        It begins a new one there as soon as it may return; a stay that was about to end has ended.
        """
        client = self._stay(publisher, connection)
        if client is None or client.is_homeless:
            return False
        self._end_at_next_home(publisher, client)
        if client.is_ending:
            del self._publishers[publisher]
            self._on_change(publisher, connection, client.home, None)
            return True
        client.goes_to, client.taken_by, client.left_ms = WHOEVER_TAKES_IT, None, self._env.now
        if may_return:
            self.reconnect(publisher, client.home)
        return True

    def take(self, publisher: str, connection: int, home: str) -> None:
        """Let a broker take a publisher, which comes as soon as it has left its old home."""
        client = self._stay(publisher, connection)
        if client is None:
            self._ask(home, UnadvertiseRequest(publisher, connection))  # It has begun another stay, or is gone.
            return
        client.taken_by = home
        if client.goes_to in (home, WHOEVER_TAKES_IT):
            self._arrive(publisher, client, home)

    def _stay(self, publisher: str, connection: int) -> _Publisher | None:
        """Return a publisher that is connected in this stay of its, else None."""
        client = self._publishers.get(publisher)
        return client if client is not None and client.connection == connection else None

    def _end_at_next_home(self, publisher: str, client: _Publisher) -> None:
        """End a stay also at a home that has taken the publisher before the old one asked it to leave.

        The old home lets that know, too, but a broker that dies between the two takes its word along.
        """
        if client.taken_by is not None and client.taken_by != client.home:
            self._ask(client.taken_by, UnadvertiseRequest(publisher, client.connection))

    def _forget_oldest(self) -> None:
        if len(self._numbers) > len(self._publishers) + STAYS_KEPT_MAX:
            del self._numbers[next(name for name in self._numbers if name not in self._publishers)]

    def _go(self, publisher: str, client: _Publisher, home_to: str) -> None:
        client.goes_to, client.left_ms = home_to, self._env.now
        if client.taken_by == home_to:
            self._arrive(publisher, client, home_to)

    def _arrive(self, publisher: str, client: _Publisher, home: str) -> None:
        client.home, client.goes_to, client.taken_by = home, None, None
        wait_ms = self._env.now - client.left_ms
        self.moves.moved += 1
        self.moves.wait_ms_sum += wait_ms
        self.moves.wait_ms_max = max(self.moves.wait_ms_max, wait_ms)
        self._on_move(publisher, home, client.filter_)
        self._hand_over_waiting(publisher, client, HANDED_OVER_AT_ONCE_MAX)

    def _hand_over_waiting(self, publisher: str, client: _Publisher, count_max: int) -> None:
        """Hand over this many now and the others in time; then end a stay that has waited for that."""
        if client.may_hand_over and client.waiting:
            for _ in range(min(count_max, len(client.waiting))):
                kept_ms, content, size_bytes = client.waiting.popleft()
                self._ask(client.home, self._made(publisher, client, content, size_bytes))
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

    def _made(self, publisher: str, client: _Publisher, content: Content, size_bytes: int) -> Notification:
        """Return the publisher's next notification, entered in the ledger."""
        numbers = self._numbers[publisher]
        notification = Notification(
            publisher, numbers.sequence_next, self._env.now, client.home, UNSTAMPED_EPOCH, content, size_bytes
        )
        numbers.sequence_next += 1
        self._ledger.publish(notification)
        return notification
