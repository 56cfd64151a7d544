"""What the controller tells one broker and what the broker answers (docs/protocol.md)."""

from enum import StrEnum

from msgspec import Struct

from schemas.plan import ClientMove, IdMove


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

    plan: str
    phase: CommandPhase
    broker: str
    epoch_from: int
    epoch_to: int
    links_removed: tuple[tuple[str, str], ...] = ()
    links_added: tuple[tuple[str, str], ...] = ()
    digest: str = ""
    moves: tuple[ClientMove, ...] = ()
    id_moves: tuple[IdMove, ...] = ()
    lost_brokers: tuple[str, ...] = ()
    term: int = 0


class CommandResult(Struct, frozen=True):
    """A broker's answer.

    ``control_messages`` counts what it sent to peers for this plan so far; ``lost_peers`` are the neighbours that it
    has found dead. ``term`` and ``digest`` are those of the command that is answered.
    """

    plan: str
    phase: CommandPhase
    broker: str
    epoch_to: int
    outcome: Outcome
    reason: str
    control_messages: int
    time_ms: int
    lost_peers: tuple[str, ...] = ()
    term: int = 0
    digest: str = ""
