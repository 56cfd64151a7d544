"""What the control loop needs of the world, as protocols: Kafka and Valkey implement them, and memory for tests.

No port blocks for longer than about a second, and none raises because the other side is away: it says so by its return
value or tries again by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from regraft.overlay.user_interests import UserInterests
from regraft.schemas.announcement import Announcement
from regraft.schemas.audit import AuditEntry, GivenOrder
from regraft.schemas.command import Command, CommandResult
from regraft.schemas.event import AdaptationEvent
from regraft.schemas.live_view import LiveView
from regraft.schemas.member import Member
from regraft.schemas.plan import Plan
from regraft.schemas.sample_request import SampleRequest
from regraft.schemas.state import StateRow, WindowClosed


class DeposedError(RuntimeError):
    """Another controller leads, or may: this one's term is over, and nothing that it says counts any more."""


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


class AnnouncementSource(Protocol):
    """Announcements of brokers that want to be members, in order of arrival."""

    def poll(self) -> list[Announcement]:
        """Return what has come since, at most a bounded number; empty when nothing has."""
        ...


class EventSink(Protocol):
    """The way to people."""

    def emit(self, event: AdaptationEvent) -> None:
        """Hand the event over; it may be lost when the other side is away for long."""
        ...


class PlanStore(Protocol):
    """Where plans live, and the way to the brokers: a phase and its commands are stored together or not at all."""

    def commit(self, plan: Plan | None, commands: Sequence[Command], members: Sequence[Member] = ()) -> bool:
        """Store a plan's phase with its commands, changed members, or either alone; return True once acknowledged.

        When not, they may or may not be stored, and are handed over again; a command stored may still be lost.
        Raises DeposedError when another controller has taken over, and then nothing is stored any more.
        """
        ...

    def load(self) -> list[Plan] | None:
        """Return the newest version of every plan in the order they were stored, None when the store is away."""
        ...

    def load_members(self) -> list[Member] | None:
        """Return the newest record of every member, None when the store is away."""
        ...

    def ask_sample(self, request: SampleRequest) -> None:
        """Ask all brokers for a share of their telemetry; it waits like an event while the other side is away."""
        ...

    def load_sample(self) -> list[SampleRequest] | None:
        """Return what was asked for last, nothing where nothing was, None when the store is away."""
        ...

    def forget(self, plan: str) -> None:
        """Drop a plan that ended long ago; it may be lost, then the next start finds the plan and forgets it."""
        ...

    def flush(self) -> None:
        """Hand over what waits: events, and plans to be forgotten. Raises DeposedError."""
        ...


class OrderSource(Protocol):
    """What people order."""

    def poll(self) -> list[GivenOrder]:
        """Return what has come since, at most a bounded number; first all that stands."""
        ...

    @property
    def is_known(self) -> bool:
        """Return True if all that stood at the start has been handed out; until then nothing may be decided."""
        ...

    @property
    def version(self) -> int:
        """Count how often it restarted from the first order; each time, nothing it returned before holds."""
        ...


class AuditSink(Protocol):
    """Where the outcomes of orders are kept."""

    def keep(self, entry: AuditEntry) -> None:
        """Hand the entry over; it may be lost when the other side is away for long."""
        ...


class ClientRegister(Protocol):
    """Who is connected where and wants or publishes what."""

    def count(self) -> int | None:
        """Take in what has come since, and return how many subscriptions there are; None while that is not known.

        A user counts as many as it has topics.
        """
        ...

    def interests(self, brokers: tuple[str, ...]) -> UserInterests | None:
        """Return what users want where, as of the last :meth:`count`; None while that is not known."""
        ...

    @property
    def topic_of(self) -> Mapping[str, str]:
        """What each publisher publishes on, as of the last :meth:`count`."""
        ...

    @property
    def subscribers_at(self) -> Mapping[str, int] | None:
        """How many subscribers without topics each broker has, as of the last :meth:`count`; None while not known."""
        ...

    def came_from(self, home_from: str, home_to: str) -> tuple[str, ...]:
        """Return the subscribers without topics at a broker that were at another one before; none while not known."""
        ...

    def named(self, parts: Iterable[tuple[str, int]]) -> Mapping[str, tuple[str, int]]:
        """Return the subscribers without topics that each form one of these parts, given by broker and number."""
        ...

    @property
    def ended_count(self) -> int:
        """How many subscriptions to topics have ever ended, as of the last :meth:`count`."""
        ...

    @property
    def fault(self) -> str:
        """Why nothing is known, empty when it is."""
        ...

    @property
    def is_waited_for(self) -> bool:
        """Return True if nothing is known yet, but may be soon."""
        ...

    @property
    def unplaced(self) -> int:
        """How many users the last answer of :meth:`interests` left out, as their home is not in the overlay."""
        ...


class ViewSink(Protocol):
    """Where the loop's own view of things is shown; best effort."""

    def publish(self, view: LiveView, now_ms: int) -> None:
        """Show the view instead of the one before."""
        ...


@dataclass(frozen=True)
class ControlPorts:
    """All ports of one control loop. ``views`` are the live view and the status file, where there are any."""

    state: StateSource
    results: ResultSource
    events: EventSink
    plans: PlanStore
    clients: ClientRegister
    orders: OrderSource
    audit: AuditSink
    announcements: AnnouncementSource
    views: tuple[ViewSink, ...] = ()
