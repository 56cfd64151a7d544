"""The ports of the control loop in memory: for tests, and for runs on the virtual clock without Kafka."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from regraft.controller.control_ports import ControlPorts
from regraft.overlay.registered_clients import RegisteredClients
from regraft.schemas.announcement import Announcement
from regraft.schemas.audit import AuditEntry, GivenOrder
from regraft.schemas.client import Client
from regraft.schemas.command import Command, CommandResult
from regraft.schemas.event import AdaptationEvent
from regraft.schemas.live_view import LiveView, decode_view, encode_view
from regraft.schemas.member import Member
from regraft.schemas.order import Order
from regraft.schemas.plan import Plan
from regraft.schemas.sample_request import SampleRequest
from regraft.schemas.state import StateRow, WindowClosed

RECORDS_KEPT_MAX = 100_000  # Enough for any test; a longer run must take its records out.

Record = TypeVar("Record")


@dataclass
class MemoryRecords(Generic[Record]):
    """Records put into ``records`` by the test; one poll returns at most ``poll_max`` of them."""

    records: deque[Record] = field(default_factory=deque)
    poll_max: int = RECORDS_KEPT_MAX

    def poll(self) -> list[Record]:
        """Return the records and forget them."""
        return [self.records.popleft() for _ in range(min(len(self.records), self.poll_max))]


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
    """A register of clients that the test fills, or that follows those ``connected`` now.

    A number of subscriptions that the test sets counts instead of theirs.
    """

    subscription_count: int | None = None
    registered: RegisteredClients = field(default_factory=RegisteredClients)
    is_known: bool = False
    connected: Mapping[str, Client] | None = None
    _followed: dict[str, Client] = field(default_factory=dict)

    def put(self, client: Client) -> None:
        """Add or replace a client."""
        self.registered.put(client)
        self.is_known = True

    def remove(self, name: str) -> None:
        """Remove a client that has left."""
        self.registered.remove(name)

    def count(self) -> int | None:
        """Return the number that was set, else the number of subscriptions put in."""
        if self.connected is not None:
            self._follow(self.connected)
        if self.subscription_count is not None or not self.is_known:
            return self.subscription_count
        return self.registered.subscription_count

    def _follow(self, connected: Mapping[str, Client]) -> None:
        for name in sorted(self._followed.keys() - connected.keys()):
            self.remove(name)
        for name, client in connected.items():
            if self._followed.get(name) is not client:
                self.put(client)
        self._followed = dict(connected)

    @property
    def error(self) -> str:
        """Why nothing is known."""
        return "" if self.is_known else "the register of clients is empty"

    @property
    def is_loading(self) -> bool:
        """Always False: it is filled before the next step."""
        return False


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
    """The text of the last view published."""

    text: bytes = b""

    def publish(self, view: LiveView, now_ms: int) -> None:
        """Keep the view."""
        self.text = encode_view(view)

    @property
    def shown(self) -> LiveView:
        """The last view as readers get it. Raises LiveViewError before the first."""
        return decode_view(self.text)


@dataclass
class MemoryPorts:
    """One port of each kind; ``ports`` combines them for the control loop."""

    state: MemoryRecords[StateRow | WindowClosed] = field(default_factory=MemoryRecords)
    results: MemoryRecords[CommandResult] = field(default_factory=MemoryRecords)
    events: MemoryEvents = field(default_factory=MemoryEvents)
    plans: MemoryPlans = field(default_factory=MemoryPlans)
    clients: MemoryClients = field(default_factory=MemoryClients)
    orders: MemoryOrders = field(default_factory=MemoryOrders)
    audit: MemoryAudit = field(default_factory=MemoryAudit)
    announcements: MemoryRecords[Announcement] = field(default_factory=MemoryRecords)
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
