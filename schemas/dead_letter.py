"""DeadLetter: a record that could not be used, kept in full with the reason."""

from msgspec import Struct

from regraft.schemas.bounds import Length, Name, Offset, Text, TimeMs


class DeadLetter(Struct, frozen=True):
    """The record's topic, partition and offset, why it was refused, and its bytes."""

    topic: Name
    partition: Length
    offset: Offset
    reason: Text
    value: bytes
    time_ms: TimeMs
