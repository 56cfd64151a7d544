"""Follow a compacted topic of one partition from its beginning, without waiting, and prove that its records arrive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic

import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import consume, open_consumer, report_error
from regraft.infra.kafka.prove_reading import ReadingProof
from regraft.schemas.codec import Record, UndecodableRecordError, decode

CALL_S = 2.0  # Longest wait for one answer from Kafka.

log = structlog.get_logger(__name__)


class TopicTail(Generic[Record]):
    """A reading position in one partition; ``records_per_poll_max`` bounds one :meth:`poll`."""

    def __init__(self, kafka: KafkaAccess, name: str, record_type: type[Record], records_per_poll_max: int) -> None:
        self._kafka, self._name, self._record_type = kafka, name, record_type
        self._records_max, self._reached = records_per_poll_max, 0
        self._consumer = self._open(OFFSET_BEGINNING)
        self._proof = ReadingProof(self._consumer, CALL_S)

    def _open(self, offset: int) -> Consumer:
        consumer = open_consumer(self._kafka, {"enable.partition.eof": True})
        consumer.assign([TopicPartition(self._name, 0, offset)])
        return consumer

    def poll(self) -> Iterator[tuple[str, Record | None]]:
        """Yield keys and records that have arrived since; None means deleted, or unreadable, which is logged."""
        for message in consume(self._consumer, self._records_max, self._kafka.client_id):
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                report_error(self._kafka.client_id, error)
                continue
            self._reached = max((message.offset() or 0) + (error is None), self._reached)
            if error is not None:
                continue
            try:
                record = None if message.value() is None else decode(message.value(), self._record_type)
            except UndecodableRecordError as refusal:
                log.warning("record_skipped", topic=message.topic(), offset=message.offset(), reason=str(refusal))
                record = None
            yield (message.key() or b"").decode(errors="replace"), record

    def prove(self) -> bool:
        """Ask Kafka where the topic ends; return False if records that it has do not arrive.

        A missing topic, or a Kafka that does not answer, shows nothing. Takes up to ``CALL_S``, so call it from another
        thread than the one that polls.
        """
        self._proof.ask({(self._name, 0): self._reached})
        return not self._proof.stalled

    @property
    def is_stalled(self) -> bool:
        """Return True if records that Kafka has have not arrived with this consumer for some questions."""
        return self._proof.needs_another_consumer

    def reopen(self) -> None:
        """Read on with another consumer, from where this one got to."""
        self._consumer.close()
        self._consumer = self._open(self._reached)
        self._proof.read_with(self._consumer)

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()
