"""Follow topics without waiting, and prove that their records arrive.

A consumer that gets nothing looks like one for which there is nothing, so a broker could lose its commands in silence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic

import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import OnError, Option, consume, open_consumer, report_error
from regraft.infra.kafka.prove_reading import Place, ReadingProof
from regraft.schemas.codec import Record, UndecodableRecordError, decode

CALL_S = 2.0  # Longest wait for one answer from Kafka.

log = structlog.get_logger(__name__)


class ProvedReader:
    """Reads partitions, each from an offset on; ``options`` are further ones of the consumer."""

    def __init__(self, kafka: KafkaAccess, options: Mapping[str, Option], on_error: OnError | None = None) -> None:
        self._kafka, self._options, self._on_kafka_error = kafka, {"enable.partition.eof": True, **options}, on_error
        self._reached: dict[Place, int] = {}  # The next offset of each partition, after transaction markers as well.
        self._consumer = self._open()
        self._proof = ReadingProof(self._consumer, CALL_S)

    def _open(self) -> Consumer:
        return open_consumer(self._kafka, self._options, on_error=self._on_kafka_error)

    def _assign(self) -> None:
        self._consumer.assign([TopicPartition(*place, offset) for place, offset in self._reached.items()])

    def _arrived(self, count_max: int) -> Iterator[Message]:
        """Yield the messages that have arrived."""
        for message in consume(self._consumer, count_max, self._kafka.client_id):
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                report_error(self._kafka.client_id, error)
                continue
            place, offset = (message.topic() or "", message.partition() or 0), message.offset() or 0
            self._reached[place] = max(offset + (error is None), self._reached.get(place, 0))
            if error is None:
                yield message

    def _is_answered(self) -> bool:
        return self._proof.ask({place: max(offset, 0) for place, offset in dict(self._reached).items()})

    def prove(self) -> bool:
        """Ask Kafka where the next partition ends; return False if records that it has do not arrive.

        A missing topic, or a Kafka that does not answer, shows nothing. Takes up to ``CALL_S``, so call it from another
        thread than the one that polls.
        """
        self._is_answered()
        return not self._proof.stalled

    @property
    def is_stalled(self) -> bool:
        """Return True if records that Kafka has have not arrived with this consumer for some questions."""
        return self._proof.needs_another_consumer

    def reopen(self) -> None:
        """Read on with another consumer, from where this one got to."""
        self._consumer.close()
        self._consumer = self._open()
        self._proof.read_with(self._consumer)
        self._assign()

    def close(self) -> None:
        """Stop reading."""
        self._consumer.close()


class TopicTail(ProvedReader, Generic[Record]):
    """A compacted topic of one partition, from its beginning; ``records_per_poll_max`` bounds one :meth:`poll`."""

    def __init__(self, kafka: KafkaAccess, name: str, record_type: type[Record], records_per_poll_max: int) -> None:
        super().__init__(kafka, {})
        self._record_type, self._records_max = record_type, records_per_poll_max
        self._reached = {(name, 0): OFFSET_BEGINNING}
        self._assign()

    def poll(self) -> Iterator[tuple[str, Record | None]]:
        """Yield keys and records that have arrived since; None means deleted, or unreadable, which is logged."""
        for message in self._arrived(self._records_max):
            try:
                record = None if message.value() is None else decode(message.value(), self._record_type)
            except UndecodableRecordError as refusal:
                log.warning("record_skipped", topic=message.topic(), offset=message.offset(), reason=str(refusal))
                record = None
            yield (message.key() or b"").decode(errors="replace"), record
