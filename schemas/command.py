"""Commands of the controller to one broker, and the broker's answers (docs/protocol.md)."""

from enum import StrEnum

from msgspec import Struct

from regraft.schemas.bounds import Epoch, Name, NameOrNone, Sum, Text, TimeMs
from regraft.schemas.plan import ClientMove, HomeMove, IdMove, LinkPair, RingId


class CommandPhase(StrEnum):
    """What a command asks for."""

    PREPARE = "prepare"
    ACTIVATE = "activate"
    RETIRE = "retire"
    ABORT = "abort"
    INSTALL = "install"  # Start over outside the overlay of an epoch, discarding all state.
    REPORT = "report"  # Of no plan: say what you hold. It changes nothing but the term.


class Outcome(StrEnum):
    """What a broker answers; ``DRAINED`` follows ``ACTIVATED`` without a further command."""

    PREPARED = "prepared"
    ACTIVATED = "activated"
    DRAINED = "drained"
    RETIRED = "retired"
    ABORTED = "aborted"
    REFUSED = "refused"
    REPORTED = "reported"
    INSTALLED = "installed"


class Refusal(StrEnum):
    """Why a broker refuses, as far as a controller acts on it; the reason says it to people."""

    NONE = ""
    TERM = "term"  # A leader of a higher term commands.
    PLAN = "plan"  # The epoch, or the broker, belongs to another plan.
    EPOCH = "epoch"  # The broker holds another epoch than the plan begins from, or is past it.
    PHASE = "phase"  # What has to come first has not, or cannot.
    OUTSIDE = "outside"  # The broker restarted: it is not in the overlay that the plan assumes.


class Command(Struct, frozen=True):
    """One step of one plan for one broker; idempotent by (plan, digest, phase, broker).

    ``digest`` distinguishes the plan from every other (:func:`overlay.plan_digest.plan_digest`), in every phase. A
    prepare carries the change as links removed and added, ring IDs reassigned, clients moved, brokers that join and
    that leave and, on a tree, ``subscribers_moved``; on a ring ``id_moves`` has their IDs (OFF_RING: none). The digest
    holds that of the target overlay, so that a broker that holds another epoch refuses instead of guessing. On a ring
    it names only the users that come to or leave this broker. Every command of a plan names the brokers that are lost,
    dead or restarted empty: what they would have had to send first is not awaited, and messages of that life are
    ignored. An install carries the whole overlay in force as links added, or IDs, and brokers joined, with the plan
    that led there and its digest; who obeys it holds that epoch from outside and has forgotten all else. ``term`` is
    that of the leader who sends it: brokers refuse a lower one than they have seen.
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
    brokers_joined: tuple[Name, ...] = ()
    brokers_left: tuple[Name, ...] = ()
    subscribers_moved: tuple[HomeMove, ...] = ()


class CommandResult(Struct, frozen=True):
    """A broker's answer.

    ``control_messages`` counts what it sent to peers for this plan so far; ``lost_peers`` are the neighbours that it
    has found dead. ``digest`` is that of the command, ``term`` the highest that the broker has seen: that of the
    command, unless it is refused for its term. ``refusal`` is NONE unless the outcome is REFUSED. A report has in
    ``epoch_to`` the epoch that the broker stamps, in ``reason`` its phase, in ``digest`` and ``plan_held`` the plan
    that led there, empty where it does not know one; ``links_held`` are the links of that tree, ``ring_held`` its ring.
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
    refusal: Refusal = Refusal.NONE
    plan_held: NameOrNone = ""
    links_held: tuple[LinkPair, ...] = ()
    ring_held: tuple[RingId, ...] = ()
