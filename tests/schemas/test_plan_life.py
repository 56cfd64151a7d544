"""Facts about the table of a plan's life, and which phases a plan may enter."""

from dataclasses import fields

import msgspec
import pytest

from regraft.controller.settings.controller_settings import ControllerSettings, TransitionLimits
from regraft.schemas.command import CommandPhase, Outcome
from regraft.schemas.order import OrderKind
from regraft.schemas.plan import Plan, PlanPhase
from regraft.schemas.plan_life import (
    FIRST_PHASES,
    HISTORY_MAX,
    LIFE,
    PhaseOrderError,
    answers_to,
    committed_ms,
    entered,
    phases_for,
    why_order_refused,
)

PHASES = list(PlanPhase)


def reached(phase: PlanPhase) -> set[PlanPhase]:
    """Return all phases that a plan may reach from this one."""
    found: set[PlanPhase] = set()
    open_phases = [phase]
    while open_phases:
        ways = set(LIFE[open_phases.pop()].next) - found
        found |= ways
        open_phases += ways
    return found


def new_plan() -> Plan:
    """Return a plan that has not begun."""
    return Plan("plan-1", 0, 1, 0, (), (), (), (), 1.0, 1.0, PlanPhase.PREPARING, ())


def plan_in(*phases: PlanPhase) -> Plan:
    """Return a plan that has passed through these phases."""
    plan = new_plan()
    for at_ms, phase in enumerate(phases):
        plan = entered(plan, phase, f"reason {at_ms}", at_ms)
    return plan


def ways_to(phase: PlanPhase) -> list[tuple[PlanPhase, ...]]:
    """Return each path from a first phase to this one."""
    before = [one for one in PHASES if phase in LIFE[one].next]
    ways = [(*way, phase) for one in before for way in ways_to(one)]
    return [(phase,), *ways] if phase in FIRST_PHASES else ways


def test_each_phase_is_in_the_table_and_can_be_reached() -> None:
    assert set(LIFE) == set(PHASES)
    assert {*FIRST_PHASES, *(phase for first in FIRST_PHASES for phase in reached(first))} == set(PHASES)


@pytest.mark.parametrize("phase", PHASES)
def test_a_plan_never_returns_to_a_phase_and_always_ends(phase: PlanPhase) -> None:
    """Final phases lead nowhere, every other phase leads to a final one, and none leads to itself."""
    after = reached(phase)
    assert phase not in after
    assert LIFE[phase].is_final is (not after)
    assert LIFE[phase].is_final or any(LIFE[one].is_final for one in after)


def test_the_final_phases_are_refused_completed_and_aborted() -> None:
    assert [phase for phase in PHASES if LIFE[phase].is_final] == [
        PlanPhase.REFUSED,
        PlanPhase.COMPLETED,
        PlanPhase.ABORTED,
    ]


@pytest.mark.parametrize("phase", PHASES)
def test_a_phase_with_a_command_has_an_answer_and_a_limit(phase: PlanPhase) -> None:
    """A phase that commands brokers ends by an answer or at its time limit."""
    facts = LIFE[phase]
    assert facts.is_moving is (facts.command is not None) is (facts.answer is not None)
    assert bool(facts.limit) is not facts.is_final
    limits = TransitionLimits if facts.is_moving else ControllerSettings
    assert facts.is_final or facts.limit in {one.name for one in fields(limits)}


@pytest.mark.parametrize("phase", PHASES)
def test_a_committed_plan_can_only_be_executed(phase: PlanPhase) -> None:
    """The point of no return: every plan can be aborted before it, and none after it."""
    ends = {one for one in {phase, *reached(phase)} if LIFE[one].is_final}
    assert LIFE[phase].is_committed is (ends == {PlanPhase.COMPLETED})
    assert all(LIFE[one].is_committed for one in LIFE[phase].next) or not LIFE[phase].is_committed


@pytest.mark.parametrize("phase", PHASES)
def test_a_plan_in_force_stays_in_force(phase: PlanPhase) -> None:
    """It is in force once all brokers have answered that they drained."""
    facts = LIFE[phase]
    assert facts.is_in_force is any(PlanPhase.RETIRING in way for way in ways_to(phase))
    assert not facts.is_in_force or (facts.is_committed and all(LIFE[one].is_in_force for one in facts.next))


def test_an_aborted_plan_had_begun_but_was_never_committed() -> None:
    """Having begun distinguishes it from a refused plan."""
    aborted = [phase for phase in PHASES if LIFE[phase].is_aborted]
    assert aborted == [PlanPhase.ABORTING, PlanPhase.ABORTED]
    assert all(PlanPhase.PREPARING in way for phase in aborted for way in ways_to(phase))
    assert not any(LIFE[phase].is_committed for phase in aborted)


@pytest.mark.parametrize("phase", PHASES)
def test_a_plan_is_under_way_from_its_first_command_to_its_end(phase: PlanPhase) -> None:
    has_begun = any(LIFE[one].is_moving for way in ways_to(phase) for one in way)
    assert LIFE[phase].is_under_way is (has_begun and not LIFE[phase].is_final)


def test_a_plan_can_be_approved_or_refused_in_review_and_cancelled_until_committed() -> None:
    """A plan can be cancelled exactly while it can still be aborted and is not being aborted yet."""
    assert phases_for(OrderKind.APPROVE) == phases_for(OrderKind.REFUSE) == (PlanPhase.PROPOSED,)
    assert phases_for(OrderKind.CANCEL) == (PlanPhase.PROPOSED, PlanPhase.PREPARING)
    for phase, facts in LIFE.items():
        can_be_given_up = any(not LIFE[one].is_committed for one in facts.next)
        assert (OrderKind.CANCEL in facts.orders) is (can_be_given_up and not facts.is_aborted), phase


@pytest.mark.parametrize("kind", [kind for kind in OrderKind if kind.scope != "plan"])
def test_orders_that_are_not_about_plans_are_not_in_the_table(kind: OrderKind) -> None:
    assert phases_for(kind) == ()


@pytest.mark.parametrize("kind", [kind for kind in OrderKind if kind.scope == "plan"])
@pytest.mark.parametrize("phase", PHASES)
def test_an_order_that_comes_too_late_is_refused_with_the_phases_it_needs(phase: PlanPhase, kind: OrderKind) -> None:
    refusal = why_order_refused(kind, "plan-7", phase)
    assert (refusal == "") is (kind in LIFE[phase].orders)
    assert not refusal or refusal == f"plan-7 is {phase}: {kind} needs a plan that is {' or '.join(phases_for(kind))}"


def test_each_answer_belongs_to_one_command() -> None:
    """A broker that obeys gives each answer once, and no other."""
    words = [word for command in CommandPhase for word in answers_to(command)]
    assert sorted(words) == sorted(
        set(Outcome) - {Outcome.REFUSED, Outcome.REPORTED, Outcome.INSTALLED}
    )  # These belong to no phase.
    assert answers_to(CommandPhase.ACTIVATE) == (Outcome.ACTIVATED, Outcome.DRAINED)


@pytest.mark.parametrize("phase", PHASES)
def test_a_plan_enters_what_its_phase_leads_to_and_nothing_else(phase: PlanPhase) -> None:
    """The history names phase, time and reason; an invalid step is refused, and the error names both phases."""
    for way in ways_to(phase):
        plan = plan_in(*way)
        assert tuple(change.phase for change in plan.history) == way
        assert (plan.phase, plan.history[-1].time_ms) == (phase, len(way) - 1)
        for wrong in set(PHASES) - set(LIFE[phase].next):
            with pytest.raises(PhaseOrderError, match=f"plan-1 cannot be {wrong} next: it is {phase}"):
                entered(plan, wrong, "", 9)


def test_a_plan_begins_in_review_or_with_its_first_command() -> None:
    """A planner's plan has no history yet, whatever its phase field says."""
    assert plan_in(PlanPhase.PROPOSED).history[0].reason == "reason 0"
    assert plan_in(PlanPhase.PREPARING).phase is PlanPhase.PREPARING
    with pytest.raises(PhaseOrderError, match="cannot be activating next: it has not begun"):
        plan_in(PlanPhase.ACTIVATING)


@pytest.mark.parametrize("phase", PHASES)
def test_a_plan_is_committed_from_its_first_activating_phase(phase: PlanPhase) -> None:
    for way in ways_to(phase):
        at_ms = way.index(PlanPhase.ACTIVATING) if LIFE[phase].is_committed else None
        assert committed_ms(plan_in(*way)) == at_ms


def test_only_phase_and_history_change_and_the_history_is_bounded() -> None:
    """This holds even for a stored plan with more history than any path through the table."""
    plan = plan_in(PlanPhase.PREPARING)
    long = msgspec.structs.replace(plan, history=plan.history * (2 * HISTORY_MAX))
    last = entered(long, PlanPhase.ACTIVATING, "all brokers answered", 5)
    assert len(last.history) == HISTORY_MAX
    assert msgspec.structs.replace(last, phase=plan.phase, history=plan.history) == plan
    assert max(len(way) for phase in PHASES for way in ways_to(phase)) <= HISTORY_MAX
