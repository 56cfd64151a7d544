"""The topic of alerts: loaded whole at the start, then written in transactions.

In: batches of alerts, events and dead letters, with the positions up to which the inputs were read. Out: all of it
stored, or nothing. So a restarted stage goes on with just the records whose outcome is not stored. A second stage with
the same namespace shuts the first one out: Kafka lets only the newest producer of a transactional id write.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec
import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from alerts.alert_desk import DeskBatch
from infra.dead_letters import addressed
from infra.kafka_access import KafkaAccess
from infra.kafka_clients import close_producer, open_consumer, open_transactional_producer
from infra.stack_error import StackError
from schemas.alert import Alert
from schemas.codec import UndecodableRecordError, decode, encode
from schemas.topics import ALERTS, EVENTS, topic_name

log = structlog.get_logger(__name__)

CALL_S = 1.0  # Longest wait for one answer, so that the loop stays alive while Kafka is away.
LOAD_S = 10.0  # Longest reading of the topic before the attempt is given up and made again.
TRANSACTION_MS = 15_000  # Readers of events see nothing newer than an open transaction: a killed one ends by itself.
RECORDS_PER_POLL_MAX = 5000
FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


class AlertStoreTakenError(StackError):
    """Another alert stage of the same namespace took over."""


class AlertStoreLostError(RuntimeError):
    """This writer can store nothing more, and nobody knows whether its last batch was stored: begin with a new one."""


class AlertStore:
    """One writer of the alerts of a namespace."""

    def __init__(self, kafka: KafkaAccess, namespace: str) -> None:
        self._kafka, self._namespace = kafka, namespace
        self._topic = topic_name(ALERTS, namespace)
        self._producer = open_transactional_producer(kafka, f"{self._topic}-writer", TRANSACTION_MS, {"linger.ms": 0})
        self._is_open = False
        self._is_filled = False
        self._must_abort = False
        self._is_initialised = False
        self._stored_s = time.monotonic()
        self.failures = 0
        self.undecodable = 0

    def begin(self) -> bool:
        """Shut out an earlier writer and end what it left open; False while Kafka does not answer."""
        if not self._is_initialised:
            try:
                self._producer.init_transactions(CALL_S)
            except KafkaException as error:
                self._on_failure(error)
                return False
            self._is_initialised = True
            self._stored_s = time.monotonic()
        return True

    def load(self) -> list[Alert] | None:
        """Return the newest record of each alert from the whole topic; None when it cannot be read to its end."""
        consumer = open_consumer(self._kafka, {"enable.partition.eof": True})
        try:
            return self._read_all(consumer)
        except KafkaException as error:
            self._on_failure(error)
            return None
        finally:
            consumer.close()

    def commit(self, batch: DeskBatch, positions: Sequence[TopicPartition], group: Any) -> bool:
        """Store a batch and positions whole; False when that has to be tried again with the same or a larger batch.

        Raises AlertStoreTakenError when another stage took over, AlertStoreLostError when Kafka forgot this writer.
        """
        try:
            if self._must_abort:
                self._producer.abort_transaction(CALL_S)
                self._is_open = self._is_filled = self._must_abort = False
            if not self._is_open:
                self._producer.begin_transaction()
                self._is_open = True
            if not self._is_filled:
                self._fill(batch, positions, group)
                self._is_filled = True
            self._producer.commit_transaction(CALL_S)
        except BufferError as error:
            self._must_abort = True
            self._count_failure(str(error))
            return False
        except KafkaException as error:
            self._on_failure(error)
            return False
        self._is_open = self._is_filled = False
        self._stored_s = time.monotonic()
        return True

    @property
    def is_committing(self) -> bool:
        """Tell whether a batch was handed over that is not known to be stored: it must not grow meanwhile."""
        return self._is_filled

    def close(self) -> None:
        """Give up what is not stored; the next stage begins behind what is."""
        try:
            if self._is_open:
                self._producer.abort_transaction(CALL_S)
        except KafkaException as error:
            log.debug("alerts_transaction_left_open", reason=str(error))
        close_producer(self._producer, 0.0)

    def _fill(self, batch: DeskBatch, positions: Sequence[TopicPartition], group: Any) -> None:
        for alert in batch.alerts.values():
            self._produce(self._topic, alert.key, alert)
        for key in batch.forgotten:
            self._producer.produce(self._topic, key=key.encode(), value=None)
        for event in batch.events:
            self._produce(topic_name(EVENTS, self._namespace), event.subject, event)
        for letter in batch.letters:
            self._produce(*addressed(letter, self._namespace))
        if positions:
            self._producer.send_offsets_to_transaction(list(positions), group, CALL_S)

    def _produce(self, topic: str, key: str, record: msgspec.Struct) -> None:
        self._producer.produce(topic, key=key.encode(), value=encode(record))

    def _on_failure(self, error: KafkaException) -> None:
        """Tell it, and choose the way on: again, abort, or give up."""
        fault: KafkaError = error.args[0]
        self._count_failure(fault.str())
        if fault.fatal():
            was_away = time.monotonic() - self._stored_s > TRANSACTION_MS / 1000
            if fault.code() not in FENCED or was_away:  # After so long Kafka itself gives up an open transaction.
                raise AlertStoreLostError(fault.str()) from error
            raise AlertStoreTakenError(
                f"Another alert stage took over the alerts of {self._namespace} ({fault.str()}): run one only, "
                "it goes on where this one stopped."
            ) from error
        # A commit that was not answered is asked for again; of a batch that was only half handed over nothing counts.
        is_commit_open = self._is_filled and fault.retriable() and not fault.txn_requires_abort()
        self._must_abort = self._is_open and not is_commit_open

    def _count_failure(self, reason: str) -> None:
        self.failures += 1
        if self.failures & (self.failures - 1) == 0:  # At 1, 2, 4, 8 ...: an outage must not flood the log.
            log.warning("alerts_not_stored", reason=reason, count=self.failures)

    def _read_all(self, consumer: Consumer) -> list[Alert] | None:
        found = consumer.list_topics(self._topic, timeout=CALL_S).topics[self._topic]
        if found.error is not None:
            raise KafkaException(found.error)
        unread = set(found.partitions)
        consumer.assign([TopicPartition(self._topic, number, OFFSET_BEGINNING) for number in unread])
        alerts: dict[str, Alert] = {}
        give_up_s = time.monotonic() + LOAD_S
        while unread and time.monotonic() < give_up_s:
            for message in consumer.consume(RECORDS_PER_POLL_MAX, timeout=0.1):
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        unread.discard(message.partition())
                    continue
                key, value = (message.key() or b"").decode(errors="replace"), message.value()
                if value is None:
                    alerts.pop(key, None)
                    continue
                try:
                    alerts[key] = decode(value, Alert)
                except UndecodableRecordError as fault:
                    self.undecodable += 1
                    log.warning("alert_not_readable", key=key, offset=message.offset(), reason=str(fault))
        return None if unread else list(alerts.values())
