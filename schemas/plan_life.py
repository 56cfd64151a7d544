"""The life of a plan in one table: the next phases, limits and allowed orders of each phase.

In: a phase, a plan. Out: the facts of the phase, the plan in its next phase. Deciding when a phase ends, and acting on
it, belongs to the controller; the values of the limits are settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from regraft.schemas.command import CommandPhase, Outcome
from regraft.schemas.order import OrderKind
from regraft.schemas.plan import PhaseChange, Plan, PlanPhase
from regraft.schemas.texts import shortened

HISTORY_MAX = 64  # Phase changes kept in a plan; the longest path through the table has seven.
FIRST_PHASES = (PlanPhase.PROPOSED, PlanPhase.PREPARING)  # Where a plan begins: waiting for an operator, or not.


class PhaseOrderError(ValueError):
    """A plan cannot enter a phase from its present one; the message says which."""


@dataclass(frozen=True, slots=True)
class PhaseFacts:
    """What holds while a plan is in one phase.

    ``next``: the phases it leads to, first the one of success; if none, the plan is over.
    ``command``: what brokers are sent until they answer; None if nothing is sent.
    ``answer``: each broker's answer when it has done its part.
    ``limit``: the setting that bounds the phase's duration, empty if there is none.
    ``orders``: the orders that an operator may give about the plan.
    ``is_committed``: past the point of no return: brokers may use the new overlay, and it can only be executed.
    ``is_in_force``: every broker has drained the old overlay, so only the new one carries notifications, until a later
    plan is in force.
    ``is_aborted``: given up after brokers received commands.
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
        """Return True if brokers are executing commands of the plan."""
        return self.command is not None

    @property
    def is_final(self) -> bool:
        """Return True if the plan is over."""
        return not self.next

    @property
    def is_under_way(self) -> bool:
        """Return True if the plan has begun and is not over: it is being executed, aborted or verified."""
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
        command=CommandPhase.ACTIVATE,  # If repeated, a broker reports again whether it has drained.
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
    """Return the plan in its next phase, with the change and its reason appended to its history.

    A plan without history begins. Raises PhaseOrderError if its present phase does not lead there.
    """
    following = LIFE[plan.phase].next if plan.history else FIRST_PHASES
    if phase not in following:
        here = f"is {plan.phase}" if plan.history else "has not begun"
        there = f"that leads to {' or '.join(following)} only" if following else "that is final, so propose a new plan"
        raise PhaseOrderError(f"{plan.plan} cannot be {phase} next: it {here}, and {there}")
    history = (*plan.history, PhaseChange(phase, at_ms, shortened(reason)))[-HISTORY_MAX:]
    return msgspec.structs.replace(plan, phase=phase, history=history)


def committed_ms(plan: Plan) -> int | None:
    """Return when a plan was committed, or None if its history does not have it."""
    return next((change.time_ms for change in plan.history if LIFE[change.phase].is_committed), None)


def phases_for(order: OrderKind) -> tuple[PlanPhase, ...]:
    """Return the phases in which an order about a plan can be followed; none if the order is not about plans."""
    return tuple(phase for phase, facts in LIFE.items() if order in facts.orders)


def why_order_refused(order: OrderKind, plan: str, phase: str) -> str:
    """Return why an order about the plan cannot be followed in its phase, "" if it can."""
    wanted = phases_for(order)
    return "" if phase in wanted else f"{plan} is {phase}: {order} needs a plan that is {' or '.join(wanted)}"


def answers_to(command: CommandPhase) -> tuple[Outcome, ...]:
    """Return the answers of a broker that obeys a command, in the order in which it sends them."""
    return tuple(facts.answer for facts in LIFE.values() if facts.command is command and facts.answer is not None)
