"""Client: who is connected where and wants or publishes what (compacted topic, a tombstone when it left)."""

from enum import StrEnum

from msgspec import Struct


class Role(StrEnum):
    """What a client does."""

    PUBLISHER = "publisher"
    SUBSCRIBER = "subscriber"


class PredicateRecord(Struct, frozen=True):
    """One condition on one attribute; exactly one of ``number`` and ``text`` is set, none for ``present``."""

    attribute: str
    operator: str
    number: float | None = None
    text: str | None = None


class Client(Struct, frozen=True):
    """A publisher (its advertisement in ``predicates``) or a subscriber.

    A subscriber has one subscription in ``predicates``, or, on an overlay with topics, any number of ``topics``,
    sorted; it is then a user, and each of its topics is one subscription.
    """

    client: str
    role: Role
    home: str
    predicates: tuple[PredicateRecord, ...]
    rate_per_s: float
    time_ms: int
    topics: tuple[str, ...] = ()
