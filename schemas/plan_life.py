"""The life of a plan in one table: what each phase leads to, what ends it, and what may be done in it.

In: a phase, a plan. Out: the facts of the phase, the plan in its next one. When a phase is over, and what is done then,
is the controller's affair; the values of the limits are settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from regraft.schemas.command import CommandPhase, Outcome
from regraft.schemas.order import OrderKind
from regraft.schemas.plan import PhaseChange, Plan, PlanPhase

HISTORY_MAX = 64  # Phase changes kept in a plan; the longest way through the table has seven.
FIRST_PHASES = (PlanPhase.PROPOSED, PlanPhase.PREPARING)  # With which a plan begins: it waits for a person, or not.


class PhaseOrderError(ValueError):
    """Reports which plan was to enter a phase that its own does not lead to."""


@dataclass(frozen=True, slots=True)
class PhaseFacts:
    """What holds while a plan is in one phase.

    ``next``: the phases it leads to, first the one where all goes well; none: the plan is over.
    ``command``: what brokers are sent, and again until they answer; None: they are not asked.
    ``answer``: what each broker says when it has done its part.
    ``limit``: the setting that bounds the phase, empty without one.
    ``orders``: what a person may order about the plan.
    ``is_committed``: past the point of no return: brokers may use the new overlay, and it can only be executed.
    ``is_in_force``: every broker has drained the old overlay, so the new one alone carries what is published, until a
    later plan is in force.
    ``is_aborted``: given up after brokers have heard of it.
    """

    next: tuple[PlanPhase, ...] = ()
    command: CommandPhase | None = None
    answer: Outcome | None = None
    limit: str = ""
    orders: tuple[OrderKind, ...] = ()
    is_committed: bool = False
    is_in_force: bool = False
    is_aborted: bool = False

    @property
    def is_moving(self) -> bool:
        """Return True if brokers are at work on the plan."""
        return self.command is not None

    @property
    def is_final(self) -> bool:
        """Return True if the plan is over."""
        return not self.next

    @property
    def is_under_way(self) -> bool:
        """Return True if the plan has begun and is not over: it is executed, given up or checked."""
        return self.is_moving or (self.is_in_force and not self.is_final)


LIFE: Mapping[PlanPhase, PhaseFacts] = {
    PlanPhase.PROPOSED: PhaseFacts(
        next=(PlanPhase.PREPARING, PlanPhase.REFUSED),
        limit="review_ms_max",
        orders=(OrderKind.APPROVE, OrderKind.REFUSE, OrderKind.CANCEL),
    ),
    PlanPhase.REFUSED: PhaseFacts(),
    PlanPhase.PREPARING: PhaseFacts(
        next=(PlanPhase.ACTIVATING, PlanPhase.ABORTING),
        command=CommandPhase.PREPARE,
        answer=Outcome.PREPARED,
        limit="prepare_ms",
        orders=(OrderKind.CANCEL,),
    ),
    PlanPhase.ACTIVATING: PhaseFacts(
        next=(PlanPhase.DRAINING,),
        command=CommandPhase.ACTIVATE,
        answer=Outcome.ACTIVATED,
        limit="activate_ms",
        is_committed=True,
    ),
    PlanPhase.DRAINING: PhaseFacts(
        next=(PlanPhase.RETIRING,),
        command=CommandPhase.ACTIVATE,  # Repeated, it makes a broker say again whether it has drained.
        answer=Outcome.DRAINED,
        limit="drain_ms",
        is_committed=True,
    ),
    PlanPhase.RETIRING: PhaseFacts(
        next=(PlanPhase.VERIFYING,),
        command=CommandPhase.RETIRE,
        answer=Outcome.RETIRED,
        limit="retire_ms",
        is_committed=True,
        is_in_force=True,
    ),
    PlanPhase.VERIFYING: PhaseFacts(
        next=(PlanPhase.COMPLETED,), limit="verify_ms_max", is_committed=True, is_in_force=True
    ),
    PlanPhase.COMPLETED: PhaseFacts(is_committed=True, is_in_force=True),
    PlanPhase.ABORTING: PhaseFacts(
        next=(PlanPhase.ABORTED,),
        command=CommandPhase.ABORT,
        answer=Outcome.ABORTED,
        limit="retire_ms",
        is_aborted=True,
    ),
    PlanPhase.ABORTED: PhaseFacts(is_aborted=True),
}


def entered(plan: Plan, phase: PlanPhase, reason: str, at_ms: int) -> Plan:
    """Return the plan in its next phase, which its history names with the reason; one without history begins.

    Raises PhaseOrderError if its present phase does not lead there.
    """
    ways = LIFE[plan.phase].next if plan.history else FIRST_PHASES
    if phase not in ways:
        here = f"is {plan.phase}" if plan.history else "has not begun"
        there = f"that leads to {' or '.join(ways)} only" if ways else "that is final, so make a new plan"
        raise PhaseOrderError(f"{plan.plan} cannot be {phase} next: it {here}, and {there}")
    history = (*plan.history, PhaseChange(phase, at_ms, reason))[-HISTORY_MAX:]
    return msgspec.structs.replace(plan, phase=phase, history=history)


def committed_ms(plan: Plan) -> int | None:
    """Return when a plan was committed, or None if its history does not say."""
    return next((change.time_ms for change in plan.history if LIFE[change.phase].is_committed), None)


def phases_for(order: OrderKind) -> tuple[PlanPhase, ...]:
    """Return the phases in which an order about a plan can be followed, none for an order about something else."""
    return tuple(phase for phase, facts in LIFE.items() if order in facts.orders)


def against_order(order: OrderKind, plan: str, phase: str) -> str:
    """Return why an order about the plan cannot be followed in its phase, empty when it can."""
    wanted = phases_for(order)
    return "" if phase in wanted else f"{plan} is {phase}: {order} needs a plan that is {' or '.join(wanted)}"


def answers_to(command: CommandPhase) -> tuple[Outcome, ...]:
    """Return what a broker answers to a command that it obeys, in the order in which it does."""
    return tuple(facts.answer for facts in LIFE.values() if facts.command is command and facts.answer is not None)
