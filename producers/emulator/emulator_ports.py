"""What the emulator needs of the world, as protocols, and each of them in memory for tests and the virtual clock.

No port blocks and none raises because the other side is away. Kafka's are in :mod:`producers.emulator.kafka_ports`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from regraft.schemas.announcement import Announcement
from regraft.schemas.client import Client
from regraft.schemas.command import Command, CommandResult
from regraft.schemas.sample_request import SampleRequest
from regraft.schemas.telemetry import TelemetryBatch

RECORDS_KEPT_MAX = 1_000_000


class TelemetrySink(Protocol):
    """Where batches go."""

    def send_batch(self, batch: TelemetryBatch) -> None:
        """Hand the batch over; it is kept in a bounded buffer while the other side is away."""
        ...


class ResultSink(Protocol):
    """Where answers to commands go."""

    def send_result(self, result: CommandResult) -> None:
        """Hand the result over; it is kept in a bounded buffer while the other side is away."""
        ...


class ClientSink(Protocol):
    """Where it is known who is connected."""

    def put_client(self, client: Client) -> None:
        """Report that a client has come or changed."""
        ...

    def remove_client(self, client: str) -> None:
        """Report that a client has left."""
        ...


class MembershipPort(Protocol):
    """The way of a broker that is not a member to become one."""

    def announce(self, announcement: Announcement) -> None:
        """Report that a broker asks to join."""
        ...

    def is_member(self, broker: str) -> bool:
        """Return True if the broker has been let in, as far as is known without waiting."""
        ...


class CommandSource(Protocol):
    """Where commands come from, and how much to report."""

    def share_asked(self) -> SampleRequest | None:
        """Return how much the controller wants reported, None where it has said nothing."""
        ...

    def poll(self) -> list[Command]:
        """Return what has come since, at most a bounded number; empty when nothing has."""
        ...


@dataclass
class MemoryTelemetry:
    """Keeps the newest ``kept_max`` batches, oldest first."""

    kept_max: int = RECORDS_KEPT_MAX
    batches: deque[TelemetryBatch] = field(default_factory=deque)
    sent_count: int = 0

    def send_batch(self, batch: TelemetryBatch) -> None:
        """Keep the batch."""
        self.sent_count += 1
        self.batches.append(batch)
        if len(self.batches) > self.kept_max:
            self.batches.popleft()


@dataclass
class MemoryResults:
    """Keeps the newest answers, oldest first."""

    results: deque[CommandResult] = field(default_factory=lambda: deque(maxlen=RECORDS_KEPT_MAX))

    def send_result(self, result: CommandResult) -> None:
        """Keep the result."""
        self.results.append(result)


@dataclass
class MemoryClients:
    """Keeps who is connected now."""

    connected: dict[str, Client] = field(default_factory=dict)

    def put_client(self, client: Client) -> None:
        """Keep the client."""
        self.connected[client.client] = client

    def remove_client(self, client: str) -> None:
        """Forget the client."""
        self.connected.pop(client, None)


@dataclass
class MemoryMembership:
    """Keeps what was announced; ``members`` are those that somebody has let in."""

    announced: deque[Announcement] = field(default_factory=lambda: deque(maxlen=RECORDS_KEPT_MAX))
    members: set[str] = field(default_factory=set)

    def announce(self, announcement: Announcement) -> None:
        """Keep the announcement."""
        self.announced.append(announcement)

    def is_member(self, broker: str) -> bool:
        """Return True if somebody has let the broker in."""
        return broker in self.members


@dataclass
class MemoryCommands:
    """Hands out what was put in."""

    waiting: deque[Command] = field(default_factory=deque)
    asked: SampleRequest | None = None

    def share_asked(self) -> SampleRequest | None:
        """Return the request that was put in."""
        return self.asked

    def poll(self) -> list[Command]:
        """Return all commands that wait."""
        taken = list(self.waiting)
        self.waiting.clear()
        return taken
