"""Read records that are indispensable: one that does not decode stops its reader with a sentence.

Records that are not indispensable become dead letters instead, see :mod:`infra.kafka.dead_letters`.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from confluent_kafka import Message

from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.read_messages import read_to_end
from regraft.infra.process.stack_error import StackError
from regraft.schemas.codec import UndecodableRecordError, decode

KEY_CHARACTERS_MAX = 200

Record = TypeVar("Record", bound=msgspec.Struct)


class UnreadableRecordError(StackError):
    """Reports which record cannot be read, where it is, and the ways out."""


def decode_strictly(message: Message, record_type: type[Record]) -> Record | None:
    """Return a message's record, None if it is a tombstone. Raises UnreadableRecordError."""
    value = message.value()
    if value is None:
        return None
    try:
        return decode(value, record_type)
    except UndecodableRecordError as error:
        key = (message.key() or b"").decode(errors="replace")[:KEY_CHARACTERS_MAX]
        place = f"topic {message.topic()}, partition {message.partition()}, offset {message.offset()}, key {key!r}"
        raise UnreadableRecordError(
            f"A record that should be a {record_type.__name__} cannot be read ({place}: {error}). Skipping it could "
            "repeat or contradict what it says, so nothing starts. If a newer version of Regraft wrote it, start "
            "that version. If no version can read it, check at the brokers that it is not in force, then write a "
            "record without a value under its key to delete it."
        ) from error


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
