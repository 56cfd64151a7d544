"""Build, watch and close Kafka clients: all producers, consumers and admin clients of the product come from here.

In: a KafkaAccess and what is special about a client, as librdkafka's options. Out: clients of confluent_kafka. What
they send and read belongs to their users.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from regraft.infra.kafka_access import KafkaAccess

log = structlog.get_logger(__name__)

Option = str | int | float | bool
OnError = Callable[[KafkaError], None]

LOG_PAUSE_S = 10.0  # While Kafka is unavailable, a process logs it at most this often.
COMMON: Mapping[str, Option] = {
    "log_level": 0,  # librdkafka's own lines are not JSON, one for each refused connection: errors come by callback.
    "reconnect.backoff.max.ms": 1_000,  # After an outage nobody should wait longer than Kafka itself needs.
}


def leave_to_caller(_: KafkaError) -> None:
    """Drop an error of a client: the call that it affects ends with its own error, which is reported once."""


def open_producer(
    kafka: KafkaAccess, options: Mapping[str, Option] | None = None, *, on_error: OnError | None = None
) -> Producer:
    """Return an idempotent producer: acks=all, and waiting for Kafka neither repeats nor reorders records.

    ``on_error`` gets the client's errors when its user calls poll or flush; without it they are logged.
    """
    return Producer(_configuration(kafka, {"enable.idempotence": True}, options, on_error))


def open_transactional_producer(
    kafka: KafkaAccess,
    transactional_id: str,
    timeout_ms: int,
    options: Mapping[str, Option] | None = None,
    *,
    on_error: OnError | None = None,
) -> Producer:
    """Return a producer for transactions, which Kafka ends after ``timeout_ms``; a later one of the same id fences it.

    ``on_error`` as in :func:`open_producer`.
    """
    transactional: dict[str, Option] = {"transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms}
    return open_producer(kafka, {**(options or {}), **transactional}, on_error=on_error)


def open_consumer(
    kafka: KafkaAccess,
    options: Mapping[str, Option] | None = None,
    *,
    group: str | None = None,
    on_error: OnError | None = None,
) -> Consumer:
    """Return a consumer that commits nothing by itself, reads rather again than never, and only what is committed.

    ``group`` is named by who stores positions; others assign partitions by hand, and the client wants some name.
    ``on_error`` gets the client's errors when its user reads; without it they are logged.
    """
    usual: dict[str, Option] = {
        "group.id": group or kafka.client_id,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",  # What an aborted transaction held has never happened.
    }
    return Consumer(_configuration(kafka, usual, options, on_error))


def open_admin(kafka: KafkaAccess, timeout_s: float, on_error: OnError = leave_to_caller) -> AdminClient:
    """Return an admin client; each of its calls raises what went wrong, at most ``timeout_s`` later."""
    options = {"socket.timeout.ms": int(timeout_s * 1_000)}
    return AdminClient(_configuration(kafka, {}, options, on_error))


def close_producer(producer: Producer, wait_s_max: float) -> int:
    """Wait at most this long for pending records, give up the rest, and return how many that were.

    Giving up is logged, and each record's on_delivery is called.
    """
    try:
        producer.flush(wait_s_max)
    except KafkaException as error:  # A fatal one, reported before: such a producer never sends again.
        log.debug("producer_closed_broken", reason=error.args[0].str())
    left = len(producer)
    if left:
        producer.purge()
        producer.poll(0)
        log.warning("records_not_delivered", count=left, waited_s=wait_s_max)
    return left


def report_error(client_id: str, error: KafkaError) -> None:
    """Log an error of a client, at most one each LOG_PAUSE_S: all clients of a stage report the same outage."""
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
    """Return all options of a client; those of a call win over the usual ones, the connection over all."""
    error_callback = on_error or partial(report_error, kafka.client_id)
    return {**COMMON, **usual, **(options or {}), **kafka.client_options(), "error_cb": error_callback}
