"""Read the records of whole Kafka topics, up to their present end, and the outcomes of orders, also of a new one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import structlog
from confluent_kafka import KafkaException, TopicPartition

from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import leave_to_caller, open_consumer
from regraft.infra.kafka.read_messages import read_messages
from regraft.schemas.audit import AuditEntry
from regraft.schemas.codec import UndecodableRecordError, decode
from regraft.schemas.topics import AUDIT, Topic, topic_name

log = structlog.get_logger(__name__)
READ_S_MAX = 60.0
CALL_S = 5.0


def read_whole(
    kafka: KafkaAccess, namespace: str, topics: Mapping[Topic, type[msgspec.Struct]], wait_s_max: float
) -> Iterator[Any]:
    """Yield every record of the topics, oldest first in each partition; records that do not decode are logged.

    Raises UnreadableTopicError if the end is not reached in time, because part of a topic would give wrong figures.
    """
    types = {topic_name(topic, namespace): record_type for topic, record_type in topics.items()}
    for message in read_messages(kafka, list(types), wait_s_max):
        if message.value() is None:
            continue  # a tombstone
        try:
            yield decode(message.value(), types[str(message.topic())])
        except UndecodableRecordError as error:
            log.warning("record_skipped", topic=message.topic(), offset=message.offset(), reason=str(error))


def read_audit(kafka: KafkaAccess, namespace: str) -> list[AuditEntry]:
    """Return all entries, oldest first and without duplicates. Raises StackError."""
    records = read_whole(kafka, namespace, {AUDIT: AuditEntry}, READ_S_MAX)
    return list({(entry.offset, entry.nonce, entry.outcome): entry for entry in records}.values())


class AuditTail:
    """The entries from now on; there are none if the topic cannot be read."""

    def __init__(self, kafka: KafkaAccess, namespace: str) -> None:
        self._consumer = open_consumer(kafka, {"fetch.wait.max.ms": 50}, on_error=leave_to_caller)
        self._is_reading = self._begin(topic_name(AUDIT, namespace))

    def first_about(self, nonce: str, wait_s_max: float) -> AuditEntry | None:
        """Return the first entry about the order with this nonce; None if none arrives in time."""
        deadline_s = time.monotonic() + wait_s_max
        while self._is_reading and time.monotonic() < deadline_s:
            message = self._consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            try:
                entry = decode(message.value(), AuditEntry)
            except UndecodableRecordError:
                continue
            if entry.nonce == nonce:
                return entry
        return None

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def _begin(self, topic: str) -> bool:
        try:
            partitions = self._consumer.list_topics(topic, timeout=CALL_S).topics[topic]
            if partitions.error is not None:
                return False
            parts = [TopicPartition(topic, number) for number in partitions.partitions]
            for part in parts:
                part.offset = self._consumer.get_watermark_offsets(part, timeout=CALL_S)[1]
            self._consumer.assign(parts)
        except KafkaException:
            return False  # Sending the order will report the failure.
        return True
