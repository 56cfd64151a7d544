"""What the controller tells one broker and what the broker answers (docs/protocol.md)."""

from enum import StrEnum

from msgspec import Struct

from schemas.bounds import Epoch, Name, NameOrNone, Sum, Text, TimeMs
from schemas.plan import ClientMove, IdMove, LinkPair


class CommandPhase(StrEnum):
    """What a command asks for."""

    PREPARE = "prepare"
    ACTIVATE = "activate"
    RETIRE = "retire"
    ABORT = "abort"


class Outcome(StrEnum):
    """What a broker answers; ``DRAINED`` follows ``ACTIVATED`` without a further command."""

    PREPARED = "prepared"
    ACTIVATED = "activated"
    DRAINED = "drained"
    RETIRED = "retired"
    ABORTED = "aborted"
    REFUSED = "refused"


class Command(Struct, frozen=True):
    """One step of one plan for one broker; idempotent by (plan, phase, broker).

    A prepare carries the change as links removed and added, ring IDs reassigned and clients moved, and the digest of
    the target overlay, so that a broker that holds another epoch refuses instead of guessing. On a ring it names only
    the users that come to or leave this broker. A retire names the brokers that are dead: what they would have had to
    send first is not waited for. ``term`` is that of the leader who sends it: brokers refuse a lower one than they have
    seen.
    """

    plan: Name
    phase: CommandPhase
    broker: Name
    epoch_from: Epoch
    epoch_to: Epoch
    links_removed: tuple[LinkPair, ...] = ()
    links_added: tuple[LinkPair, ...] = ()
    digest: str = ""
    moves: tuple[ClientMove, ...] = ()
    id_moves: tuple[IdMove, ...] = ()
    lost_brokers: tuple[str, ...] = ()
    term: Epoch = 0


class CommandResult(Struct, frozen=True):
    """A broker's answer.

    ``control_messages`` counts what it sent to peers for this plan so far; ``lost_peers`` are the neighbours that it
    has found dead. ``term`` and ``digest`` are those of the command that is answered.
    """

    plan: Name
    phase: CommandPhase
    broker: Name
    epoch_to: Epoch
    outcome: Outcome
    reason: Text
    control_messages: Sum
    time_ms: TimeMs
    lost_peers: tuple[Name, ...] = ()
    term: Epoch = 0
    digest: NameOrNone = ""
