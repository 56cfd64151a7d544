"""Read messages of Kafka topics up to their present end, without a consumer group and without committing anything.

In: access to Kafka and names of topics. Out: messages. Their contents do not belong here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import Option, open_consumer
from regraft.infra.process.stack_error import StackError
from regraft.schemas.topics import Topic, topic_name

RECORDS_PER_POLL_MAX = 5000
CALL_S = 10.0
NEW_PARTITION_PAUSE_S = 0.2
LEADERLESS = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
LOOK_BACK_FACTOR = 8
LOOP_CALL_S = 1.0  # For callers that must not block while Kafka is unavailable.
LOOP_READ_S = 10.0  # After this time reading is given up.


class UnreadableTopicError(StackError):
    """Reports which topic could not be read to its end, and how far it was read."""


def read_messages(
    kafka: KafkaAccess, names: Sequence[str], wait_s_max: float, since_ms: int | None = None
) -> Iterator[Message]:
    """Yield every message of these topics, including tombstones, oldest first in each partition.

    With ``since_ms``, only messages with that timestamp or a later one. Raises UnreadableTopicError if the end is not
    reached within ``wait_s_max``.
    """
    with closing(_consumer(kafka, {"queued.max.messages.kbytes": 16_384})) as consumer:
        starts = _partitions(consumer, names)
        if since_ms is not None:
            timed = [TopicPartition(part.topic, part.partition, since_ms) for part in starts]
            starts = consumer.offsets_for_times(timed, timeout=CALL_S)
        unread = {(part.topic, part.partition) for part in starts}
        count = 0
        for message in _up_to_end(consumer, starts, unread, wait_s_max):
            count += 1
            yield message
        _check_read(unread, count, wait_s_max)


def read_last(kafka: KafkaAccess, names: Sequence[str], count: int, wait_s_max: float) -> list[Message]:
    """Return the last messages of these topics, at most ``count`` of each partition, by timestamp.

    Transaction markers take offsets, and compaction leaves gaps: partitions with fewer messages than offsets are read
    again from further back. Raises UnreadableTopicError as ``read_messages`` does.
    """
    kept: dict[tuple[str, int], list[Message]] = {}
    with closing(_consumer(kafka)) as consumer:
        parts = _partitions(consumer, names)
        bounds = {(part.topic, part.partition): consumer.get_watermark_offsets(part, timeout=CALL_S) for part in parts}
        offsets, pending = count, set(bounds)
        while pending:
            starts = [TopicPartition(*place, max(bounds[place][0], bounds[place][1] - offsets)) for place in pending]
            unread = set(pending)
            last = list(_up_to_end(consumer, starts, unread, wait_s_max))
            _check_read(unread, len(last), wait_s_max)
            for place in pending:
                kept[place] = [each for each in last if (each.topic(), each.partition()) == place][-count:]
            short = {place for place in pending if len(kept[place]) < count}
            pending = {place for place in short if bounds[place][1] - offsets > bounds[place][0]}
            offsets *= LOOK_BACK_FACTOR
    last = [message for messages in kept.values() for message in messages]
    return sorted(last, key=lambda message: (message.timestamp()[1], str(message.topic()), message.offset() or 0))


def read_to_end(kafka: KafkaAccess, topic: str) -> list[Message] | None:
    """Return all messages of a topic, in order within each partition; None if the end is not reached in LOOP_READ_S.

    Messages of an open transaction and later ones are not read. Raises KafkaException.
    """
    with closing(_consumer(kafka)) as consumer:
        metadata = consumer.list_topics(topic, timeout=LOOP_CALL_S).topics[topic]
        if metadata.error is not None:
            raise KafkaException(metadata.error)
        unread = {(topic, number) for number in metadata.partitions}
        starts = [TopicPartition(*place, OFFSET_BEGINNING) for place in sorted(unread)]
        messages = list(_up_to_end(consumer, starts, unread, LOOP_READ_S))
        return None if unread else messages


def count_records(kafka: KafkaAccess, names: Sequence[str]) -> int:
    """Return how many records were ever written to these topics, by their offsets."""
    with closing(_consumer(kafka, {"queued.max.messages.kbytes": 16_384})) as consumer:
        return sum(_end_of(consumer, part) for part in _partitions(consumer, names))


def _end_of(consumer: Consumer, part: TopicPartition) -> int:
    """Return the end of a partition, waiting for the leader of a new one."""
    deadline_s = time.monotonic() + CALL_S
    while True:
        try:
            return int(consumer.get_watermark_offsets(part, timeout=CALL_S)[1])
        except KafkaException as error:
            if error.args[0].code() not in LEADERLESS or time.monotonic() > deadline_s:
                raise
            time.sleep(NEW_PARTITION_PAUSE_S)


def names_found(client: Consumer, topic: Topic, namespace: str, wait_s_max: float) -> list[str]:
    """Return the names under which a topic exists, including those of unknown agents. Raises KafkaException.

    If Kafka has access lists, only topics that this login may describe are found.
    """
    shared = topic_name(topic, namespace)
    there = client.list_topics(timeout=wait_s_max).topics
    return sorted(name for name in there if name == shared or name.startswith(f"{shared}."))


def find_names(kafka: KafkaAccess, topic: Topic, namespace: str) -> list[str]:
    """Return :func:`names_found` over a new connection. Raises UnreadableTopicError."""
    with closing(_consumer(kafka)) as consumer:
        try:
            return names_found(consumer, topic, namespace, CALL_S)
        except KafkaException as error:
            reason = error.args[0].str()
            raise UnreadableTopicError(f"Kafka at {kafka.bootstrap} does not list its topics: {reason}.") from error


def _up_to_end(
    consumer: Consumer, starts: list[TopicPartition], unread: set[tuple[str, int]], wait_s_max: float
) -> Iterator[Message]:
    """Yield the messages from these starts on; remove each (topic, partition) from ``unread`` when its end is reached.

    What remains in ``unread`` was not read to its end in time. The end is detected by the consumer's position, because
    transaction markers take offsets but are not messages.
    """
    consumer.assign(starts)
    deadline_s = time.monotonic() + wait_s_max
    while unread and time.monotonic() <= deadline_s:
        for message in consumer.consume(RECORDS_PER_POLL_MAX, 0.1):
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard((str(message.topic()), message.partition() or 0))


def _check_read(unread: set[tuple[str, int]], count: int, wait_s_max: float) -> None:
    if unread:
        left = ", ".join(sorted({name for name, _ in unread}))
        raise UnreadableTopicError(
            f"{left} could not be read to the end in {wait_s_max:g} s ({count} records received): "
            "check in Kafka's log whether the broker is healthy."
        )


def _consumer(kafka: KafkaAccess, options: dict[str, Option] | None = None) -> Consumer:
    return open_consumer(kafka, {"enable.partition.eof": True, **(options or {})})


def _partitions(consumer: Consumer, names: Sequence[str]) -> list[TopicPartition]:
    partitions = []
    for name in names:
        topic = consumer.list_topics(name, timeout=CALL_S).topics[name]
        if topic.error is not None:
            is_refused = topic.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
            why = "this login needs the right to read it (docs/security.md)." if is_refused else "was it deleted?"
            raise UnreadableTopicError(f"Topic {name} cannot be read ({topic.error.str()}): {why}")
        partitions += [TopicPartition(name, number, OFFSET_BEGINNING) for number in sorted(topic.partitions)]
    return partitions
