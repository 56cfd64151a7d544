"""Follow a compacted topic of one partition from its beginning, without waiting.

In: a topic and the type of its records. Out: key and record of what has arrived since. The meaning of a record belongs
to the reader.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic

import structlog
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from regraft.infra.kafka_access import KafkaAccess
from regraft.infra.kafka_clients import consume, open_consumer, report_error
from regraft.schemas.codec import Record, UndecodableRecordError, decode

log = structlog.get_logger(__name__)


class TopicTail(Generic[Record]):
    """A reading position in one partition; ``records_per_poll_max`` bounds one :meth:`poll`."""

    def __init__(self, kafka: KafkaAccess, name: str, record_type: type[Record], records_per_poll_max: int) -> None:
        self._client_id, self._record_type, self._records_max = kafka.client_id, record_type, records_per_poll_max
        self._consumer = open_consumer(kafka)
        self._consumer.assign([TopicPartition(name, 0, OFFSET_BEGINNING)])

    def poll(self) -> Iterator[tuple[str, Record | None]]:
        """Yield keys and records that have arrived since; None means deleted, or unreadable, which is logged."""
        for message in consume(self._consumer, self._records_max, self._client_id):
            if (error := message.error()) is not None:
                report_error(self._client_id, error)
                continue
            try:
                record = None if message.value() is None else decode(message.value(), self._record_type)
            except UndecodableRecordError as fault:
                log.warning("record_skipped", topic=message.topic(), offset=message.offset(), reason=str(fault))
                record = None
            yield (message.key() or b"").decode(errors="replace"), record

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()
