"""Read from Kafka how much of what is delivered the controller asks brokers to report in full.

In: the compacted topic of sampling. Out: the newest request. What a broker makes of it belongs to the brokers.
"""

from __future__ import annotations

import structlog
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from regraft.infra.kafka_access import KafkaAccess
from regraft.infra.kafka_clients import open_consumer, report_error
from regraft.schemas.codec import UndecodableRecordError, decode
from regraft.schemas.sample_request import SampleRequest
from regraft.schemas.topics import SAMPLING, topic_name

RECORDS_PER_POLL_MAX = 100

log = structlog.get_logger(__name__)


class SampleReader:
    """The topic of sampling from its beginning on; of a leader's request one of an earlier term changes nothing."""

    def __init__(self, kafka: KafkaAccess, namespace: str) -> None:
        self._client_id = kafka.client_id
        self._consumer = open_consumer(kafka)
        self._consumer.assign([TopicPartition(topic_name(SAMPLING, namespace), 0, OFFSET_BEGINNING)])
        self._newest: SampleRequest | None = None

    def poll(self) -> SampleRequest | None:
        """Take in what has come since, without waiting; return the newest request, None where none is known."""
        for message in self._consumer.consume(RECORDS_PER_POLL_MAX, timeout=0):
            if (error := message.error()) is not None:
                report_error(self._client_id, error)
                continue
            try:
                request = None if message.value() is None else decode(message.value(), SampleRequest)
            except UndecodableRecordError as fault:
                log.warning("record_skipped", topic=message.topic(), offset=message.offset(), reason=str(fault))
                continue
            if request is not None and (self._newest is None or request.term >= self._newest.term):
                self._newest = request
        return self._newest

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()
