"""Write records to Kafka without blocking: while it is unavailable they wait in a bounded buffer.

Do not use it for records that must be stored before something else happens.
"""

from __future__ import annotations

from collections import Counter

import msgspec
import structlog
from confluent_kafka import KafkaError, KafkaException, Message

from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import close_producer, open_producer
from regraft.infra.process.handle_each import is_logged
from regraft.schemas.codec import UnencodableRecordError, encode

log = structlog.get_logger(__name__)

BUFFER_KBYTES_MAX = 256 * 1024


class RecordWriter:
    """One idempotent producer with a bounded buffer.

    ``written`` counts records that Kafka acknowledged, ``lost`` those that were not delivered within ``outage_s_max``,
    for which the buffer was full or which readers would refuse, both by topic; ``waiting_count`` counts those pending.
    """

    def __init__(self, kafka: KafkaAccess, *, outage_s_max: float, buffer_records_max: int, linger_ms: float) -> None:
        self._producer = open_producer(
            kafka,
            {
                "message.timeout.ms": int(outage_s_max * 1_000),  # Retries end then.
                "compression.type": "lz4",
                "linger.ms": linger_ms,
                "queue.buffering.max.messages": buffer_records_max,
                "queue.buffering.max.kbytes": BUFFER_KBYTES_MAX,
                "topic.metadata.refresh.interval.ms": 10_000,
            },
        )
        self.lost: Counter[str] = Counter()
        self.written: Counter[str] = Counter()
        self.waiting_count = 0

    def write(self, topic: str, key: str, record: msgspec.Struct | None) -> None:
        """Put a record, or a tombstone for None, into the buffer."""
        try:
            value = None if record is None else encode(record)
            self._producer.produce(topic, key=key.encode(), value=value, on_delivery=self._on_delivery)
            self.waiting_count += 1
        except (BufferError, KafkaException, UnencodableRecordError) as error:
            self._count_loss(topic, str(error))

    def serve(self) -> None:
        """Process acknowledgements; call it often."""
        self._producer.poll(0)

    def flush(self, wait_s_max: float) -> int:
        """Wait at most ``wait_s_max`` for all acknowledgements; return how many are still missing."""
        return int(self._producer.flush(wait_s_max))

    def close(self, wait_s_max: float = 0.0) -> None:
        """Wait at most ``wait_s_max`` for pending records; those not sent by then are counted as lost."""
        close_producer(self._producer, wait_s_max)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        topic = message.topic() or ""
        self.waiting_count -= 1
        if error is None:
            self.written[topic] += 1
        else:
            self._count_loss(topic, error.str())

    def _count_loss(self, topic: str, reason: str) -> None:
        self.lost[topic] += 1
        count = self.lost[topic]
        if is_logged(count):
            log.warning("record_not_sent", topic=topic, reason=reason, count=count)
