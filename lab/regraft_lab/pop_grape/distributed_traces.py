"""Messages between brokers to trace and relocate publishers, with their sizes.

Plain frozen values: Cheung09, sections 3 and 4. How brokers handle them belongs to
:mod:`experiments.pop_grape.distributed_pop` and :mod:`experiments.pop_grape.distributed_grape`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from enum import StrEnum

from regraft.api.brokers import Notification
from regraft.api.emulation import CONTROL_BYTES

HEADER_BYTES = CONTROL_BYTES  # The emulator's size of a control message.
ID_BYTES = 10  # Of a broker or an advertisement: "around 10 characters" (4.1).
COUNT_BYTES = 4
NUMBER_BYTES = 8  # An average or a delay.
BYTE_BITS = 8
TRACE_HEADER = "traceID"  # Not an attribute of any quote.


class MessageKind(StrEnum):
    """The purpose of a message, by which it is counted."""

    TRACE_RESULT = "trace_result"  # POP's TRM
    RELOCATION_REQUEST = "relocation_request"  # POP's RRM
    RELOCATION_ANSWER = "relocation_answer"  # POP's RAM
    TRACE_REQUEST = "trace_request"  # GRAPE's TIR
    TRACE_ANSWER = "trace_answer"  # GRAPE's TIA
    PING = "ping"  # Between publisher and candidates or home; not over the overlay's links.
    MIGRATION_UPDATE = "migration_update"  # The paper's MUM
    MIGRATION_COMPLETE = "migration_complete"  # The paper's MCM
    CLIENT_CONTROL = "client_control"  # Between a migrating publisher and its two homes.
    FORWARDED_SUBSCRIPTION = "forwarded_subscription"  # By the paper's migration, towards the new home.


@dataclass(frozen=True, slots=True)
class TraceResult:
    """TRM: ``subscriber_count`` subscribers at and beyond the sender got the traced notification.

    Departure: it also names the notification. A reply for a later notification can overtake the one for an earlier one
    that went farther, and the paper's two fields do not distinguish them.
    """

    publisher: str
    sequence: int
    subscriber_count: int

    @property
    def size_bytes(self) -> int:
        """Bytes of advertisement, notification and count."""
        return HEADER_BYTES + ID_BYTES + 2 * COUNT_BYTES


@dataclass(frozen=True, slots=True)
class RelocationRequest:
    """RRM: find the closest broker; ``subscriber_total`` subscribers are on the sender's side of the link.

    ``brokers``: the brokers passed so far, last one first. ``trace``: the number of the round's last trace.
    """

    publisher: str
    subscriber_total: float
    brokers: tuple[str, ...]
    trace: int

    @property
    def size_bytes(self) -> int:
        """Bytes of advertisement, numbers and brokers."""
        return HEADER_BYTES + ID_BYTES + NUMBER_BYTES + COUNT_BYTES + ID_BYTES * len(self.brokers)


@dataclass(frozen=True, slots=True)
class RelocationAnswer:
    """RAM: the first of ``brokers`` is the closest, the last is the publisher's home; it travels from first to last."""

    publisher: str
    brokers: tuple[str, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of advertisement and brokers."""
        return HEADER_BYTES + ID_BYTES + ID_BYTES * len(self.brokers)


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """TIR: report the outcome of the trace session, named by the sequence number of its first notification."""

    publisher: str
    session: int

    @property
    def size_bytes(self) -> int:
        """Bytes of advertisement and session."""
        return HEADER_BYTES + ID_BYTES + COUNT_BYTES


@dataclass(frozen=True, slots=True)
class BrokerReport:
    """One broker's report on a trace session (Cheung09, 4.1, items 1 to 7).

    Bit d of ``bits`` is set if the session's notification d was delivered here. ``queueing_ms`` and ``matching_ms``:
    mean times of a notification in the broker; ``output_ms``: its mean wait for each neighbour's link and, at the end,
    for the clients.
    """

    broker: str
    neighbours: tuple[str, ...]
    bits: int
    deliveries: int
    queueing_ms: float
    matching_ms: float
    output_ms: tuple[float, ...]

    def size_bytes(self, session_length: int) -> int:
        """Return its bytes: about 100 with three neighbours and 100 notifications, as in the paper."""
        numbers = NUMBER_BYTES * (2 + len(self.output_ms))
        return ID_BYTES * (1 + len(self.neighbours)) + vector_bytes(session_length) + COUNT_BYTES + numbers


@dataclass(frozen=True, slots=True)
class TraceAnswer:
    """TIA: the reports of the sender and of all brokers beyond it; ``session_length`` notifications were traced."""

    publisher: str
    session: int
    session_length: int
    reports: tuple[BrokerReport, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of advertisement, session and all reports."""
        payload = sum(report.size_bytes(self.session_length) for report in self.reports)
        return HEADER_BYTES + ID_BYTES + COUNT_BYTES + payload


TraceMessage = TraceResult | RelocationRequest | RelocationAnswer | TraceRequest | TraceAnswer
KIND_OF_MESSAGE: dict[type[TraceMessage], MessageKind] = {
    TraceResult: MessageKind.TRACE_RESULT,
    RelocationRequest: MessageKind.RELOCATION_REQUEST,
    RelocationAnswer: MessageKind.RELOCATION_ANSWER,
    TraceRequest: MessageKind.TRACE_REQUEST,
    TraceAnswer: MessageKind.TRACE_ANSWER,
}


@dataclass(frozen=True, slots=True)
class SendTrace:
    """Effect: send the trace message over the link to ``peer``."""

    peer: str
    message: TraceMessage


@dataclass(frozen=True, slots=True)
class Chosen:
    """POP's result at the publisher's home: move it along ``path``, from home to target; a single broker means stay."""

    publisher: str
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Gathered:
    """GRAPE's result at the publisher's home: all reports of a session, its own first, to select a target from."""

    publisher: str
    session_length: int
    reports: tuple[BrokerReport, ...]


TraceEffect = SendTrace | Chosen | Gathered


def vector_bytes(bit_count: int) -> int:
    """Return the number of bytes that hold this many bits."""
    return -(-bit_count // BYTE_BITS)


def marked(notification: Notification, value: str) -> Notification:
    """Return the notification with the trace header, which has the size of its text in PADRES."""
    content = {**notification.content, TRACE_HEADER: value}
    size_bytes = notification.size_bytes + trace_header_bytes(value)
    return replace(notification, content=content, size_bytes=size_bytes)


def trace_header_bytes(value: str) -> int:
    """Return the bytes of the trace header."""
    return len(f"[{TRACE_HEADER},{value}],")


class MemoryMeter:
    """The size of the fields in one broker's tables, without language overhead; ``bytes_max`` is the peak."""

    def __init__(self) -> None:
        self.bytes_now = 0
        self.bytes_max = 0

    def add(self, size_bytes: int) -> None:
        """Add a kept item's bytes, negative for a forgotten one."""
        self.bytes_now += size_bytes
        self.bytes_max = max(self.bytes_max, self.bytes_now)


class TracingBroker(ABC):
    """The common interface of POP's and GRAPE's part of a broker.

    Implementations are pure state machines without clock or links. A publisher is not traced during its decision or
    move.
    """

    def __init__(self, broker: str) -> None:
        self.broker = broker
        self.memory = MemoryMeter()

    @abstractmethod
    def mark(self, notification: Notification, now_ms: float) -> Notification:
        """Return a local publisher's notification, with the trace header if it is traced."""

    @abstractmethod
    def on_notification(
        self, source: str | None, notification: Notification, peers: tuple[str, ...], local_count: int
    ) -> list[TraceEffect]:
        """Record a traced notification, forwarded to ``peers`` and delivered to ``local_count`` subscribers here."""

    @abstractmethod
    def on_message(self, source: str, message: TraceMessage) -> list[TraceEffect]:
        """Handle a neighbour's message."""

    @abstractmethod
    def resume(self, publisher: str) -> None:
        """Trace a local publisher again: its move was aborted, or the decision was to stay."""

    @abstractmethod
    def forget(self, publisher: str) -> None:
        """Forget a publisher that has moved along a path with this broker."""
