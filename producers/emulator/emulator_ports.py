"""The emulator's interfaces to the outside, as protocols, and each in memory for tests and the virtual clock.

No port blocks, and none raises because the other side is away. Kafka's are in :mod:`producers.emulator.kafka_ports`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from regraft.producers.brokers.match_content import Filter
from regraft.schemas.announcement import Announcement
from regraft.schemas.client import Client, Role
from regraft.schemas.command import Command, CommandResult
from regraft.schemas.sample_request import SampleRequest
from regraft.schemas.telemetry import TelemetryBatch

RECORDS_KEPT_MAX = 1_000_000


class TelemetrySink(Protocol):
    """Receives telemetry batches."""

    def send_batch(self, batch: TelemetryBatch) -> None:
        """Send the batch; a bounded buffer keeps it while the other side is away."""


class ResultSink(Protocol):
    """Receives answers to commands."""

    def send_result(self, result: CommandResult) -> None:
        """Send the result; a bounded buffer keeps it while the other side is away."""


class ClientSink(Protocol):
    """The register of connected clients."""

    def put_client(self, client: Client) -> None:
        """Report that a client has connected or changed."""

    def remove_client(self, client: str) -> None:
        """Report that a client has left."""


class MembershipPort(Protocol):
    """How a broker that is not a member becomes one."""

    def announce(self, announcement: Announcement) -> None:
        """Report that a broker asks to join."""

    def is_member(self, broker: str) -> bool:
        """Return True if the broker is a member, as far as is known without waiting."""


class CommandSource(Protocol):
    """The source of commands, and of the share of deliveries to report."""

    def requested_share(self) -> SampleRequest | None:
        """Return the controller's request for what to report in full, or None if there is none."""

    def poll(self) -> list[Command]:
        """Return the commands that have arrived since, at most a bounded number."""


@dataclass
class MemoryTelemetry:
    """Keeps the newest ``kept_max`` batches, oldest first."""

    kept_max: int = RECORDS_KEPT_MAX
    batches: deque[TelemetryBatch] = field(default_factory=deque)

    def send_batch(self, batch: TelemetryBatch) -> None:
        """Keep the batch."""
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
    """Keeps the announcements; ``members`` are the brokers that the test has admitted."""

    announced: deque[Announcement] = field(default_factory=lambda: deque(maxlen=RECORDS_KEPT_MAX))
    members: set[str] = field(default_factory=set)

    def announce(self, announcement: Announcement) -> None:
        """Keep the announcement."""
        self.announced.append(announcement)

    def is_member(self, broker: str) -> bool:
        """Return True if the broker has been admitted."""
        return broker in self.members


class OverlayListener:
    """Listens to changes of clients and answers to commands; by default to nothing."""

    def on_client_change(self, client: str, role: Role, home: str, filter_: Filter | None) -> None:
        """A client has connected or moved to another home, with its filter, or has left, with None."""

    def on_user_change(self, user: str, home: str, topics: tuple[str, ...] | None) -> None:
        """A user of a ring has connected, moved to another home or changed its topics, or has left, with None."""

    def on_may_publish(self, publisher: str) -> None:
        """All brokers that must know the publisher do."""

    def on_result(self, result: CommandResult) -> None:
        """A broker has answered a command."""
