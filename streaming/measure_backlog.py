"""How many telemetry records wait to be read, and whether the topic is still the same, asked before a query starts.

In: the next offsets of the last run. Out: a count, None when Kafka does not say.
"""

from collections.abc import Mapping

import structlog
from confluent_kafka import KafkaException, TopicPartition

from infra.kafka_access import KafkaAccess
from infra.kafka_clients import leave_to_caller, open_consumer
from streaming.refuse_batches import known_brokers
from streaming.streaming_settings import StreamingSettings

ASK_TIMEOUT_S = 10.0

log = structlog.get_logger(__name__)


def batch_records_max(settings: StreamingSettings) -> int:
    """Return how many records one micro-batch may hold; a job that is further behind catches up.

    Raises InventoryError.
    """
    brokers = () if settings.inventory_path is None else known_brokers(settings.inventory_path)
    return max(settings.records_per_trigger_max, len(brokers) * settings.records_per_broker_max)


def records_behind(kafka: KafkaAccess, topic: str, next_offsets: Mapping[str, int]) -> int | None:
    """Return how many records the topic holds from ``next_offsets`` (partition -> offset) on.

    A partition without an offset counts from its beginning. Takes at most 10 s for each partition.
    """
    ends = _ends(kafka, topic)
    if ends is None:
        return None
    return sum(max(high - max(next_offsets.get(name, low), low), 0) for name, (low, high) in ends.items())


def is_topic_anew(kafka: KafkaAccess, topic: str, next_offsets: Mapping[str, int]) -> bool:
    """Tell whether the topic ends before what was read of it: it was deleted and made again.

    One that is not there, or of which Kafka does not say, is not known to be so.
    """
    ends = _ends(kafka, topic) if next_offsets else None
    return any(high < next_offsets.get(name, 0) for name, (_, high) in (ends or {}).items())


def _ends(kafka: KafkaAccess, topic: str) -> dict[str, tuple[int, int]] | None:
    """Return the first offset of each partition and the one after its last, None when Kafka does not say."""
    consumer = open_consumer(kafka, on_error=leave_to_caller)
    try:
        metadata = consumer.list_topics(topic, timeout=ASK_TIMEOUT_S).topics[topic]
        places = {str(partition): TopicPartition(topic, partition) for partition in metadata.partitions}
        asked = {name: consumer.get_watermark_offsets(at, timeout=ASK_TIMEOUT_S) for name, at in places.items()}
        return {name: (low, high) for name, (low, high) in asked.items()}
    except KafkaException as error:
        log.warning("backlog_unknown", topic=topic, reason=error.args[0].str())
        return None
    finally:
        consumer.close()
