"""Read from Kafka what share of deliveries the controller asks brokers to report in full.

Brokers apply it themselves.
"""

from __future__ import annotations

from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.producers.emulator.tail_topic import TopicTail
from regraft.schemas.sample_request import SampleRequest
from regraft.schemas.topics import SAMPLING, topic_name

RECORDS_PER_POLL_MAX = 100


class SampleReader:
    """The topic of sampling from its beginning; a request of an earlier term is ignored."""

    def __init__(self, kafka: KafkaAccess, namespace: str) -> None:
        self.tail = TopicTail(kafka, topic_name(SAMPLING, namespace), SampleRequest, RECORDS_PER_POLL_MAX)
        self._newest: SampleRequest | None = None

    def poll(self) -> SampleRequest | None:
        """Read new records without waiting; return the newest request, or None if there is none."""
        for _, request in self.tail.poll():
            if request is not None and (self._newest is None or request.term >= self._newest.term):
                self._newest = request
        return self._newest

    def close(self) -> None:
        """Close the connection."""
        self.tail.close()
