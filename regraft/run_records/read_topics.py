"""Read the records of whole Kafka topics, up to their present end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import structlog

from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.read_messages import read_messages
from regraft.schemas.codec import UndecodableRecordError, decode
from regraft.schemas.topics import Topic, topic_name

log = structlog.get_logger(__name__)


def read_whole(
    kafka: KafkaAccess, namespace: str, topics: Mapping[Topic, type[msgspec.Struct]], wait_s_max: float
) -> Iterator[Any]:
    """Yield every record of the topics, oldest first in each partition; records that do not decode are logged.

    Raises UnreadableTopicError if the end is not reached in time, because part of a topic would give wrong figures.
    """
    types = {topic_name(topic, namespace): record_type for topic, record_type in topics.items()}
    for message in read_messages(kafka, list(types), wait_s_max):
        if message.value() is None:
            continue  # a tombstone
        try:
            yield decode(message.value(), types[str(message.topic())])
        except UndecodableRecordError as error:
            log.warning("record_skipped", topic=message.topic(), offset=message.offset(), reason=str(error))
