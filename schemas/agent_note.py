"""What nodes and agents write to each other about a subscription that moves, through the client's own connection. Pure.

Both sides read it from a broker where others may write to the same subject: what is not of this form is ignored.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from regraft.schemas.bounds import Epoch, NameOrNone, Sum

NOTE_BYTES_MAX = 4_096


class NoteKind(StrEnum):
    """What a note says; the first five come from nodes."""

    MOVE = "move"  # Bring the subscription to ``broker``, for ``epoch``.
    AWAITED = "awaited"  # The overlay has it at ``broker``, in the tables of ``epoch``.
    SWITCHED = "switched"  # What clients publish at ``broker`` from now on is of ``epoch``: ``count`` were not.
    DRAINED = "drained"  # ``broker`` has handed over everything from before ``epoch``.
    ABORTED = "aborted"  # The plan to ``epoch`` is over, and the subscription stays.
    READY = "ready"  # From the agent: it is at both homes, and ``count`` begins here.
    REFUSED = "refused"  # From the agent: it cannot bring the subscription to its next home.
    STAYS = "stays"  # From the agent: this client's subscriptions cannot move.


class AgentNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """One note; ``overlay`` is the namespace by which messages of the overlay are known."""

    kind: NoteKind
    subscription: NameOrNone = ""
    epoch: Epoch = 0
    broker: NameOrNone = ""
    count: Sum = 0
    overlay: NameOrNone = ""


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
