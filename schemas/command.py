"""Commands of the controller to one broker, and the broker's answers (docs/protocol.md)."""

from enum import StrEnum

from msgspec import Struct

from regraft.schemas.bounds import Epoch, Name, NameOrNone, PlanMessages, Text, TimeMs
from regraft.schemas.plan import ClientMove, HomeMove, IdMove, LinkPair, RingId


class CommandPhase(StrEnum):
    """What a command asks for."""

    PREPARE = "prepare"
    ACTIVATE = "activate"
    RETIRE = "retire"
    ABORT = "abort"
    INSTALL = "install"  # Discard all state and start over outside the overlay of an epoch.
    REPORT = "report"  # Belongs to no plan: report your state. Changes nothing but the term.


class Outcome(StrEnum):
    """A broker's answer; ``DRAINED`` follows ``ACTIVATED`` without a further command."""

    PREPARED = "prepared"
    ACTIVATED = "activated"
    DRAINED = "drained"
    RETIRED = "retired"
    ABORTED = "aborted"
    REFUSED = "refused"
    REPORTED = "reported"
    INSTALLED = "installed"


class Refusal(StrEnum):
    """Why a broker refuses, as codes on which a controller acts; the reason is for people."""

    NONE = ""
    TERM = "term"  # A leader with a higher term is in command.
    PLAN = "plan"  # The epoch, or the broker, belongs to another plan.
    EPOCH = "epoch"  # The broker is not at the epoch from which the plan begins.
    PHASE = "phase"  # An earlier step is missing or impossible.
    OUTSIDE = "outside"  # The broker restarted, so it is not in the overlay that the plan assumes.


class Command(Struct, frozen=True):
    """One step of one plan for one broker; idempotent by (plan, digest, phase, broker).

    ``digest`` identifies the plan in every phase (:func:`overlay.overlay_configuration.plan_digest`). It contains that
    of the target overlay, so that a broker at another epoch refuses instead of guessing.

    A prepare describes the change: links removed and added, ring IDs reassigned, clients moved, brokers that join and
    leave and, on a tree, ``subscribers_moved``. On a ring, ``id_moves`` has the IDs of joining and leaving brokers
    (OFF_RING: none), and moves name only the users that come to or leave this broker. Every command of a plan lists the
    lost brokers, dead or restarted empty: nothing is awaited from them, and messages from their earlier incarnation are
    ignored.

    An install carries the whole overlay in force, as links added or as IDs, and brokers joined, with the plan that led
    there and its digest. A broker that obeys forgets all else and starts at that epoch, outside the overlay.

    ``term`` is that of the leader that sends the command; brokers refuse terms lower than the highest they have seen.
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

    ``control_messages`` counts its messages to peers for this plan so far; ``lost_peers`` are the neighbours that it
    found dead. ``digest`` is that of the command. ``term`` is the highest that the broker has seen, which is the
    command's unless it was refused for its term. ``refusal`` is NONE unless the outcome is REFUSED.

    In a report, ``epoch_to`` is the epoch that the broker stamps on publications, ``reason`` its phase, ``digest`` and
    ``plan_held`` the plan that led there, empty if unknown; ``links_held`` are the links of its tree, ``ring_held`` is
    its ring.
    """

    plan: Name
    phase: CommandPhase
    broker: Name
    epoch_to: Epoch
    outcome: Outcome
    reason: Text
    control_messages: PlanMessages
    time_ms: TimeMs
    lost_peers: tuple[Name, ...] = ()
    term: Epoch = 0
    digest: NameOrNone = ""
    refusal: Refusal = Refusal.NONE
    plan_held: NameOrNone = ""
    links_held: tuple[LinkPair, ...] = ()
    ring_held: tuple[RingId, ...] = ()
