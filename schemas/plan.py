"""Proposals and plans: before, after, predicted gain, price, reason, and the phases of a plan."""

import hashlib
import json
from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from regraft.schemas.agent_names import client_beside
from regraft.schemas.bounds import Epoch, Measure, Name, NameOrNone, Number, Sum, TimeMs

LinkPair = tuple[Name, Name]


class ClientMove(Struct, frozen=True, order=True):
    """One client that leaves its home for another broker."""

    client: Name
    home_from: Name
    home_to: Name

    @property
    def text(self) -> str:
        """Return the move as text, for people."""
        return f"{self.client} {self.home_from} -> {self.home_to}"


class HomeMove(Struct, frozen=True, order=True):
    """All subscribers of one broker of a tree leave it for another."""

    home_from: Name
    home_to: Name

    @property
    def text(self) -> str:
        """Return the move as text, for people."""
        return f"{self.home_from} -> {self.home_to}"


REPAIR = "repair"  # Instead of a planner's name: the plan repairs what a death has cut.
MEMBERSHIP = "membership"  # Likewise: brokers join or leave, and none has died.
MEMBER_PLANNERS = frozenset({REPAIR, MEMBERSHIP})
OFF_RING = -1  # Instead of an ID: the broker is not on the ring, before it joins or after it left or died.


CLUSTERS_MAX = 4_096  # A place of a structured cyclic overlay is the region's number times this plus the cluster's.


class IdMove(Struct, frozen=True, order=True):
    """One broker gets another ID on the ring, or place on a structured cyclic overlay; OFF_RING means none."""

    broker: Name
    id_from: int
    id_to: int

    @property
    def text(self) -> str:
        """Return the change of ID on a ring as text, for people."""
        before, after = (("none" if one == OFF_RING else str(one)) for one in (self.id_from, self.id_to))
        return f"{self.broker} ID {before} -> {after}"

    @property
    def slot_text(self) -> str:
        """Return the change of place on a structured cyclic overlay as text, for people."""
        before, after = (("no place" if one == OFF_RING else slot_text(one)) for one in (self.id_from, self.id_to))
        return f"{self.broker} {before} -> {after}"


def slot_text(place: int) -> str:
    """Return a place of a structured cyclic overlay as text."""
    return f"cluster {place % CLUSTERS_MAX} in region {place // CLUSTERS_MAX}"


class RingId(Struct, frozen=True, order=True):
    """A broker and its ID on the ring."""

    broker: Name
    ring_id: int


class Verdict(StrEnum):
    """The judge's verdict on a proposal or a state; only ``ACCEPTED`` proposals can enter a plan."""

    ACCEPTED = "accepted"
    NOT_A_TREE = "not_a_tree"
    WRONG_HOME = "wrong_home"
    WRONG_ID = "wrong_id"
    DEGREE = "degree"
    CAPACITY = "capacity"
    CONGESTED = "congested"
    STALE_STATE = "stale_state"
    EPOCH_MISMATCH = "epoch_mismatch"
    INCOMPLETE_STATE = "incomplete_state"
    GAIN_BELOW_PRICE = "gain_below_price"
    GAIN_WITHIN_NOISE = "gain_within_noise"
    FRAILTY = "frailty"
    COOL_DOWN = "cool_down"
    MUTED = "muted"
    PLAN_RUNNING = "plan_running"
    CONFLICT = "conflict"
    CHANGES_PER_PLAN = "changes_per_plan"
    CLIENTS_STAY = "clients_stay"
    MAINTENANCE = "maintenance"
    PAUSED = "paused"
    IN_REVIEW = "in_review"


class Proposal(Struct, frozen=True):
    """One change that a planner suggests: links exchanged for others, clients moved, or the IDs of a ring reassigned.

    ``moves`` lists publishers, on a ring users, with their homes before and after, and subscribers moved by name;
    ``subscribers_moved`` the brokers of a tree all of whose subscribers move. Costs are per second (``overlay.cost``),
    and so is ``price_per_s``, spread over the pay-back time of the settings. The proposals of one planner call are a
    sequence: each is costed on the overlay that the earlier ones leave. ``gain_observed_per_s`` is None until the plan
    is verified. ``verdict_reason`` says why the proposal was refused. It is empty if accepted, except that a plan's
    last proposal may say how frail the overlay becomes. ``gain_error_per_s`` is the standard error of the gain, from
    the spread over windows, including the error of sampled telemetry; None if it was not needed or is unknown.
    """

    planner: Name
    links_removed: tuple[LinkPair, ...]
    links_added: tuple[LinkPair, ...]
    cost_before_per_s: Number
    cost_after_per_s: Number
    price_per_s: Number
    reason: str
    verdict: Verdict = Verdict.ACCEPTED
    verdict_reason: str = ""
    moves: tuple[ClientMove, ...] = ()
    gain_observed_per_s: Number | None = None
    id_moves: tuple[IdMove, ...] = ()
    subscribers_moved: tuple[HomeMove, ...] = ()
    gain_error_per_s: Measure | None = None

    @property
    def gain_per_s(self) -> float:
        """Return what the change saves per second, without its transition cost."""
        return self.cost_before_per_s - self.cost_after_per_s


class PlanPhase(StrEnum):
    """The phases of a plan, one transition from ``epoch_from`` to ``epoch_to``; ``plan_life`` has their order.

    In a dry run a plan begins as ``proposed`` and waits for an operator. A ``refused`` plan leaves no trace but its
    record.
    """

    PROPOSED = "proposed"
    REFUSED = "refused"
    PREPARING = "preparing"
    ACTIVATING = "activating"
    DRAINING = "draining"
    RETIRING = "retiring"
    VERIFYING = "verifying"
    COMPLETED = "completed"
    ABORTING = "aborting"
    ABORTED = "aborted"


class PhaseChange(Struct, frozen=True):
    """When a plan entered a phase, and why."""

    phase: PlanPhase
    time_ms: TimeMs
    reason: str


class Plan(Struct, frozen=True):
    """The proposals chosen together, the target configuration, and the progress of the transition.

    ``links_target`` is the whole target tree, ``ring_target`` the whole target ring, so that a plan alone defines its
    target; one of them is empty, except that a structured cyclic overlay has both. ``moves`` are the clients that
    change their home (on a tree publishers, and subscriptions by name), ``subscribers_moved`` the brokers all of whose
    subscribers move, ``id_moves`` the brokers that change their ID. ``undoes`` names the plan that this one rolls back,
    else it is empty. ``cost_observed_per_s`` is None until verified on later windows. ``refused`` are the proposals
    that did not enter the plan, with their reasons; only the first if there are very many.

    ``term`` is that of the leader that wrote this version. ``begun_by`` names the controller that began to execute the
    plan: two controllers unaware of each other may choose the same change for the same epoch. ``brokers_target`` are
    all brokers of the target overlay, empty in plans of earlier versions, which changed none. ``brokers_lost`` are
    those whose incarnation at ``epoch_from`` is over, dead or restarted empty: nothing is asked of them. A broker that
    is both lost and in the target comes back with this plan.

    ``sample_share`` is the share of notifications known in the windows on which the plan is based: below 1, all costs
    are estimates. ``gain_error_per_s`` is the standard error of the total gain.
    """

    plan: Name
    epoch_from: Epoch
    epoch_to: Epoch
    window_end_ms: TimeMs
    proposals: tuple[Proposal, ...]
    links_removed: tuple[LinkPair, ...]
    links_added: tuple[LinkPair, ...]
    links_target: tuple[LinkPair, ...]
    cost_before_per_s: Number
    cost_predicted_per_s: Number
    phase: PlanPhase
    history: tuple[PhaseChange, ...]
    undoes: NameOrNone = ""
    cost_observed_per_s: Number | None = None
    control_messages: Sum = 0
    moves: tuple[ClientMove, ...] = ()
    id_moves: tuple[IdMove, ...] = ()
    ring_target: tuple[RingId, ...] = ()
    refused: tuple[Proposal, ...] = ()
    term: Epoch = 0
    begun_by: NameOrNone = ""
    brokers_target: tuple[Name, ...] = ()
    brokers_lost: tuple[Name, ...] = ()
    subscribers_moved: tuple[HomeMove, ...] = ()
    sample_share: Measure = 1.0
    gain_error_per_s: Measure | None = None

    @property
    def is_membership(self) -> bool:
        """Return True if the plan was made because brokers die, join or leave, so not to save anything."""
        return any(proposal.planner in MEMBER_PLANNERS for proposal in self.proposals)

    @property
    def has_places(self) -> bool:
        """Return True for a structured cyclic overlay, where brokers have places instead of ring IDs."""
        return bool(self.ring_target and self.links_target)

    @property
    def approval_digest(self) -> str:
        """Return the digest that an operator approves: orders carry it, and it identifies this plan in all its phases.

        It covers everything that executing the plan changes, the predicted costs, and when the plan was made, so it
        cannot be known in advance. Commands carry another digest, by which brokers distinguish plans
        (:func:`overlay.overlay_configuration.plan_digest`).
        """
        made_ms = self.history[0].time_ms if self.history else 0
        change = [self.plan, made_ms, self.epoch_from, self.epoch_to, self.window_end_ms, self.undoes]
        change += [self.links_removed, self.links_added, self.links_target, self.cost_before_per_s]
        change += [self.cost_predicted_per_s, self.moves, self.id_moves, self.ring_target]
        change += [self.brokers_target, self.brokers_lost]
        change += [self.subscribers_moved] if self.subscribers_moved else []
        return hashlib.sha256(json.dumps(to_builtins(change), separators=(",", ":")).encode()).hexdigest()[:32]


def moves_of_clients(moves: Iterable[ClientMove]) -> list[ClientMove]:
    """Return one move for each client: an agent takes a client along with all its subscriptions."""
    names = (replace(move, client=client_beside(move.client) or move.client) for move in moves)
    return list(dict.fromkeys(names))
