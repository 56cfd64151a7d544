"""The topic of alerts: loaded in full at the start, then written in transactions.

So a restarted stage resumes with exactly the records whose outcome is not stored. A second stage in the same namespace
fences off the first: Kafka accepts writes only from the newest producer of a transactional id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import structlog
from confluent_kafka import KafkaException, Producer, TopicPartition

from regraft.alerts.alert_desk import DeskBatch
from regraft.infra.kafka.dead_letters import addressed
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import SENT_BYTES_MAX
from regraft.infra.kafka.read_messages import read_to_end
from regraft.infra.kafka.transaction_writer import CALL_S, TransactionWriter, WriterLostError
from regraft.infra.process.stack_error import StackError
from regraft.schemas.alert import Alert
from regraft.schemas.codec import UndecodableRecordError, decode, encode
from regraft.schemas.topics import ALERTS, EVENTS, topic_name

log = structlog.get_logger(__name__)

KEY_CHARACTERS_MAX = 200  # Of a key in the log.


class AlertStoreTakenError(StackError):
    """Another alert stage in the same namespace took over."""


class AlertStore:
    """The only writer of a namespace's alerts."""

    def __init__(self, kafka: KafkaAccess, namespace: str) -> None:
        self._kafka, self._namespace = kafka, namespace
        self._topic = topic_name(ALERTS, namespace)
        self._writer = TransactionWriter(kafka, f"{self._topic}-writer")
        self._unread_count = 0
        self.undecodable = 0
        self.unstorable = 0

    @property
    def failures(self) -> int:
        """The number of failed reads and writes."""
        return self._writer.failures + self._unread_count

    def begin(self) -> bool:
        """Fence off an earlier writer and abort its open transaction; return False while Kafka does not answer.

        Raises like :meth:`commit`.
        """
        try:
            return self._writer.begin()
        except WriterLostError as error:
            raise self._explained(error) from None

    def load(self) -> list[Alert] | None:
        """Return the newest record of each alert, or None if the topic cannot be read to its end."""
        try:
            messages = read_to_end(self._kafka, self._topic)
        except KafkaException as error:
            log.warning("stored_alerts_unreadable", reason=str(error))
            messages = None
        if messages is None:
            self._unread_count += 1
            return None
        alerts: dict[str, Alert] = {}
        for message in messages:
            key, value = (message.key() or b"").decode(errors="replace"), message.value()
            if value is None:
                alerts.pop(key, None)
                continue
            try:
                alerts[key] = decode(value, Alert)
            except UndecodableRecordError as refusal:
                self.undecodable += 1
                log.warning("stored_alert_unreadable", key=key, offset=message.offset(), reason=str(refusal))
        return list(alerts.values())

    def commit(self, batch: DeskBatch, positions: Sequence[TopicPartition], group: Any) -> bool:
        """Store a batch and positions atomically; return False if it must be retried with the same or a larger batch.

        Raises AlertStoreTakenError if another stage took over, WriterLostError if Kafka forgot this writer.
        """
        try:
            return self._writer.commit(lambda producer: self._fill(producer, batch, positions, group))
        except WriterLostError as error:
            raise self._explained(error) from None

    @property
    def is_committing(self) -> bool:
        """Return True if a batch is being stored and its outcome is unknown: it must not grow meanwhile."""
        return self._writer.is_committing

    def close(self) -> None:
        """Drop what is not stored; the next stage resumes after what is."""
        self._writer.close()

    def _explained(self, error: WriterLostError) -> Exception:
        if not error.is_taken_over:
            return error
        return AlertStoreTakenError(
            f"Another alert stage took over the alerts of {self._namespace} ({error}): run only one; it "
            "resumes where this one stopped."
        )

    def _fill(self, producer: Producer, batch: DeskBatch, positions: Sequence[TopicPartition], group: Any) -> None:
        def produce(topic: str, key: str, record: msgspec.Struct) -> None:
            """Add a record; leave out one that Kafka or its readers would refuse: the batch would never be stored."""
            try:
                value = encode(record)
                if len(value) > SENT_BYTES_MAX:
                    raise ValueError(f"it has {len(value)} bytes, but at most {SENT_BYTES_MAX} are sent")
            except ValueError as refusal:
                self.unstorable += 1
                log.error("record_not_stored", topic=topic, key=key[:KEY_CHARACTERS_MAX], reason=str(refusal))
                return
            producer.produce(topic, key=key.encode(), value=value)

        for alert in batch.alerts.values():
            produce(self._topic, alert.key, alert)
        for key in batch.forgotten:
            producer.produce(self._topic, key=key.encode(), value=None)
        for event in batch.events:
            produce(topic_name(EVENTS, self._namespace), event.subject, event)
        for letter in batch.letters:
            produce(*addressed(letter, self._namespace))
        if positions:
            producer.send_offsets_to_transaction(list(positions), group, CALL_S)
