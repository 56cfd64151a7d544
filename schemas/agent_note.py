"""What nodes and agents write to each other about a subscription that moves, through the client's own connection. Pure.

Both sides read it from a broker where others may write to the same subject: what is not of this form is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated
from zlib import crc32

import msgspec

from regraft.schemas.bounds import Epoch, NameOrNone, Sum
from regraft.schemas.client import REACHED_MAX, ReachedBrokers

NOTE_BYTES_MAX = 4_096
REACHED_BYTES_MAX = 3_000  # Of a note's bytes; the rest is room for its other fields.
MARKS_MAX = 32
TEXT_LENGTH_MAX = 1_024
TextOrNone = Annotated[str, msgspec.Meta(max_length=TEXT_LENGTH_MAX)]
Mark = Annotated[int, msgspec.Meta(ge=0, le=0xFFFF_FFFF)]


class NoteKind(StrEnum):
    """What a note says; the first nine come from nodes."""

    HOME = "home"  # The subscription has begun at ``broker``, where no plan brings it: the node may have restarted.
    MOVE = "move"  # Bring the subscription to ``broker``, for ``epoch``.
    AWAITED = "awaited"  # The overlay has it at ``broker``, in the tables of ``epoch``.
    COUNTING = "counting"  # ``broker``, the next home, counts since the agent's note.
    SWITCHED = "switched"  # Of what clients publish at ``broker``, ``count`` were not of ``epoch``, at last ``marks``.
    DRAINED = "drained"  # ``broker`` has handed over everything from before ``epoch``.
    WHO = "who"  # To all agents: which subscriptions here are theirs?
    ABORTED = "aborted"  # The plan to ``epoch`` is over, and the subscription stays.
    NAMED = "named"  # All brokers know the client as a publisher: its messages may name it.
    READY = "ready"  # From the agent, to both homes in turn: it is at both, and ``count`` begins here.
    REFUSED = "refused"  # From the agent: it cannot bring the subscription to its next home.
    STAYS = "stays"  # From the agent: this client's subscriptions cannot move, for ``reason``.
    PUBLISHES = "publishes"  # From the agent: this client publishes so much that it should be known as a publisher.
    NEAREST = "nearest"  # From the agent: ``broker`` is the nearest to this client, which may go to ``brokers``.
    BESIDE = (
        "beside"  # From the agent of a client of MQTT: its ``identifier`` subscribes ``filter`` as ``subscription``.
    )


class AgentNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """One note; ``overlay`` is the namespace by which messages of the overlay are known.

    ``identifier`` and ``filter`` are those of MQTT; the plan to ``epoch`` brings the subscription unless that is 0.
    ``reason`` is a label of :class:`schemas.stay_reasons.StayReason`; agents of 0.3.0 give none.
    """

    kind: NoteKind
    subscription: NameOrNone = ""
    epoch: Epoch = 0
    broker: NameOrNone = ""
    count: Sum = 0
    overlay: NameOrNone = ""
    marks: Annotated[tuple[Mark, ...], msgspec.Meta(max_length=MARKS_MAX)] = ()
    identifier: TextOrNone = ""
    filter: TextOrNone = ""
    brokers: ReachedBrokers = ()
    reason: NameOrNone = ""


def mark_of(subject: bytes, payload: bytes) -> int:
    """Return the mark by which agents and nodes recognise a message; equal messages have equal marks."""
    return crc32(payload, crc32(subject))


def reported_brokers(brokers: Iterable[str]) -> tuple[str, ...]:
    """Return the first of an agent's brokers that a note has room for."""
    kept: list[str] = []
    room = REACHED_BYTES_MAX
    for broker in brokers:
        room -= len(msgspec.json.encode(broker)) + 1
        if room < 0 or len(kept) == REACHED_MAX:
            break
        kept.append(broker)
    return tuple(kept)


_decoder = msgspec.json.Decoder(AgentNote)
_encoder = msgspec.json.Encoder()


def note_bytes(note: AgentNote) -> bytes:
    """Encode a note."""
    return _encoder.encode(note)


def note_of(payload: bytes) -> AgentNote | None:
    """Decode a note; return None for anything else."""
    if len(payload) > NOTE_BYTES_MAX:
        return None
    try:
        return _decoder.decode(payload)
    except (msgspec.DecodeError, ValueError):
        return None
