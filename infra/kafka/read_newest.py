"""Read the newest record of each key from a compacted topic whose records are all indispensable."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from confluent_kafka import Message

from regraft.infra.kafka.decode_strictly import decode_strictly
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.read_messages import read_to_end

Record = TypeVar("Record", bound=msgspec.Struct)


def read_newest(kafka: KafkaAccess, topic: str, record_type: type[Record]) -> list[Record] | None:
    """Return the newest record of each key in the order in which they were stored; None if the end is not reached.

    Raises KafkaException, and UnreadableRecordError if a record does not decode.
    """
    messages = read_to_end(kafka, topic)
    if messages is None:
        return None
    newest: dict[bytes | None, Message] = {}
    for message in messages:
        newest.pop(message.key(), None)  # The newest version moves to the end.
        newest[message.key()] = message
    records = [decode_strictly(message, record_type) for message in newest.values()]
    return [record for record in records if record is not None]
