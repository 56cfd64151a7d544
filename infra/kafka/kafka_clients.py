"""Build and close Kafka clients, and log their errors: all producers, consumers and admin clients are made here.

In: a KafkaAccess, and librdkafka's options that are specific to a client. Out: clients of confluent_kafka. What they
send and read belongs to their users.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from regraft.infra.kafka.kafka_access import KafkaAccess

log = structlog.get_logger(__name__)

Option = str | int | float | bool
OnError = Callable[[KafkaError], None]

# The longest value that is sent: Kafka and its client take 1,000,000 bytes by default, with the key and some framing.
SENT_BYTES_MAX = 950_000
PROBE_TIMEOUT_S = 1.0
LOG_PAUSE_S = 10.0  # The shortest pause between log lines about an unavailable Kafka.
COMMON: Mapping[str, Option] = {
    "log_level": 0,  # librdkafka's log lines are not JSON and many; errors arrive by callback.
    "reconnect.backoff.max.ms": 1_000,  # Reconnect soon after an outage.
}


def leave_to_caller(_: KafkaError) -> None:
    """Ignore an error of a client, because the affected call raises its own error, which its caller reports."""


def open_producer(
    kafka: KafkaAccess, options: Mapping[str, Option] | None = None, *, on_error: OnError | None = None
) -> Producer:
    """Return an idempotent producer (acks=all): its retries neither repeat nor reorder records.

    ``on_error`` gets the client's errors when its user calls poll or flush; without it they are logged.
    """
    return Producer(_configuration(kafka, {"enable.idempotence": True}, options, on_error))


def open_transactional_producer(
    kafka: KafkaAccess,
    transactional_id: str,
    timeout_ms: int,
    options: Mapping[str, Option] | None = None,
) -> Producer:
    """Return a producer for transactions, which Kafka aborts after ``timeout_ms``; a later one of its id fences it."""
    transactional: dict[str, Option] = {"transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms}
    return open_producer(kafka, {**(options or {}), **transactional})


def open_consumer(
    kafka: KafkaAccess,
    options: Mapping[str, Option] | None = None,
    *,
    group: str | None = None,
    on_error: OnError | None = None,
) -> Consumer:
    """Return a consumer that does not commit by itself, starts at the earliest record, and reads committed data only.

    ``group``: for users that store positions in Kafka; others assign partitions by hand, and the client just needs a
    name. ``on_error`` gets the client's errors when its user reads; without it they are logged.
    """
    usual: dict[str, Option] = {
        "group.id": group or kafka.client_id,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",  # Skip records of aborted transactions.
    }
    return Consumer(_configuration(kafka, usual, options, on_error))


def open_admin(kafka: KafkaAccess, timeout_s: float, on_error: OnError = leave_to_caller) -> AdminClient:
    """Return an admin client, whose calls raise an error after at most ``timeout_s``."""
    options = {"socket.timeout.ms": int(timeout_s * 1_000)}
    return AdminClient(_configuration(kafka, {}, options, on_error))


def close_producer(producer: Producer, wait_s_max: float) -> int:
    """Wait at most ``wait_s_max`` for pending records, drop the rest, and return how many were dropped.

    Drops are logged, and each record's on_delivery is called.
    """
    try:
        producer.flush(wait_s_max)
        producer.poll(0)  # Errors wait in the same queue, and would be counted.
    except KafkaException as error:  # A fatal error, already reported: the producer cannot send any more.
        log.debug("producer_closed_broken", reason=error.args[0].str())
    left = len(producer)
    if left:
        producer.purge()
        producer.poll(0)
        log.warning("records_not_delivered", count=left, waited_s=wait_s_max)
    return left


def consume(consumer: Consumer, records_max: int, client_id: str, wait_s: float = 0.0) -> list[Message]:
    """Return the messages that have arrived, some of which may be errors; log a failed read, return none."""
    try:
        return consumer.consume(records_max, timeout=wait_s)
    except KafkaException as error:
        report_error(client_id, error.args[0])
        return []


def report_error(client_id: str, error: KafkaError) -> None:
    """Log a client's error, at most one per LOG_PAUSE_S: all clients of a stage report the same outage."""
    _reporter(client_id)(error)


@cache
def _reporter(client_id: str) -> OnError:
    silent_until_s = 0.0

    def report(error: KafkaError) -> None:
        nonlocal silent_until_s
        if time.monotonic() >= silent_until_s:
            silent_until_s = time.monotonic() + LOG_PAUSE_S
            log.warning("kafka_client_error", client=client_id, code=error.name(), reason=error.str())

    return report


def _configuration(
    kafka: KafkaAccess,
    usual: Mapping[str, Option],
    options: Mapping[str, Option] | None,
    on_error: OnError | None,
) -> dict[str, Any]:
    """Return all options of a client: ``options`` override ``usual`` ones, those of the connection override both."""
    error_callback = on_error or partial(report_error, kafka.client_id)
    return {**COMMON, **usual, **(options or {}), **kafka.client_options(), "error_cb": error_callback}


def is_kafka_ready(kafka: KafkaAccess, timeout_s: float = PROBE_TIMEOUT_S) -> bool:
    """Return True if the cluster answers and has a broker that serves clients."""
    try:
        return bool(open_admin(kafka, timeout_s).list_topics(timeout=timeout_s).brokers)
    except KafkaException:
        return False
