"""The ports of the control loop in memory: for tests, and for runs on the virtual clock without Kafka."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from controller.control_ports import ControlPorts, Document
from schemas.command import Command, CommandResult
from schemas.event import AdaptationEvent
from schemas.plan import Plan
from schemas.state import StateRow, WindowClosed

RECORDS_KEPT_MAX = 100_000  # Enough for any test; a longer run must take its records out.


@dataclass
class MemoryState:
    """State rows and markers that somebody puts in ``records``."""

    records: deque[StateRow | WindowClosed] = field(default_factory=deque)

    def poll(self) -> list[StateRow | WindowClosed]:
        """Return and forget what is there."""
        found = list(self.records)
        self.records.clear()
        return found


@dataclass
class MemoryResults:
    """Answers of brokers that somebody puts in ``records``."""

    records: deque[CommandResult] = field(default_factory=deque)

    def poll(self) -> list[CommandResult]:
        """Return and forget what is there."""
        found = list(self.records)
        self.records.clear()
        return found


@dataclass
class MemoryCommands:
    """Commands sent, oldest first, for somebody to take out of ``sent``."""

    sent: deque[Command] = field(default_factory=lambda: deque(maxlen=RECORDS_KEPT_MAX))

    def send(self, command: Command) -> None:
        """Keep the command."""
        self.sent.append(command)


@dataclass
class MemoryEvents:
    """Events emitted, oldest first."""

    emitted: deque[AdaptationEvent] = field(default_factory=lambda: deque(maxlen=RECORDS_KEPT_MAX))

    def emit(self, event: AdaptationEvent) -> None:
        """Keep the event."""
        self.emitted.append(event)


@dataclass
class MemoryPlans:
    """A plan store that outlives the loop; ``is_away`` makes it answer like a Kafka that is down."""

    stored: dict[str, Plan] = field(default_factory=dict)
    versions: list[Plan] = field(default_factory=list)
    is_away: bool = False

    def persist(self, plan: Plan) -> bool:
        """Store the newest version of the plan unless the store is away."""
        if self.is_away:
            return False
        self.stored.pop(plan.plan, None)  # The newest version moves to the end, as in a compacted topic.
        self.stored[plan.plan] = plan
        self.versions.append(plan)
        return True

    def load(self) -> list[Plan] | None:
        """Return the newest version of each plan."""
        return None if self.is_away else list(self.stored.values())


@dataclass
class MemorySubscriptions:
    """A number of subscriptions that somebody sets."""

    subscription_count: int | None = None

    def count(self) -> int | None:
        """Return the number."""
        return self.subscription_count


@dataclass
class MemoryView:
    """The last document shown, and how many there were."""

    document: Document = field(default_factory=dict)
    published_count: int = 0

    def publish(self, document: Document, now_ms: int) -> None:
        """Keep the document."""
        self.document = document
        self.published_count += 1


@dataclass
class MemoryPorts:
    """One of each; ``ports`` is what the control loop takes."""

    state: MemoryState = field(default_factory=MemoryState)
    results: MemoryResults = field(default_factory=MemoryResults)
    commands: MemoryCommands = field(default_factory=MemoryCommands)
    events: MemoryEvents = field(default_factory=MemoryEvents)
    plans: MemoryPlans = field(default_factory=MemoryPlans)
    subscriptions: MemorySubscriptions = field(default_factory=MemorySubscriptions)
    view: MemoryView = field(default_factory=MemoryView)

    @property
    def ports(self) -> ControlPorts:
        """All of them as the control loop wants them."""
        return ControlPorts(
            self.state, self.results, self.commands, self.events, self.plans, self.subscriptions, (self.view,)
        )
