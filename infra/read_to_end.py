"""Read one Kafka topic from its beginning to its present end.

In: a topic. Out: its messages, tombstones too, or nothing where the end is not reached in time. What they hold belongs
to the readers.
"""

from __future__ import annotations

import time
from contextlib import closing

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Message, TopicPartition

from infra.kafka_access import KafkaAccess
from infra.kafka_clients import open_consumer

CALL_S = 1.0
READ_S = 10.0  # Longest reading before the attempt is given up.
RECORDS_PER_POLL_MAX = 5000


def read_to_end(kafka: KafkaAccess, topic: str) -> list[Message] | None:
    """Return all messages of a topic, those of a partition in their order; None when the end was not reached in time.

    The end is told by the reader's position: marks of transactions take offsets, too, and are no messages. Of a
    transaction that is open nothing is read, nor what comes after it. Raises KafkaException.
    """
    with closing(open_consumer(kafka, {"enable.partition.eof": True})) as consumer:
        found = consumer.list_topics(topic, timeout=CALL_S).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        unread = set(found.partitions)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in unread])
        messages: list[Message] = []
        give_up_s = time.monotonic() + READ_S
        while unread and time.monotonic() < give_up_s:
            for message in consumer.consume(RECORDS_PER_POLL_MAX, timeout=0.1):
                error = message.error()
                if error is None:
                    messages.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(message.partition())
        return None if unread else messages
