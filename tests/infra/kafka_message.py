"""A message of Kafka without Kafka, as consumers return it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message


@dataclass
class KafkaMessage:
    """What readers ask a message for; ``times_by`` says whose clock set its time."""

    of_topic: str
    content: bytes | None
    place: int = 7
    own_key: bytes | None = b"k"
    time_ms: int = 0
    in_partition: int = 0
    times_by: int = TIMESTAMP_LOG_APPEND_TIME

    def topic(self) -> str:
        return self.of_topic

    def value(self) -> bytes | None:
        return self.content

    def key(self) -> bytes | None:
        return self.own_key

    def partition(self) -> int:
        return self.in_partition

    def offset(self) -> int:
        return self.place

    def timestamp(self) -> tuple[int, int]:
        return self.times_by, self.time_ms

    def error(self) -> None:
        return None


def kafka_message(
    topic: str,
    value: bytes | None,
    offset: int = 7,
    key: bytes | None = b"k",
    time_ms: int = 0,
    partition: int = 0,
    times_by: int = TIMESTAMP_LOG_APPEND_TIME,
) -> Message:
    """Return a message as the type that readers declare, which cannot be made without Kafka."""
    return cast(Message, KafkaMessage(topic, value, offset, key, time_ms, partition, times_by))
