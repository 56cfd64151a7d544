"""Client: where it is connected, and what it wants or publishes (compacted topic; a tombstone when it leaves)."""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from regraft.schemas.bounds import Measure, Name, NameOrNone, Number, Text, TimeMs

REACHED_MAX = 64  # Brokers of an agent's list that are reported.
ReachedBrokers = Annotated[tuple[Name, ...], Meta(max_length=REACHED_MAX)]


class Role(StrEnum):
    """What a client does."""

    PUBLISHER = "publisher"
    SUBSCRIBER = "subscriber"


class PredicateRecord(Struct, frozen=True):
    """One condition on one attribute; exactly one of ``number`` and ``text`` is set, neither for ``present``."""

    attribute: Name
    operator: Name
    number: Number | None = None
    text: Text | None = None


class Client(Struct, frozen=True):
    """A publisher (its advertisement in ``predicates``) or a subscriber.

    A subscriber has one subscription in ``predicates``. On an overlay with topics it is a user and has any number of
    sorted ``topics``, each of which is one subscription. ``may_move``: an agent beside the client can take it to
    another broker, although the inventory says that clients stay; ``nearest`` is the broker that is nearest to the
    client, "" if that is not known, and ``reaches`` are those to which its agent can take it, empty if not known. If it
    may not move, ``stays_because`` is a label of :class:`schemas.stay_reasons.StayReason`, "" if that is not known.
    """

    client: Name
    role: Role
    home: Name
    predicates: tuple[PredicateRecord, ...]
    rate_per_s: Measure
    time_ms: TimeMs
    topics: tuple[Name, ...] = ()
    may_move: bool = False
    nearest: NameOrNone = ""
    reaches: ReachedBrokers = ()
    stays_because: NameOrNone = ""
