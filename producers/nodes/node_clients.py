"""The clients that a node represents: what its real broker's clients want and publish, as subscriptions and publishers.

In: interest and messages of a connector, and the core's effects on clients. Out: requests for the core, and
notifications with a publisher and a sequence number. A real broker passes on no client's identity: the header
``Regraft-Publisher`` names the publisher, else it is the broker. The node's incarnation is part of each name, so that
the sequence numbers of two incarnations never mix; publishers and subscriptions have separate prefixes, so that no
client takes the name of another.

What clients choose is bounded in number and bytes. Interest that found no room waits for some; publishers that are idle
make room for others.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from zlib import crc32

import structlog

from regraft.infra.process.handle_each import count_logged
from regraft.producers.brokers.broker_messages import (
    UNSTAMPED_EPOCH,
    AdvertiseRequest,
    ArriveRequest,
    CancelRequest,
    ClientRequest,
    SubscribeRequest,
    UnadvertiseRequest,
)
from regraft.producers.brokers.match_content import Content, Filter
from regraft.producers.nodes.agent_clients import AgentClients
from regraft.producers.nodes.connectors.connector import LocalMessage
from regraft.producers.nodes.connectors.groups_once import Handlers, group_suffix, parts_of
from regraft.producers.nodes.connectors.subject_filters import SubjectError, content_of, filter_of
from regraft.producers.nodes.links.carried_messages import CarriedNotification
from regraft.schemas.agent_names import (
    PUBLISHER_HEADER,
    PUBLISHER_PREFIX,
    AgentSubscription,
    agent_subscription,
    publishing_client,
)
from regraft.schemas.bounds import NAME_LENGTH_MAX
from regraft.schemas.client import Role
from regraft.schemas.telemetry import BLOCK_SIZE
from regraft.schemas.wire_grammar import is_clean

log = structlog.get_logger(__name__)

PUBLISHERS_MAX = 10_000  # Named by the header; messages of further ones count as the broker's.
INTERESTS_MAX, INTEREST_BYTES_MAX = 100_000, 16 << 20  # Subjects that local clients want; further ones wait for room.
WAITING_BYTES_MAX = 64 << 20  # Of messages whose publishers the overlay does not know yet, for all publishers.
WAITING_OF_ONE_MAX = 8 << 20  # And for one: an eighth, so that it leaves room for others.
MESSAGE_BYTES = 100  # What a waiting message takes besides its bytes.
IDLE_MS = 60_000.0  # A publisher that was idle for this long leaves when others need room.
HEADER_LINE = b"\r\n%b:" % PUBLISHER_HEADER.lower()
OUTSIDE, NOT_KNOWN, TOO_MANY, BAD_SUBJECT = "outside", "publisher_not_known", "too_many_interests", "bad_subject"
NO_GROUP = "group_name_too_long"  # The group handles messages at this broker as any other does.
FORGOTTEN = "interests_forgotten"  # Refused, and not even room to wait.


@dataclass(slots=True)
class _Publisher:
    """``stay`` numbers its stays; ``waiting`` is what it published in the current one before it was known."""

    stay: int
    sequence_next: int
    is_asked: bool = False
    is_known: bool = False
    waiting: deque[LocalMessage] = field(default_factory=deque)
    waiting_bytes: int = 0
    used_ms: float = 0.0


class NodeClients:
    """All clients of one node. ``on_change`` is called when a client comes, with its filter, or leaves, with None.

    ``on_confirmed`` is called with True once everything that others publish to a subject from now on is owed, and with
    False when that ends. ``epoch_of`` returns the epoch that the core stamps,
    ``takes_clients`` whether it accepts clients.
    """

    def __init__(
        self,
        broker: str,
        incarnation: str,
        ask: Callable[[ClientRequest | CarriedNotification], None],
        on_change: Callable[[str, Role, Filter | None], None],
        epoch_of: Callable[[], int] = lambda: 0,
        takes_clients: Callable[[], bool] = lambda: True,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._agents_checked_ms = 0.0
        self.agents = AgentClients(broker, ask, lambda name, filter_: on_change(name, Role.SUBSCRIBER, filter_))
        self.on_confirmed: Callable[[str, bool], None] = lambda _subject, _is_confirmed: None
        self.handlers: Callable[[Content, str, int], Handlers] = lambda *_: ()
        self._broker = broker
        self._ask, self._on_change, self._epoch_of, self._takes_clients = ask, on_change, epoch_of, takes_clients
        self._publishers: dict[str, _Publisher] = {}
        self._stay_first, self._sequence_first = 0, 0  # Beyond those of all publishers that made room.
        self._room_made_ms = 0.0
        self._waiting_bytes = self._interest_bytes = self._refused_bytes = 0
        self._refused: dict[str, None] = {}  # Subjects that wait for room, in order of arrival.
        self._publishers_unasked: dict[str, None] = {}
        self._subjects_unasked: dict[str, None] = {}  # In order of arrival, as above.
        self._interests: dict[str, str | None] = {}  # Subject -> subscription, None until the core is asked.
        self._subjects: dict[str, str] = {}  # Subscription -> subject.
        self._subscriptions_made = 0
        self._restarting: set[str] = set()  # Subjects of subscriptions that no plan brings here any more.
        self._own = f"{broker}.{incarnation}"
        self.agents.on_publishes = self._note_publishes
        self._stay_mark = f"{crc32(self._own.encode()):08x}"
        self._publisher(self._own)

    @property
    def interest_count(self) -> int:
        """How many subjects local clients want."""
        return len(self._interests)

    @property
    def publisher_count(self) -> int:
        """How many publishers there have been in this incarnation."""
        return len(self._publishers)

    @property
    def are_publishers_known(self) -> bool:
        """Return True if all brokers know every publisher of this node."""
        return all(publisher.is_known for publisher in self._publishers.values())

    # --- from the connector
    # -----------------------------------------------------------------------------------------------

    def note_interest(self, subject: str, is_wanted: bool) -> None:
        """Note that a local client wants a subject, or that none does any longer."""
        if not is_wanted:
            self._end_interest(subject)
        elif subject not in self._interests and not self._take_interest(subject):
            self._refuse_interest(subject)

    def _take_interest(self, subject: str) -> bool:
        """Note interest in a subject; return False if there is no room."""
        size = len(subject.encode())
        if len(self._interests) >= INTERESTS_MAX or self._interest_bytes + size > INTEREST_BYTES_MAX:
            return False
        self._interests[subject] = self._subjects_unasked[subject] = None
        self._interest_bytes += size
        return True

    def _refuse_interest(self, subject: str) -> None:
        facts = {"broker": self._broker, "subject": subject[:80], "interests_max": INTERESTS_MAX}
        count_logged(self.counts, TOO_MANY, log.warning, "interest_refused", **facts)
        size = len(subject.encode())
        if len(self._refused) < INTERESTS_MAX and self._refused_bytes + size <= INTEREST_BYTES_MAX:
            self._refused_bytes += size if subject not in self._refused else 0
            self._refused[subject] = None
        else:
            self.counts[FORGOTTEN] += 1

    def _end_interest(self, subject: str) -> None:
        if subject in self._refused:
            del self._refused[subject]
            self._refused_bytes -= len(subject.encode())
        if subject not in self._interests:
            return
        self._subjects_unasked.pop(subject, None)
        self._restarting.discard(subject)
        subscription = self._interests.pop(subject)
        self._interest_bytes -= len(subject.encode())
        if subscription is not None:
            del self._subjects[subscription]
            is_ended, is_registered = self._end_beside(subject, subscription)
            if is_registered:
                self._on_change(subscription, Role.SUBSCRIBER, None)
                self.on_confirmed(subject, False)
            if is_ended:
                self._ask(CancelRequest(subscription))
        while self._refused and self._take_interest(following := next(iter(self._refused))):
            del self._refused[following]
            self._refused_bytes -= len(following.encode())

    def _end_beside(self, subject: str, subscription: str) -> tuple[bool, bool]:
        """Return whether the end of an interest is that of a subscription, and whether that is registered here."""
        is_beside = agent_subscription(parts_of(subject)[1]) is not None
        return self.agents.end(subscription) if is_beside else (True, True)

    def note_message(self, message: LocalMessage, takes_clients: bool, now_ms: float, epoch: int) -> None:
        """Give a message its publisher and number, and pass it to the core once all brokers know the publisher."""
        name = self._name_of(message.headers, now_ms)
        publisher = self._publisher(name)
        publisher.used_ms = now_ms
        if not publisher.is_asked:
            self.settle(takes_clients)
        if publisher.is_known and not publisher.waiting:
            self._ask(self._made(name, publisher, message, now_ms, epoch))
        elif message.receipt or (publisher.is_asked and self._has_room(publisher, message)):
            publisher.waiting.append(message)
            self._count_waiting(publisher, _bytes_of(message))
        else:
            self.counts[NOT_KNOWN if publisher.is_asked else OUTSIDE] += 1

    def _has_room(self, publisher: _Publisher, message: LocalMessage) -> bool:
        size = _bytes_of(message)
        is_within = self._waiting_bytes + size <= WAITING_BYTES_MAX
        return is_within and (not publisher.waiting or publisher.waiting_bytes + size <= WAITING_OF_ONE_MAX)

    def _count_waiting(self, publisher: _Publisher, size: int) -> None:
        publisher.waiting_bytes += size
        self._waiting_bytes += size

    def _name_of(self, headers: bytes, now_ms: float) -> str:
        if headers:
            place = headers.lower().find(HEADER_LINE)
            if place >= 0:
                begin = place + len(HEADER_LINE)
                given = headers[begin : headers.find(b"\r\n", begin)].decode(errors="replace").strip()
                name = f"{self._own}{PUBLISHER_PREFIX}{given}"
                is_name = given.isprintable() and is_clean(given) and len(name) <= NAME_LENGTH_MAX
                if is_name and (name in self._publishers or self._has_room_for_one(now_ms)):
                    return name
                self.counts["publisher_refused"] += 1
        return self._own

    def _has_room_for_one(self, now_ms: float) -> bool:
        """Return True if there may be one more publisher; if need be, those that were idle leave, once in a while."""
        if len(self._publishers) >= PUBLISHERS_MAX and now_ms - self._room_made_ms > IDLE_MS / 10:
            self._room_made_ms = now_ms
            for name, each in list(self._publishers.items()):
                if name != self._own and each.is_known and not each.waiting and now_ms - each.used_ms > IDLE_MS:
                    self._end_publisher(name, each)
        return len(self._publishers) < PUBLISHERS_MAX

    def _end_publisher(self, name: str, publisher: _Publisher) -> None:
        """Let a publisher leave; if it comes again, neither its stay nor its numbers repeat."""
        del self._publishers[name]
        self._stay_first = max(self._stay_first, publisher.stay + 1)
        self._sequence_first = max(self._sequence_first, -(-publisher.sequence_next // BLOCK_SIZE) * BLOCK_SIZE)
        self._on_change(name, Role.PUBLISHER, None)
        self._ask(UnadvertiseRequest(name, publisher.stay))

    def _made(
        self, name: str, publisher: _Publisher, message: LocalMessage, now_ms: float, epoch: int = UNSTAMPED_EPOCH
    ) -> CarriedNotification:
        sequence, publisher.sequence_next = publisher.sequence_next, publisher.sequence_next + 1
        content = content_of(message.subject)
        return CarriedNotification(
            name, sequence, now_ms, self._broker, epoch, content, len(message.payload),
            subject=message.subject, reply=message.reply, headers=message.headers, payload=message.payload,
            receipt=message.receipt, handlers=self.handlers(content, name, sequence),
        )  # fmt: skip

    def _note_publishes(self, client: str) -> None:
        """Make a client beside an agent known as a publisher; its agent learns when it is."""
        name = f"{self._own}{PUBLISHER_PREFIX}{client}"
        publisher = self._publishers.get(name)
        if publisher is not None and publisher.is_known:
            self.agents.note_named(client)
        elif publishing_client(name) == client and len(self._publishers) < PUBLISHERS_MAX:
            self._publisher(name)
            self.settle(self._takes_clients())

    def _end_departed(self, now_ms: float) -> None:
        """End what clients beside agents have published that are no longer here."""
        if now_ms - self._agents_checked_ms < IDLE_MS:
            return
        self._agents_checked_ms = now_ms
        for name, each in list(self._publishers.items()):
            client, is_idle = publishing_client(name), now_ms - each.used_ms > IDLE_MS
            if client and is_idle and each.is_known and not each.waiting and not self.agents.is_here(client):
                self._end_publisher(name, each)

    def _publisher(self, name: str) -> _Publisher:
        if name not in self._publishers:
            self._publishers[name] = _Publisher(self._stay_first - 1, self._sequence_first)
            self._publishers_unasked[name] = None
        return self._publishers[name]

    # --- from the core -----------------------------------------------------------------------------------------------

    def settle(self, takes_clients: bool) -> None:
        """Send the core all pending requests, if it accepts clients."""
        if not takes_clients:
            return
        names, self._publishers_unasked = self._publishers_unasked, {}
        for name in names:
            publisher = self._publishers[name]
            publisher.is_asked = True
            publisher.stay += 1
            self._on_change(name, Role.PUBLISHER, ())
            self._ask(AdvertiseRequest(name, (), publisher.stay))
        subjects, self._subjects_unasked = self._subjects_unasked, {}
        for subject in subjects:
            if self._interests.get(subject, "") is None:
                self._subscribe(subject)

    def _subscribe(self, subject: str) -> None:
        wanted, group = parts_of(subject)
        try:
            filter_ = filter_of(wanted)
        except SubjectError as error:
            del self._interests[subject]
            self._interest_bytes -= len(subject.encode(errors="replace"))
            self.counts[BAD_SUBJECT] += 1
            log.warning("interest_refused", broker=self._broker, reason=str(error))
            return
        beside = agent_subscription(group)
        if beside is not None:
            self._subscribe_beside(subject, beside, filter_)
            return
        subscription = f"{self._own}.s.{self._subscriptions_made}{group_suffix(group)}"
        if group and len(subscription) > NAME_LENGTH_MAX:  # Of a broker with a very long name.
            self.counts[NO_GROUP] += 1
            subscription = subscription.removesuffix(group_suffix(group))
        self._subscriptions_made += 1
        self._interests[subject], self._subjects[subscription] = subscription, subject
        self._on_change(subscription, Role.SUBSCRIBER, filter_)
        self._ask(SubscribeRequest(subscription, subscription, filter_))

    def _subscribe_beside(self, subject: str, beside: AgentSubscription, filter_: Filter) -> None:
        """Ask for a subscription of a client beside an agent; one that a plan brings keeps its name."""
        epoch, name, group = beside.epoch, beside.name, parts_of(subject)[1]
        is_brought = epoch > self._epoch_of() and subject not in self._restarting
        self._restarting.discard(subject)
        if not is_brought or not beside.stay or name in self._subjects:
            self._subscriptions_made += 1
            epoch, name = -1, f"{beside.client}.{beside.number}~{self._stay_mark}-{self._subscriptions_made}"
        self._interests[subject], self._subjects[name] = name, subject
        self.agents.begin(name, group, filter_, epoch)
        if epoch >= 0:
            self._ask(ArriveRequest(epoch, name, name, filter_))
        else:
            self._on_change(name, Role.SUBSCRIBER, filter_)
            self._ask(SubscribeRequest(name, name, filter_))

    def follow_agents(self, takes_clients: bool, now_ms: float) -> None:
        """Let subscriptions beside agents that no plan brings here begin as others, and publishers begin and end."""
        for name in self.agents.forgotten():
            subject = self._subjects.pop(name)
            self.agents.end(name)
            self._ask(CancelRequest(name))
            self._interests[subject] = self._subjects_unasked[subject] = None
            self._restarting.add(subject)
        self.settle(takes_clients)
        self._end_departed(now_ms)

    def confirm(self, subscription: str) -> str:
        """Note that a subscription has reached every publisher that it concerns; return its subject, if it has one."""
        subject = self._subjects.get(subscription, "")
        if subject:
            self.on_confirmed(subject, True)
        return subject

    def allow(self, name: str, stay: int, now_ms: float) -> None:
        """Note that all brokers know a publisher, and send its waiting messages."""
        publisher = self._publishers.get(name)
        if publisher is None or publisher.stay != stay:
            return
        publisher.is_known = True
        while publisher.waiting:
            message = publisher.waiting.popleft()
            self._count_waiting(publisher, -_bytes_of(message))
            self._ask(self._made(name, publisher, message, now_ms))
        if client := publishing_client(name):
            self.agents.note_named(client)

    def drop(self, client: str, stay: int) -> None:
        """Note that the core has ended a client's stay; request it again when the core accepts clients.

        Do nothing if the client is in a later stay, or already waits.
        """
        publisher = self._publishers.get(client)
        if publisher is not None:
            if not publisher.is_asked or publisher.stay != stay:
                return
            publisher.is_asked = publisher.is_known = False
            self._publishers_unasked[client] = None
            kept = [
                message for message in publisher.waiting if message.receipt
            ]  # No more than a connector has under way.
            self.counts[OUTSIDE] += len(publisher.waiting) - len(kept)
            publisher.waiting = deque(kept)
            self._count_waiting(publisher, sum(map(_bytes_of, kept)) - publisher.waiting_bytes)
            self._on_change(client, Role.PUBLISHER, None)
        elif client in self._subjects:
            subject = self._subjects.pop(client)
            self._end_beside(subject, client)
            self._interests[subject] = self._subjects_unasked[subject] = None
            self.on_confirmed(subject, False)
            self._on_change(client, Role.SUBSCRIBER, None)


def _bytes_of(message: LocalMessage) -> int:
    return MESSAGE_BYTES + len(message.subject) + len(message.reply) + len(message.headers) + len(message.payload)
