"""How many telemetry records wait to be read, asked of Kafka before a query starts.

In: the next offsets of the last run. Out: a count, None when Kafka does not say.
"""

from collections.abc import Mapping

import structlog
from confluent_kafka import KafkaException, TopicPartition

from infra.kafka_access import KafkaAccess
from infra.kafka_clients import leave_to_caller, open_consumer

ASK_TIMEOUT_S = 10.0

log = structlog.get_logger(__name__)


def records_behind(kafka: KafkaAccess, topic: str, next_offsets: Mapping[str, int]) -> int | None:
    """Return how many records the topic holds from ``next_offsets`` (partition -> offset) on.

    A partition without an offset counts from its beginning. Takes at most 10 s for each partition.
    """
    consumer = open_consumer(kafka, on_error=leave_to_caller)
    try:
        metadata = consumer.list_topics(topic, timeout=ASK_TIMEOUT_S).topics[topic]
        behind = 0
        for partition in metadata.partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=ASK_TIMEOUT_S)
            behind += max(high - max(next_offsets.get(str(partition), low), low), 0)
        return behind
    except KafkaException as error:
        log.warning("backlog_unknown", topic=topic, reason=error.args[0].str())
        return None
    finally:
        consumer.close()
