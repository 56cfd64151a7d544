"""Follow compacted topics without waiting, and prove that their records arrive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic

import structlog
from confluent_kafka import OFFSET_BEGINNING

from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.prove_reading import ProvedReader
from regraft.schemas.codec import Record, UndecodableRecordError, decode

log = structlog.get_logger(__name__)


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
