"""GRAPE at one broker: trace sessions, bit vectors, and their retrieval down and up the delivery tree.

In: traced notifications with the neighbours that got them, and messages of neighbours, one at a time. Out: messages,
and at a publisher's home all reports of a session. A pure state machine: Cheung09, section 4.1. Selecting the target
from the reports (4.2) belongs to :mod:`experiments.pop_grape.distributed_selection`.

Messages of a link arrive in the order they were sent, so a request comes after the session's notifications. Our
readings where the paper is silent: each publisher numbers its own messages, so the numbers of one publisher are
consecutive; and the next session begins once the decision, and the move if any, is complete.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from regraft.api.brokers import Notification
from regraft_lab.pop_grape.distributed_traces import (
    COUNT_BYTES,
    ID_BYTES,
    TRACE_HEADER,
    BrokerReport,
    Gathered,
    SendTrace,
    TraceAnswer,
    TraceEffect,
    TraceMessage,
    TraceRequest,
    TracingBroker,
    marked,
    vector_bytes,
)


@dataclass(frozen=True, slots=True)
class BrokerMonitor:
    """Measurements of a broker's monitor: neighbours, and mean times in ms of a notification there.

    ``output_ms``: for each neighbour, and at the end for the clients.
    """

    neighbours: tuple[str, ...]
    queueing_ms: float
    matching_ms: float
    output_ms: tuple[float, ...]


@dataclass(slots=True)
class TraceSession:
    """One broker's record of a session: bit vector, local deliveries, neighbours that got any notification of it."""

    first_sequence: int
    source: str | None
    bits: int = 0
    deliveries: int = 0
    peers: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)
    reports: list[BrokerReport] = field(default_factory=list)

    def note(self, sequence: int, peers: tuple[str, ...], local_count: int) -> None:
        """Record a notification; if it was delivered here, set the bit of its distance from the session's first one."""
        if local_count:
            self.bits |= 1 << (sequence - self.first_sequence)
            self.deliveries += local_count
        self.peers.update(peers)


@dataclass(slots=True)
class _Source:
    """A local publisher: its current session, notifications traced in it, and whether a decision is pending."""

    session: int = 0
    traced_count: int = 0
    is_held: bool = False


class GrapeBroker(TracingBroker):
    """GRAPE's state at one broker. ``threshold`` is G_threshold, ``monitor`` returns the broker's measurements."""

    def __init__(self, broker: str, threshold: int, monitor: Callable[[], BrokerMonitor]) -> None:
        super().__init__(broker)
        if threshold < 1:
            raise ValueError(f"threshold is {threshold}: at least 1 notification makes a trace session")
        self._threshold = threshold
        self._monitor = monitor
        self._sources: dict[str, _Source] = {}
        self._sessions: dict[tuple[str, int], TraceSession] = {}

    def session(self, publisher: str, first_sequence: int) -> TraceSession | None:
        """Return the record of a session, None if there is none."""
        return self._sessions.get((publisher, first_sequence))

    # --- tracing (4.1) -----------------------------------------------------------------------------------------------

    def mark(self, notification: Notification, now_ms: float) -> Notification:
        """Add the notification to the publisher's session, unless the session is full or a decision is pending."""
        source = self._sources.setdefault(notification.publisher, _Source())
        if source.is_held or source.traced_count >= self._threshold:
            return notification
        if not source.traced_count:
            source.session = notification.sequence
        source.traced_count += 1
        return marked(notification, str(source.session))

    def on_notification(
        self, source: str | None, notification: Notification, peers: tuple[str, ...], local_count: int
    ) -> list[TraceEffect]:
        """Record the notification; at its home, request the answers after the session's last one."""
        publisher, first_sequence = notification.publisher, int(notification.content[TRACE_HEADER])
        session = self._sessions.get((publisher, first_sequence))
        if session is None:
            session = self._sessions[publisher, first_sequence] = TraceSession(first_sequence, source)
            self.memory.add(self._session_bytes)
        known_count = len(session.peers)
        session.note(notification.sequence, peers, local_count)
        self.memory.add(ID_BYTES * (len(session.peers) - known_count))
        if source is None and self._sources[publisher].traced_count == self._threshold:
            self._sources[publisher].is_held = True
            return self._request(publisher, session)
        return []

    @property
    def _session_bytes(self) -> int:
        """Bytes of publisher, number of the first notification, bit vector, deliveries and upstream neighbour."""
        return 2 * ID_BYTES + 2 * COUNT_BYTES + vector_bytes(self._threshold)

    # --- retrieval (4.1) ---------------------------------------------------------------------------------------------

    def on_message(self, source: str, message: TraceMessage) -> list[TraceEffect]:
        """Forward a request, or gather an answer."""
        match message:
            case TraceRequest(publisher, first_sequence):
                return self._request(publisher, self._sessions[publisher, first_sequence])
            case TraceAnswer(publisher, first_sequence, _, reports):
                session = self._sessions[publisher, first_sequence]
                session.waiting.discard(source)
                session.reports += reports
                kept_bytes = sum(report.size_bytes(self._threshold) for report in reports)
                self.memory.add(kept_bytes)
                return [] if session.waiting else self._answer(publisher, session)
        raise ValueError(f"{self.broker} got {type(message).__name__} from {source}: GRAPE has no such message")

    def _request(self, publisher: str, session: TraceSession) -> list[TraceEffect]:
        """Ask all neighbours that got a notification of the session; answer at once if none did."""
        session.waiting = set(session.peers)
        if not session.waiting:
            return self._answer(publisher, session)
        message = TraceRequest(publisher, session.first_sequence)
        return [SendTrace(peer, message) for peer in sorted(session.peers)]

    def _answer(self, publisher: str, session: TraceSession) -> list[TraceEffect]:
        """Send all reports upstream, or hand them over for a decision at home, and forget the session."""
        del self._sessions[publisher, session.first_sequence]
        kept_bytes = sum(report.size_bytes(self._threshold) for report in session.reports)
        self.memory.add(-self._session_bytes - ID_BYTES * len(session.peers) - kept_bytes)
        seen = self._monitor()
        own = BrokerReport(
            self.broker,
            seen.neighbours,
            session.bits,
            session.deliveries,
            seen.queueing_ms,
            seen.matching_ms,
            seen.output_ms,
        )
        reports = (own, *sorted(session.reports, key=lambda report: report.broker))
        if session.source is None:
            return [Gathered(publisher, self._threshold, reports)]
        return [SendTrace(session.source, TraceAnswer(publisher, session.first_sequence, self._threshold, reports))]

    # --- after the decision ------------------------------------------------------------------------------------------

    def resume(self, publisher: str) -> None:
        """Begin the next session with the next notification."""
        source = self._sources[publisher]
        source.is_held = False
        source.traced_count = 0

    def forget(self, publisher: str) -> None:
        """Forget that this broker was the publisher's home."""
        self._sources.pop(publisher, None)
