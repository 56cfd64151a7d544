"""The controller's state machine: what it persists, sends and reports, in which order."""

from itertools import pairwise

import msgspec
import pytest

from regraft.controller.execute.transition import EmitEvent, PersistPlan, SendCommand, Transition, TransitionEffect
from regraft.controller.execute.weigh_claims import PeerClaims
from regraft.controller.settings.controller_settings import TransitionLimits
from regraft.overlay.overlay_configuration import BrokerChange, plan_digest
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.schemas.command import Command, CommandPhase, CommandResult, Outcome, Refusal
from regraft.schemas.event import EventKind
from regraft.schemas.plan import Plan, PlanPhase
from regraft.schemas.plan_life import LIFE

BROKERS = ("a", "b", "c")
LIMITS = TransitionLimits(prepare_ms=1_000, activate_ms=1_000, drain_ms=1_000, retire_ms=1_000, resend_ms=200)
TARGET = TreeConfiguration.of(1, BROKERS, [("a", "c"), ("b", "c")])
TERM = 4


def swap_plan() -> Plan:
    """Return the plan that turns a-b-c into a-c-b."""
    return Plan(
        "plan-1", 0, 1, 5_000, (), (("a", "b"),), (("a", "c"),), (("a", "c"), ("b", "c")), 10.0, 8.0,
        PlanPhase.PREPARING, (),
    )  # fmt: skip


def answer(
    broker: str, phase: CommandPhase, outcome: Outcome, plan: str = "plan-1", sent: int = 0, lost: tuple[str, ...] = ()
) -> CommandResult:
    """Return one broker's answer."""
    return CommandResult(plan, phase, broker, 1, outcome, "", sent, 0, lost, TERM, plan_digest(swap_plan(), TARGET))


def run_to(phase: PlanPhase, claims: PeerClaims | None = None) -> Transition:
    """Return a transition that has just entered ``phase``."""
    transition = Transition(swap_plan(), TARGET, LIMITS, TERM, claims=claims)
    transition.start(0)
    if phase is PlanPhase.ABORTING:
        transition.cancel("not wanted any more", 10)
    while transition.plan.phase is not phase and not transition.is_done:
        facts = LIFE[transition.plan.phase]
        assert facts.command is not None
        assert facts.answer is not None
        for broker in BROKERS:
            transition.on_result(answer(broker, facts.command, facts.answer), 10)
    assert transition.plan.phase is phase
    return transition


def test_each_phase_is_persisted_before_its_commands() -> None:
    """A plan's phase is stored before any command of it is sent."""
    transition = Transition(swap_plan(), TARGET, LIMITS, TERM)
    effects = transition.start(0)
    assert isinstance(effects[0], PersistPlan)
    assert [type(effect) for effect in effects[2:]] == [SendCommand] * 3
    for broker in ("a", "b"):
        assert transition.on_result(answer(broker, CommandPhase.PREPARE, Outcome.PREPARED), 10) == []
    effects = transition.on_result(answer("c", CommandPhase.PREPARE, Outcome.PREPARED), 10)
    assert isinstance(effects[0], PersistPlan)
    assert effects[0].plan.phase is PlanPhase.ACTIVATING
    commands = [effect.command for effect in effects[1:] if isinstance(effect, SendCommand)]
    assert {command.phase for command in commands} == {CommandPhase.ACTIVATE}
    assert [command.broker for command in commands] == list(BROKERS)


def test_a_plan_runs_through_all_phases_once() -> None:
    """A plan's history names each phase once, in order."""
    transition = run_to(PlanPhase.VERIFYING)
    phases = [change.phase for change in transition.plan.history]
    assert phases == [
        PlanPhase.PREPARING,
        PlanPhase.ACTIVATING,
        PlanPhase.DRAINING,
        PlanPhase.RETIRING,
        PlanPhase.VERIFYING,
    ]
    assert transition.is_done
    assert transition.waiting_for == ()


class CountedName(str):
    """A broker's name that counts how often it is looked up or compared."""

    __slots__ = ()
    lookups = 0

    def __hash__(self) -> int:
        CountedName.lookups += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        CountedName.lookups += 1
        return super().__eq__(other)


def test_an_answer_costs_the_same_however_many_brokers_there_are() -> None:
    """A phase of 1,000 brokers gets 1,000 answers: each looks up its own broker, not all."""
    lookups = []
    for count in (20, 200):
        names = [CountedName(f"b{number:03d}") for number in range(count)]
        target = TreeConfiguration.of(1, names, pairwise(names))
        digest = plan_digest(swap_plan(), target)
        transition = Transition(swap_plan(), target, LIMITS, TERM)
        transition.start(0)
        CountedName.lookups = 0
        for name in names[-10:]:
            result = answer(str(name), CommandPhase.PREPARE, Outcome.PREPARED)
            transition.on_result(msgspec.structs.replace(result, digest=digest), 10)
        lookups.append(CountedName.lookups)
        assert len(transition.waiting_for) == count - 10
    assert lookups[0] == lookups[1] > 0


def test_early_drained_answers_count() -> None:
    """Brokers that drain before the last one is active are not asked again."""
    transition = run_to(PlanPhase.ACTIVATING)
    for broker in BROKERS:
        transition.on_result(answer(broker, CommandPhase.ACTIVATE, Outcome.DRAINED), 10)
    for broker in BROKERS:
        transition.on_result(answer(broker, CommandPhase.ACTIVATE, Outcome.ACTIVATED), 10)
    assert transition.plan.phase is PlanPhase.RETIRING


def test_a_prepare_that_takes_too_long_is_aborted() -> None:
    """When its time-out expires the plan is aborted, naming the brokers that did not answer."""
    transition = run_to(PlanPhase.PREPARING)
    transition.on_result(answer("a", CommandPhase.PREPARE, Outcome.PREPARED), 10)
    effects = transition.on_tick(1_001)
    assert isinstance(effects[0], PersistPlan)
    assert effects[0].plan.phase is PlanPhase.ABORTING
    assert "b, c" in effects[0].plan.history[-1].reason
    for broker in BROKERS:
        effects = transition.on_result(answer(broker, CommandPhase.ABORT, Outcome.ABORTED), 1_100)
    assert transition.plan.phase is PlanPhase.ABORTED
    assert [effect.event.kind for effect in effects if isinstance(effect, EmitEvent)] == [EventKind.PLAN_ABORTED]


def test_a_refused_prepare_is_aborted_at_once() -> None:
    """One broker that refuses to prepare ends the plan before anything has changed."""
    transition = run_to(PlanPhase.PREPARING)
    refusal = msgspec.structs.replace(answer("b", CommandPhase.PREPARE, Outcome.REFUSED), reason="holds epoch 7")
    transition.on_result(refusal, 10)
    assert transition.plan.phase is PlanPhase.ABORTING
    assert "holds epoch 7" in transition.plan.history[-1].reason


def test_a_plan_can_be_cancelled_until_it_is_activated() -> None:
    """After the point of no return nothing that would undo the plan is sent."""
    transition = run_to(PlanPhase.PREPARING)
    transition.cancel("not wanted any more", 20)
    assert transition.plan.phase is PlanPhase.ABORTING
    for phase in (phase for phase, facts in LIFE.items() if facts.is_committed and not facts.is_final):
        transition = run_to(phase)
        assert transition.cancel("not wanted any more", 20) == []
        assert transition.plan.phase is phase


def test_after_activation_a_stall_is_reported_once_and_never_aborted() -> None:
    """A drain that hangs raises one event, and its commands are repeated."""
    transition = run_to(PlanPhase.DRAINING)
    first = transition.on_tick(2_000)
    assert [effect.event.kind for effect in first if isinstance(effect, EmitEvent)] == [EventKind.PLAN_STALLED]
    later = transition.on_tick(4_000)
    assert {type(effect) for effect in later} == {SendCommand}
    assert transition.plan.phase is PlanPhase.DRAINING


def test_a_plan_is_aborted_when_a_broker_is_found_dead_before_all_are_known_to_be_prepared() -> None:
    """Even if the last answer reports it and the dead broker had prepared: a plan needs every broker."""
    transition = run_to(PlanPhase.PREPARING)
    for broker in ("a", "b"):
        transition.on_result(answer(broker, CommandPhase.PREPARE, Outcome.PREPARED), 10)
    transition.on_result(answer("c", CommandPhase.PREPARE, Outcome.PREPARED, lost=("b",)), 10)
    assert transition.plan.phase is PlanPhase.ABORTING
    assert "b dead" in transition.plan.history[-1].reason


def test_draining_that_waits_for_a_dead_broker_ends_in_time_and_the_others_are_notified() -> None:
    """What was in transit from there is lost; brokers that still wait for it may continue."""
    transition = run_to(PlanPhase.DRAINING)
    transition.on_result(answer("a", CommandPhase.ACTIVATE, Outcome.DRAINED, lost=("b",)), 10)
    transition.on_result(answer("c", CommandPhase.ACTIVATE, Outcome.ACTIVATED, lost=("b",)), 10)
    effects = transition.on_tick(1_011)
    assert transition.plan.phase is PlanPhase.RETIRING
    commands = [effect.command for effect in effects if isinstance(effect, SendCommand)]
    assert [(command.broker, command.phase) for command in commands] == [
        ("a", CommandPhase.RETIRE),
        ("c", CommandPhase.RETIRE),
    ]
    assert {command.lost_brokers for command in commands} == {("b",)}


def test_unanswered_commands_are_repeated_to_those_that_did_not_answer() -> None:
    """Repeats go only to the brokers still awaited, and not more often than the limit."""
    transition = run_to(PlanPhase.PREPARING)
    transition.on_result(answer("b", CommandPhase.PREPARE, Outcome.PREPARED), 10)
    assert transition.on_tick(199) == []
    repeated = [effect.command.broker for effect in transition.on_tick(200) if isinstance(effect, SendCommand)]
    assert repeated == ["a", "c"]
    assert transition.on_tick(300) == []


def test_a_restarted_controller_repeats_the_commands_of_the_persisted_phase() -> None:
    """From each persisted phase a new controller resumes with that phase's command to every broker."""
    expected = {phase: facts.command for phase, facts in LIFE.items() if facts.is_moving and not facts.is_aborted}
    for phase, command in expected.items():
        resumed = Transition(run_to(phase).plan, TARGET, LIMITS, TERM)
        sent = [effect.command for effect in resumed.resume(50) if isinstance(effect, SendCommand)]
        assert [(one.broker, one.phase) for one in sent] == [(broker, command) for broker in BROKERS]


def test_late_repeated_and_foreign_answers_change_nothing() -> None:
    """Only awaited answers to the present plan advance it."""
    transition = run_to(PlanPhase.DRAINING)
    assert transition.on_result(answer("a", CommandPhase.PREPARE, Outcome.PREPARED), 20) == []
    for broker in BROKERS:
        assert transition.on_result(answer(broker, CommandPhase.ACTIVATE, Outcome.DRAINED, plan="plan-0"), 20) == []
    assert transition.on_result(answer("zz", CommandPhase.ACTIVATE, Outcome.DRAINED), 20) == []
    assert transition.plan.phase is PlanPhase.DRAINING


def test_control_messages_of_brokers_are_summed_without_counting_repeats() -> None:
    """A broker reports a running count, so repeats do not add up."""
    transition = run_to(PlanPhase.PREPARING)
    for sent in (3, 5, 5):
        transition.on_result(answer("a", CommandPhase.PREPARE, Outcome.PREPARED, sent=sent), 10)
    transition.on_result(answer("b", CommandPhase.PREPARE, Outcome.PREPARED, sent=2), 10)
    transition.on_result(answer("c", CommandPhase.PREPARE, Outcome.PREPARED, sent=1), 10)
    assert transition.plan.control_messages == 8


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("plan", {"plan": "plan-2"}),
        ("digest", {"digest": "another"}),
        ("digest", {"digest": ""}),
        ("term", {"term": TERM - 1}),
        ("term", {"term": TERM + 1}),
        ("broker", {"broker": "stranger"}),
    ],
)
@pytest.mark.parametrize("phase", [phase for phase, facts in LIFE.items() if facts.is_moving])
def test_answers_to_other_plans_and_leaders_are_ignored(phase: PlanPhase, part: str, change: dict[str, object]) -> None:
    """Answers to another plan of that epoch and to another leader are on the same topic: they do not count."""
    facts = LIFE[phase]
    assert facts.command is not None
    assert facts.answer is not None
    for outcome in (facts.answer, Outcome.REFUSED):
        transition = run_to(phase)
        before = transition.waiting_for
        foreign = msgspec.structs.replace(answer("b", facts.command, outcome), **change)
        assert transition.foreign_part(foreign) == part
        assert transition.on_result(foreign, 20) == []
        assert (transition.plan.phase, transition.waiting_for) == (phase, before)


def test_commands_carry_term_and_digest_in_every_phase() -> None:
    for phase in (phase for phase, facts in LIFE.items() if facts.is_moving):
        commands = [one.command for one in run_to(phase).resume(20) if isinstance(one, SendCommand)]
        assert {(one.term, one.digest) for one in commands} == {(TERM, plan_digest(swap_plan(), TARGET))}


@pytest.mark.parametrize("refusal", [Refusal.PLAN, Refusal.EPOCH])
def test_a_broker_that_another_plan_holds_needs_no_abort(refusal: Refusal) -> None:
    """If two controllers' plans meet, each is held by some brokers only, and both end."""
    transition = run_to(PlanPhase.ABORTING)
    for broker in ("a", "b"):
        transition.on_result(answer(broker, CommandPhase.ABORT, Outcome.ABORTED), 20)
    refused = msgspec.structs.replace(answer("c", CommandPhase.ABORT, Outcome.REFUSED), refusal=refusal)
    transition.on_result(refused, 20)
    assert transition.plan.phase is PlanPhase.ABORTED


def test_a_refused_abort_of_our_own_plan_is_a_stall() -> None:
    """A broker that has activated a plan that is to be aborted must not be ignored."""
    transition = run_to(PlanPhase.ABORTING)
    for broker in ("a", "b"):
        transition.on_result(answer(broker, CommandPhase.ABORT, Outcome.ABORTED), 20)
    refused = msgspec.structs.replace(answer("c", CommandPhase.ABORT, Outcome.REFUSED), refusal=Refusal.PHASE)
    (effect,) = transition.on_result(refused, 20)
    assert isinstance(effect, EmitEvent)
    assert (effect.event.kind, transition.plan.phase) == (EventKind.PLAN_STALLED, PlanPhase.ABORTING)


def test_an_epoch_held_elsewhere_is_not_an_answer_to_later_phases() -> None:
    """Only a plan that was never activated can give way to the other one."""
    transition = run_to(PlanPhase.RETIRING)
    refused = msgspec.structs.replace(answer("c", CommandPhase.RETIRE, Outcome.REFUSED), refusal=Refusal.PLAN)
    transition.on_result(refused, 20)
    assert "c" in transition.waiting_for


def commands_in(effects: list[TransitionEffect]) -> list[Command]:
    return [effect.command for effect in effects if isinstance(effect, SendCommand)]


def test_a_death_declared_before_the_point_of_no_return_ends_the_plan_without_that_broker() -> None:
    """The living brokers are commanded to abort, and the dead one is not waited for."""
    transition = run_to(PlanPhase.PREPARING)
    effects = transition.lose({"b", "stranger"}, 20)
    assert transition.plan.phase is PlanPhase.ABORTING
    assert "b declared dead" in transition.plan.history[-1].reason
    assert [(one.broker, one.phase, one.lost_brokers) for one in commands_in(effects)] == [
        (broker, CommandPhase.ABORT, ("b",)) for broker in ("a", "c")
    ]
    assert transition.lose({"b"}, 30) == []
    for broker in ("a", "c"):
        transition.on_result(answer(broker, CommandPhase.ABORT, Outcome.ABORTED), 40)
    assert transition.plan.phase is PlanPhase.ABORTED


@pytest.mark.parametrize("phase", [PlanPhase.ACTIVATING, PlanPhase.DRAINING, PlanPhase.RETIRING])
def test_a_committed_plan_continues_at_once_without_a_broker_declared_dead(phase: PlanPhase) -> None:
    """Two die one after the other; the living one is notified at once, and its answers alone complete the plan."""
    transition = run_to(phase)
    commands = commands_in(transition.lose({"b"}, 20))
    assert [(one.broker, one.phase, one.lost_brokers) for one in commands] == [
        (broker, LIFE[phase].command, ("b",)) for broker in ("a", "c")
    ]
    commands = commands_in(transition.lose({"b", "c"}, 30))
    assert [(one.broker, one.lost_brokers) for one in commands] == [("a", ("b", "c"))]
    while not transition.is_done:
        facts = LIFE[transition.plan.phase]
        assert facts.command is not None
        assert facts.answer is not None
        effects = transition.on_result(answer("a", facts.command, facts.answer), 40)
        assert {one.broker for one in commands_in(effects)} <= {"a"}
    assert transition.plan.phase is PlanPhase.VERIFYING


def test_the_death_of_the_last_awaited_broker_completes_the_plan() -> None:
    """The broker declared dead was the only one still awaited."""
    transition = run_to(PlanPhase.RETIRING)
    for broker in ("a", "c"):
        transition.on_result(answer(broker, CommandPhase.RETIRE, Outcome.RETIRED), 10)
    transition.lose({"b"}, 20)
    assert transition.plan.phase is PlanPhase.VERIFYING


def test_all_living_and_joining_brokers_take_part() -> None:
    """A plan without b, which is lost, and c, which leaves, but with d, which joins."""
    target = TreeConfiguration.of(1, "ad", [("a", "d")])
    bare = msgspec.structs.replace(swap_plan(), links_removed=(), links_added=(), brokers_lost=("b",))
    plan = target.as_target(bare, TreeConfiguration.of(0, BROKERS, [("a", "b"), ("b", "c")]))
    transition = Transition(plan, target, LIMITS, TERM, BrokerChange.between(BROKERS, target.brokers, ["b"]))
    commands = commands_in(transition.start(0))
    assert [one.broker for one in commands] == ["a", "c", "d"]
    assert {(one.brokers_joined, one.brokers_left, one.lost_brokers) for one in commands} == {(("d",), ("c",), ("b",))}


def test_a_broker_returning_by_a_plan_is_lost_only_when_its_new_life_ends() -> None:
    """Neighbours keep reporting the death of its old incarnation, which ends nothing."""
    target = TreeConfiguration.of(1, BROKERS, [("a", "c"), ("b", "c")])
    before = TreeConfiguration.of(0, BROKERS, [("a", "b"), ("b", "c")])
    plan = target.as_target(msgspec.structs.replace(swap_plan(), brokers_lost=("b",)), before)
    transition = Transition(plan, target, LIMITS, TERM, BrokerChange.between(BROKERS, BROKERS, ["b"]))
    assert {one.lost_brokers for one in commands_in(transition.start(0))} == {("b",)}
    digest = plan_digest(plan, target)
    for broker in BROKERS:
        result = msgspec.structs.replace(
            answer(broker, CommandPhase.PREPARE, Outcome.PREPARED, lost=("b",)), digest=digest
        )
        effects = transition.on_result(result, 10)
    assert transition.plan.phase is PlanPhase.ACTIVATING
    assert {(one.broker, one.lost_brokers) for one in commands_in(effects)} == {(broker, ()) for broker in BROKERS}
    effects = transition.lose({"b"}, 20)
    assert {(one.broker, one.lost_brokers) for one in commands_in(effects)} == {("a", ("b",)), ("c", ("b",))}


def test_reports_about_an_earlier_life_do_not_prevent_a_broker_from_joining() -> None:
    """A plan removed it long ago; the neighbours that found it dead keep reporting that."""
    target = TreeConfiguration.of(1, BROKERS, [("a", "c"), ("b", "c")])
    before = TreeConfiguration.of(0, ("a", "c"), [("a", "c")])
    plan = target.as_target(msgspec.structs.replace(swap_plan(), brokers_lost=()), before)
    transition = Transition(plan, target, LIMITS, TERM, BrokerChange.between(before.brokers, BROKERS))
    transition.start(0)
    for broker in BROKERS:
        result = answer(broker, CommandPhase.PREPARE, Outcome.PREPARED, lost=("b",))
        transition.on_result(msgspec.structs.replace(result, digest=plan_digest(plan, target)), 10)
    assert transition.plan.phase is PlanPhase.ACTIVATING


def test_a_broker_that_only_a_neighbour_reports_dead_is_notified_of_the_abort_too() -> None:
    """It may be alive and hold tables of the plan; its answer is not waited for."""
    transition = run_to(PlanPhase.PREPARING)
    effects = transition.on_result(answer("a", CommandPhase.PREPARE, Outcome.PREPARED, lost=("b",)), 10)
    assert [one.broker for one in commands_in(effects)] == list(BROKERS)
    for broker in ("a", "c"):
        transition.on_result(answer(broker, CommandPhase.ABORT, Outcome.ABORTED), 20)
    assert transition.plan.phase is PlanPhase.ABORTED


def test_for_a_returning_broker_only_a_declared_death_counts() -> None:
    """Neighbours that report the earlier death do not abort the plan; a declared death does."""
    transition = Transition(swap_plan(), TARGET, LIMITS, TERM, BrokerChange(joined=frozenset({"b"})))
    transition.start(0)
    transition.on_result(answer("a", CommandPhase.PREPARE, Outcome.PREPARED, lost=("b",)), 10)
    assert transition.plan.phase is PlanPhase.PREPARING
    transition.lose({"b"}, 20)
    assert transition.plan.phase is PlanPhase.ABORTING
