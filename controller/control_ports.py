"""The ports of the control loop, as protocols: implemented by Kafka and Valkey, and in memory for tests.

No port blocks for longer than about a second, and none raises because the other side is unavailable: it reports that by
its return value or tries again by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from regraft.overlay.registered_clients import RegisteredClients
from regraft.schemas.announcement import Announcement
from regraft.schemas.audit import AuditEntry, GivenOrder
from regraft.schemas.command import Command, CommandResult
from regraft.schemas.event import AdaptationEvent
from regraft.schemas.live_view import LiveView
from regraft.schemas.member import Member
from regraft.schemas.plan import Plan
from regraft.schemas.sample_request import SampleRequest
from regraft.schemas.state import StateRow, WindowClosed

Record = TypeVar("Record")


class DeposedError(RuntimeError):
    """Another controller leads, or may: this one's term is over, and nothing it writes counts any more."""


class RecordSource(Protocol[Record]):
    """A source of new records, in order of arrival."""

    def poll(self) -> list[Record]:
        """Return what is new, at most a bounded number of records; empty if nothing is."""
        ...


class EventSink(Protocol):
    """Takes events for people."""

    def emit(self, event: AdaptationEvent) -> None:
        """Send the event; it may be lost if the other side is unavailable for long."""
        ...


class PlanStore(Protocol):
    """Stores plans and sends commands to brokers: a phase and its commands are stored together or not at all."""

    def commit(self, plan: Plan | None, commands: Sequence[Command], members: Sequence[Member] = ()) -> bool:
        """Store a plan's phase with its commands, changed members, or either alone; return True once acknowledged.

        Until then, they may or may not be stored, and must be passed again; a command stored may still be lost. Raises
        DeposedError if another controller has taken over; then nothing is stored any more.
        """
        ...

    def load(self) -> list[Plan] | None:
        """Return the newest version of every plan in the order they were stored; None if the store is unavailable."""
        ...

    def load_members(self) -> list[Member] | None:
        """Return the newest record of every member; None if the store is unavailable."""
        ...

    def ask_sample(self, request: SampleRequest) -> None:
        """Ask all brokers for a share of their telemetry; waits like an event while the other side is unavailable."""
        ...

    def load_sample(self) -> list[SampleRequest] | None:
        """Return the newest request; empty if there is none, None if the store is unavailable."""
        ...

    def forget(self, plan: str) -> None:
        """Drop a plan that ended long ago; if that is lost, the next start finds the plan and forgets it again."""
        ...

    def flush(self) -> None:
        """Send what waits: events, and plans to be forgotten. Raises DeposedError."""
        ...


class OrderSource(Protocol):
    """A source of operators' orders."""

    def poll(self) -> list[GivenOrder]:
        """Return what is new, at most a bounded number of orders; first all that stand."""
        ...

    @property
    def is_known(self) -> bool:
        """Return True if all orders that stood at the start have been returned; no decisions may be made before."""
        ...

    @property
    def version(self) -> int:
        """The number of restarts from the first order; each invalidates everything returned before."""
        ...


class AuditSink(Protocol):
    """Keeps the outcomes of orders."""

    def keep(self, entry: AuditEntry) -> None:
        """Store the entry; it may be lost if the other side is unavailable for long."""
        ...


class ClientRegister(Protocol):
    """The register of clients: who is connected where and wants or publishes what."""

    def count(self) -> int | None:
        """Read new records, and return the number of subscriptions; None while unknown.

        Each topic of a user counts as one.
        """
        ...

    @property
    def registered(self) -> RegisteredClients:
        """All clients, as of the last :meth:`count`; none while :attr:`error` says why nothing is known."""
        ...

    @property
    def error(self) -> str:
        """Why nothing is known; empty if it is."""
        ...

    @property
    def is_loading(self) -> bool:
        """Return True if nothing is known yet, but may be soon."""
        ...


class ViewSink(Protocol):
    """Publishes the loop's view of its state; best effort."""

    def publish(self, view: LiveView, now_ms: int) -> None:
        """Publish the view, replacing the previous one."""
        ...


@dataclass(frozen=True)
class ControlPorts:
    """All ports of one control loop. ``views`` are the live view and the status file, if any."""

    state: RecordSource[StateRow | WindowClosed]
    results: RecordSource[CommandResult]
    events: EventSink
    plans: PlanStore
    clients: ClientRegister
    orders: OrderSource
    audit: AuditSink
    announcements: RecordSource[Announcement]
    views: tuple[ViewSink, ...] = ()
