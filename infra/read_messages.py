"""Read messages of Kafka topics up to their present end, without a consumer group and without committing anything.

In: a way to Kafka and names of topics. Out: messages. What they hold and mean does not belong here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from infra.kafka_access import KafkaAccess
from infra.kafka_clients import open_consumer
from infra.stack_error import StackError
from schemas.topics import Topic, topic_name

RECORDS_PER_POLL_MAX = 5000
CALL_S = 10.0


class UnreadableTopicError(StackError):
    """Say which topic could not be read to its end, and how far it was read."""


def read_messages(kafka: KafkaAccess, names: Sequence[str], wait_s_max: float) -> Iterator[Message]:
    """Yield every message of the topics of these names, tombstones too, oldest first in each partition.

    Raises UnreadableTopicError when the end is not reached in time.
    """
    with closing(_consumer(kafka)) as consumer:
        unread = {(part.topic, part.partition) for part in _partitions(consumer, names)}
        consumer.assign([TopicPartition(name, number, OFFSET_BEGINNING) for name, number in sorted(unread)])
        deadline_s = time.monotonic() + wait_s_max
        count = 0
        while unread:
            if time.monotonic() > deadline_s:
                left = ", ".join(sorted({name for name, _ in unread}))
                raise UnreadableTopicError(
                    f"{left} could not be read to the end in {wait_s_max:g} s ({count} records came): "
                    "ask Kafka's log whether the broker is well."
                )
            for message in consumer.consume(RECORDS_PER_POLL_MAX, 0.1):
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        unread.discard((message.topic(), message.partition()))
                    continue
                count += 1
                yield message


def count_records(kafka: KafkaAccess, namespace: str, topic: Topic) -> int:
    """Return how many records a topic has ever held, by its offsets."""
    with closing(_consumer(kafka)) as consumer:
        parts = _partitions(consumer, [topic_name(topic, namespace)])
        return sum(int(consumer.get_watermark_offsets(part, timeout=CALL_S)[1]) for part in parts)


def _consumer(kafka: KafkaAccess) -> Consumer:
    return open_consumer(kafka, {"enable.partition.eof": True, "queued.max.messages.kbytes": 16_384})


def _partitions(consumer: Consumer, names: Sequence[str]) -> list[TopicPartition]:
    found = []
    for name in names:
        topic = consumer.list_topics(name, timeout=CALL_S).topics[name]
        if topic.error is not None:
            raise UnreadableTopicError(f"Topic {name} cannot be read ({topic.error.str()}): was it deleted?")
        found += [TopicPartition(name, number) for number in sorted(topic.partitions)]
    return found
