"""The ports of the control loop in memory: for tests, and for runs on the virtual clock without Kafka."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from regraft.controller.control_ports import ControlPorts
from regraft.overlay.registered_clients import RegisteredClients
from regraft.overlay.ring.user_interests import UserInterests
from regraft.schemas.agent_names import client_of
from regraft.schemas.announcement import Announcement
from regraft.schemas.audit import AuditEntry, GivenOrder
from regraft.schemas.client import Client, Role
from regraft.schemas.command import Command, CommandResult
from regraft.schemas.event import AdaptationEvent
from regraft.schemas.live_view import LiveView, decode_view, encode_view
from regraft.schemas.member import Member
from regraft.schemas.order import Order
from regraft.schemas.part_blocks import number_of_subscriber
from regraft.schemas.plan import Plan
from regraft.schemas.sample_request import SampleRequest
from regraft.schemas.state import StateRow, WindowClosed

RECORDS_KEPT_MAX = 100_000  # Enough for any test; a longer run must take its records out.


@dataclass
class MemoryState:
    """State rows and markers, put into ``records`` by the test; one poll returns at most ``poll_max`` of them."""

    records: deque[StateRow | WindowClosed] = field(default_factory=deque)
    poll_max: int = RECORDS_KEPT_MAX

    def poll(self) -> list[StateRow | WindowClosed]:
        """Return the records and forget them."""
        return [self.records.popleft() for _ in range(min(len(self.records), self.poll_max))]


@dataclass
class MemoryResults:
    """Answers of brokers, put into ``records`` by the test."""

    records: deque[CommandResult] = field(default_factory=deque)

    def poll(self) -> list[CommandResult]:
        """Return the records and forget them."""
        results = list(self.records)
        self.records.clear()
        return results


@dataclass
class MemoryAnnouncements:
    """Announcements of brokers, put into ``records`` by the test."""

    records: deque[Announcement] = field(default_factory=deque)

    def poll(self) -> list[Announcement]:
        """Return the records and forget them."""
        announcements = list(self.records)
        self.records.clear()
        return announcements


@dataclass
class MemoryCommands:
    """Commands sent, oldest first, to be taken out of ``sent``."""

    sent: deque[Command] = field(default_factory=lambda: deque(maxlen=RECORDS_KEPT_MAX))


@dataclass
class MemoryEvents:
    """Events emitted, oldest first."""

    emitted: deque[AdaptationEvent] = field(default_factory=lambda: deque(maxlen=RECORDS_KEPT_MAX))

    def emit(self, event: AdaptationEvent) -> None:
        """Keep the event."""
        self.emitted.append(event)


@dataclass
class MemoryPlans:
    """A plan store that outlives the loop; ``is_unavailable`` makes it behave like an unavailable Kafka."""

    stored: dict[str, Plan] = field(default_factory=dict)
    versions: list[Plan] = field(default_factory=list)
    members: dict[str, Member] = field(default_factory=dict)
    commands: MemoryCommands = field(default_factory=MemoryCommands)
    sample: SampleRequest | None = None
    is_unavailable: bool = False

    def commit(self, plan: Plan | None, commands: Sequence[Command], members: Sequence[Member] = ()) -> bool:
        """Store the newest version of plan and members and send the commands; return False while ``is_unavailable``."""
        if self.is_unavailable:
            return False
        for member in members:
            self.members.pop(member.broker, None)
            self.members[member.broker] = member
        if plan is not None:
            self.stored.pop(plan.plan, None)  # The newest version moves to the end, as in a compacted topic.
            self.stored[plan.plan] = plan
            self.versions.append(plan)
        self.commands.sent.extend(commands)
        return True

    def load(self) -> list[Plan] | None:
        """Return the newest version of each plan."""
        return None if self.is_unavailable else list(self.stored.values())

    def load_members(self) -> list[Member] | None:
        """Return the newest record of each member."""
        return None if self.is_unavailable else list(self.members.values())

    def ask_sample(self, request: SampleRequest) -> None:
        """Keep the request."""
        self.sample = request

    def load_sample(self) -> list[SampleRequest] | None:
        """Return the request."""
        return None if self.is_unavailable else [self.sample] if self.sample else []

    def forget(self, plan: str) -> None:
        """Drop a plan."""
        self.stored.pop(plan, None)

    def flush(self) -> None:
        """Do nothing: nothing waits here."""


@dataclass
class MemoryClients:
    """A register of clients that the test fills, or just a number of subscriptions that it sets.

    It is known as soon as a client has been put in, or ``is_known`` is set. If only a number is set, ``connected``
    names the clients.
    """

    subscription_count: int | None = None
    registered: RegisteredClients = field(default_factory=RegisteredClients)
    is_known: bool = False
    connected: Callable[[], Iterable[Client]] | None = None
    _homes: dict[str, str] = field(default_factory=dict)  # The homes seen at the last update.
    _homes_before: dict[str, str] = field(default_factory=dict)

    def put(self, client: Client) -> None:
        """Add or replace a client."""
        self.registered.put(client)
        self.is_known = True

    def remove(self, name: str) -> None:
        """Remove a client that has left."""
        self.registered.remove(name)

    def count(self) -> int | None:
        """Return the number that was set, else the number of subscriptions put in."""
        if self.subscription_count is not None or not self.is_known:
            return self.subscription_count
        return self.registered.subscription_count

    def interests(self, brokers: tuple[str, ...]) -> UserInterests | None:
        """Return what users want and where."""
        return self.registered.interests(brokers) if self.is_known else None

    @property
    def topic_of(self) -> Mapping[str, str]:
        """The topic of each publisher."""
        return self.registered.topic_of

    @property
    def subscribers_at(self) -> Mapping[str, int] | None:
        """The number of subscribers without topics at each broker."""
        if self.connected is None:
            return self.registered.subscribers_at if self.is_known else None
        self._update_homes()
        return Counter(self._homes.values())

    @property
    def movable(self) -> Mapping[str, str]:
        """The subscribers without topics that may move, with their homes."""
        if self.connected is None:
            return self.registered.movable
        self._update_homes()
        may_move = (one.client for one in self.connected() if one.may_move)
        return {name: self._homes[name] for name in may_move if name in self._homes}

    @property
    def staying(self) -> Mapping[str, Mapping[str, int]]:
        """The number of those that stay for a known reason, by broker; of connected ones it is not known."""
        return self.registered.staying

    @property
    def nearest(self) -> Mapping[str, str]:
        """The broker that is nearest to each client beside an agent, if it is known; of connected ones it is not."""
        return self.registered.nearest

    @property
    def reaches(self) -> Mapping[str, tuple[str, ...]]:
        """The brokers to which each client beside an agent can be taken; of connected ones they are not known."""
        return self.registered.reaches

    def came_from(self, home_from: str, home_to: str) -> tuple[str, ...]:
        """Return the subscribers without topics at a broker that were at another one before."""
        if self.connected is None:
            return self.registered.came_from(home_from, home_to)
        self._update_homes()
        names = (name for name, home in self._homes.items() if home == home_to)
        return tuple(sorted(name for name in names if self._homes_before.get(name) == home_from))

    def _update_homes(self) -> None:
        assert self.connected is not None
        before = self._homes
        here = [one for one in self.connected() if one.role is Role.SUBSCRIBER and not one.topics]
        self._homes = {one.client: one.home for one in here}
        moved = {name: before[name] for name, home in self._homes.items() if before.get(name, home) != home}
        kept = {name: home for name, home in self._homes_before.items() if name in self._homes}
        self._homes_before = kept | moved

    @property
    def error(self) -> str:
        """Why nothing is known."""
        return "" if self.is_known else "the register of clients is empty"

    @property
    def is_loading(self) -> bool:
        """Always False: it is filled before the next step."""
        return False

    def named(self, parts: Iterable[tuple[str, int]]) -> Mapping[str, tuple[str, int]]:
        """Return which of these parts, given by broker and number, are a subscriber without topics or a client's."""
        if self.connected is None:
            return self.registered.named(parts)
        wanted, movable = frozenset(parts), self.movable
        names = {(client_of(name) if name in movable else name): home for name, home in self._homes.items()}
        registered = {name: (home, number_of_subscriber(name)) for name, home in names.items()}
        return {name: part for name, part in registered.items() if part in wanted}

    @property
    def ended_count(self) -> int:
        """The number of subscriptions to topics that have ever ended."""
        return self.registered.ended_count

    @property
    def unplaced(self) -> int:
        """The number of users whose home is not a broker."""
        return self.registered.unplaced


@dataclass
class MemoryOrders:
    """Orders, put into ``records`` by the test; those that stand at the start are known once ``is_known`` is set.

    A bare order counts as signed by its giver.
    """

    records: deque[Order | GivenOrder] = field(default_factory=deque)
    is_known: bool = True
    version: int = 0

    def poll(self) -> list[GivenOrder]:
        """Return the records and forget them."""
        orders = [given if isinstance(given, GivenOrder) else GivenOrder(given) for given in self.records]
        self.records.clear()
        return orders


@dataclass
class MemoryAudit:
    """Outcomes of orders, oldest first."""

    entries: deque[AuditEntry] = field(default_factory=lambda: deque(maxlen=RECORDS_KEPT_MAX))

    def keep(self, entry: AuditEntry) -> None:
        """Keep the entry."""
        self.entries.append(entry)


@dataclass
class MemoryView:
    """The text of the last view published, and the number of views."""

    text: bytes = b""
    published_count: int = 0

    def publish(self, view: LiveView, now_ms: int) -> None:
        """Keep the view."""
        self.text = encode_view(view)
        self.published_count += 1

    @property
    def shown(self) -> LiveView:
        """The last view as readers get it. Raises LiveViewError before the first."""
        return decode_view(self.text)


@dataclass
class MemoryPorts:
    """One port of each kind; ``ports`` combines them for the control loop."""

    state: MemoryState = field(default_factory=MemoryState)
    results: MemoryResults = field(default_factory=MemoryResults)
    events: MemoryEvents = field(default_factory=MemoryEvents)
    plans: MemoryPlans = field(default_factory=MemoryPlans)
    clients: MemoryClients = field(default_factory=MemoryClients)
    orders: MemoryOrders = field(default_factory=MemoryOrders)
    audit: MemoryAudit = field(default_factory=MemoryAudit)
    announcements: MemoryAnnouncements = field(default_factory=MemoryAnnouncements)
    view: MemoryView = field(default_factory=MemoryView)

    @property
    def commands(self) -> MemoryCommands:
        """The commands sent, which are stored with the plans."""
        return self.plans.commands

    @property
    def ports(self) -> ControlPorts:
        """All ports, as the control loop takes them."""
        return ControlPorts(
            self.state,
            self.results,
            self.events,
            self.plans,
            self.clients,
            self.orders,
            self.audit,
            self.announcements,
            (self.view,),
        )
