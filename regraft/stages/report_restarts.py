"""Report each restart of a service to Kafka as an event.

Nothing else reports a stage that restarts within seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from confluent_kafka import KafkaError, KafkaException, Message

from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import close_producer, leave_to_caller, open_producer
from regraft.infra.local.service import ServiceEvent, ServiceEventKind
from regraft.schemas.codec import encode
from regraft.schemas.event import AdaptationEvent, EventKind, Severity
from regraft.schemas.topics import EVENTS, topic_name

WAITING_MAX = 1_000  # Events that wait for Kafka, which may be restarting; further ones are only logged.
CLOSE_S_MAX = 5.0

log = structlog.get_logger(__name__)


class RestartReporter:
    """Writes an event for each service that restarts; ``take`` never blocks."""

    def __init__(self, kafka: KafkaAccess, namespace: str) -> None:
        self._topic = topic_name(EVENTS, namespace)
        self._producer = open_producer(kafka, {"queue.buffering.max.messages": WAITING_MAX}, on_error=leave_to_caller)
        self._deaths: dict[str, str] = {}

    def take(self, event: ServiceEvent) -> None:
        """Handle one of the supervisor's events."""
        if event.kind is ServiceEventKind.DIED:
            self._deaths[event.service] = event.failure
        if event.kind is not ServiceEventKind.RESTARTED:
            return
        restart = restart_event(event, self._deaths.pop(event.service, ""))
        try:
            self._producer.produce(self._topic, encode(restart), restart.subject.encode(), on_delivery=_log_lost)
            self._producer.poll(0)
        except (BufferError, KafkaException) as error:
            log.warning("restart_not_reported", service=event.service, reason=str(error))

    def close(self) -> None:
        """Wait at most CLOSE_S_MAX for pending events to reach Kafka, and close the connection."""
        close_producer(self._producer, CLOSE_S_MAX)


def restart_event(event: ServiceEvent, death: str) -> AdaptationEvent:
    """Return the event about a restart; ``death`` is how the process ended, "" if it hung and was stopped."""
    why = death or f"it was not ready in time: see logs/{event.service}.log"
    text = f"{event.service}, restart {event.restarts} of this run: {why}"
    time_ms = int(event.time_s * 1000)
    return AdaptationEvent(event.service, EventKind.SERVICE_RESTARTED, Severity.WARNING, time_ms, text)


@contextmanager
def report_restarts(kafka: KafkaAccess, namespace: str) -> Iterator[RestartReporter]:
    """Yield a reporter that is closed at the end."""
    reporter = RestartReporter(kafka, namespace)
    try:
        yield reporter
    finally:
        reporter.close()


def _log_lost(error: KafkaError | None, _: Message) -> None:
    if error is not None:
        log.warning("restart_not_reported", reason=error.str())
