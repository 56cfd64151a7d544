"""Measure how many telemetry records wait to be read, and whether topics were recreated, before a query starts."""

from collections.abc import Iterable

import structlog
from confluent_kafka import KafkaException, TopicPartition

from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import leave_to_caller, open_consumer
from regraft.streaming.source_topics import Offsets, Place, known_brokers, topics_of
from regraft.streaming.streaming_settings import StreamingSettings

ASK_TIMEOUT_S = 10.0

log = structlog.get_logger(__name__)


def batch_records_max(settings: StreamingSettings) -> int:
    """Return how many records one micro-batch may hold; a job that is further behind uses the catch-up grace.

    Raises InventoryError.
    """
    brokers = known_brokers(settings)
    return max(settings.records_per_trigger_max, len(brokers) * settings.records_per_broker_max)


def records_behind(kafka: KafkaAccess, topics: Iterable[str], next_offsets: Offsets) -> int | None:
    """Return how many records the topics hold from ``next_offsets`` on, None if Kafka does not answer.

    A partition without an offset counts from its beginning. Takes at most 10 s per partition.
    """
    ends = _ends(kafka, topics)
    if ends is None:
        return None
    return sum(max(high - max(next_offsets.get(place, low), low), 0) for place, (low, high) in ends.items())


def recreated_topics(kafka: KafkaAccess, topics: Iterable[str], next_offsets: Offsets) -> list[str]:
    """Return the topics that end before the next offset to read: they were deleted and recreated.

    Partitions that are not in ``next_offsets``, or that Kafka does not report, do not count.
    """
    ends = _ends(kafka, topics) if next_offsets else None
    return topics_of(place for place, (_, high) in (ends or {}).items() if high < next_offsets.get(place, 0))


def _ends(kafka: KafkaAccess, topics: Iterable[str]) -> dict[Place, tuple[int, int]] | None:
    """Return each partition's first offset and the one after its last, None if Kafka does not answer."""
    consumer = open_consumer(kafka, on_error=leave_to_caller)
    try:
        places = []
        for topic in topics:
            metadata = consumer.list_topics(topic, timeout=ASK_TIMEOUT_S).topics[topic]
            places += [(topic, partition) for partition in metadata.partitions]
        asked = {at: consumer.get_watermark_offsets(TopicPartition(*at), timeout=ASK_TIMEOUT_S) for at in places}
        return {at: (low, high) for at, (low, high) in asked.items()}
    except KafkaException as error:
        log.warning("backlog_unknown", reason=error.args[0].str())
        return None
    finally:
        consumer.close()
