"""DeadLetter: a record that could not be used, kept whole with the reason."""

from msgspec import Struct


class DeadLetter(Struct, frozen=True):
    """Where the record stood, why it was refused and its bytes."""

    topic: str
    partition: int
    offset: int
    reason: str
    value: bytes
    time_ms: int
