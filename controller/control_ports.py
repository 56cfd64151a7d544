"""What the control loop needs of the world, as protocols: Kafka and Valkey implement them, and memory for tests.

No port blocks for longer than about a second, and none raises because the other side is away: it says so by its return
value or tries again by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from schemas.command import Command, CommandResult
from schemas.event import AdaptationEvent
from schemas.plan import Plan
from schemas.state import StateRow, WindowClosed

Document = dict[str, Any]  # JSON-ready.


class StateSource(Protocol):
    """Rows and markers as they come."""

    def poll(self) -> list[StateRow | WindowClosed]:
        """Return what has come since, at most a bounded number; empty when nothing has."""
        ...


class ResultSource(Protocol):
    """Answers of brokers as they come."""

    def poll(self) -> list[CommandResult]:
        """Return what has come since, at most a bounded number; empty when nothing has."""
        ...


class CommandSink(Protocol):
    """The way to the brokers."""

    def send(self, command: Command) -> None:
        """Hand the command over; it may be lost, the transition repeats what is unanswered."""
        ...


class EventSink(Protocol):
    """The way to people."""

    def emit(self, event: AdaptationEvent) -> None:
        """Hand the event over; it may be lost when the other side is away for long."""
        ...


class PlanStore(Protocol):
    """Where plans live."""

    def persist(self, plan: Plan) -> bool:
        """Store the plan and tell whether that was acknowledged; when not, it may or may not be stored."""
        ...

    def load(self) -> list[Plan] | None:
        """Return the newest version of every plan in the order they were stored, None when the store is away."""
        ...


class SubscriptionCounter(Protocol):
    """How many subscriptions there are."""

    def count(self) -> int | None:
        """Take in what has come since, and return how many subscriptions there are; None while that is not known."""
        ...


class DocumentSink(Protocol):
    """Where the loop's own view of things is shown; best effort."""

    def publish(self, document: Document, now_ms: int) -> None:
        """Show the document instead of the one before."""
        ...


@dataclass(frozen=True)
class ControlPorts:
    """All ports of one control loop. ``views`` are the live view and the status file, where there are any."""

    state: StateSource
    results: ResultSource
    commands: CommandSink
    events: EventSink
    plans: PlanStore
    subscriptions: SubscriptionCounter
    views: tuple[DocumentSink, ...] = ()
