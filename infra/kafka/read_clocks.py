"""Read the offsets of brokers' clocks to Kafka's from the newest marker of a window.

In: access to Kafka, a namespace. Out: offsets by broker. Reporting them does not belong here.
"""

from __future__ import annotations

from confluent_kafka import KafkaException, TopicPartition

from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import leave_to_caller, open_consumer
from regraft.schemas.clock_offsets import clock_offsets_ms
from regraft.schemas.codec import UndecodableRecordError, decode
from regraft.schemas.state import WindowClosed
from regraft.schemas.topics import WINDOWS, topic_name

ANSWER_S_MAX = 5.0


def read_clock_offsets_ms(kafka: KafkaAccess, namespace: str) -> dict[str, int] | None:
    """Return the offsets of the newest window, in ms by broker; None if there is no window or Kafka does not answer."""
    consumer = open_consumer(kafka, on_error=leave_to_caller)
    try:
        place = TopicPartition(topic_name(WINDOWS, namespace), 0)
        low, high = consumer.get_watermark_offsets(place, timeout=ANSWER_S_MAX)
        if high <= low:
            return None
        consumer.assign([TopicPartition(place.topic, place.partition, high - 1)])
        message = consumer.poll(ANSWER_S_MAX)
        value = None if message is None or message.error() is not None else message.value()
        return None if value is None else clock_offsets_ms(decode(value, WindowClosed).clocks)
    except (KafkaException, UndecodableRecordError):
        return None
    finally:
        consumer.close()
