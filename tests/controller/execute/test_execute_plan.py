"""The plan runner: which term and name it stores and sends, and when it is deposed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from regraft.controller.execute.execute_plan import PlanRunner
from regraft.controller.execute.transition import PersistPlan
from regraft.controller.ports.memory_ports import MemoryPorts
from regraft.controller.settings.controller_settings import TERM_LEAP_MAX, TransitionLimits
from regraft.controller.state.plan_log import PlanLog
from regraft.overlay.overlay_configuration import BrokerChange, plan_digest
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.schemas.command import Command, CommandPhase, CommandResult, Outcome, Refusal
from regraft.schemas.plan import Plan, PlanPhase
from regraft.schemas.plan_life import LIFE, answers_to
from tests.controller.execute.test_transition import BROKERS, swap_plan
from tests.overlay.small_overlays import inventory_of

BEFORE = TreeConfiguration.of(0, BROKERS, [("a", "b"), ("b", "c")])
MOVING = [phase for phase, facts in LIFE.items() if facts.is_moving]


class Controller:
    """A plan runner over ports in memory; ``ports`` outlive it."""

    def __init__(self, term: int = 1, instance: str = "one", ports: MemoryPorts | None = None) -> None:
        self.ports = ports or MemoryPorts()
        self.foreign: Counter[str] = Counter()
        self.log = PlanLog(inventory_of(BEFORE, {}), self.ports.plans.load() or ())
        self.runner = PlanRunner(
            self.ports.ports, self.log, TransitionLimits(), on_foreign=self._count, term=term, instance=instance
        )

    def _count(self, part: str) -> None:
        self.foreign[part] += 1

    def take_commands(self) -> list[Command]:
        found = list(self.ports.commands.sent)
        self.ports.commands.sent.clear()
        return found

    def run_to(self, phase: PlanPhase) -> None:
        """Begin a plan and answer its commands until it is in this phase and has sent all of that phase's commands."""
        self.runner.begin(swap_plan(), 0)
        self.runner.advance(0)
        if phase is PlanPhase.ABORTING:
            self.runner.cancel("no more", 0)
            self.runner.advance(0)
        while self.stored.phase is not phase:
            answer = LIFE[self.stored.phase].answer
            for command in (
                self.take_commands() if self.stored.phase is not PlanPhase.DRAINING else self.repeated_commands()
            ):
                self.ports.results.records.extend(one for one in answers(command) if one.outcome is answer)
            self.runner.advance(0)

    def repeated_commands(self) -> list[Command]:
        self.runner.advance(TransitionLimits().resend_ms)
        return self.take_commands()

    @property
    def stored(self) -> Plan:
        return self.ports.plans.stored["plan-1"]


def joining_plan(epoch_to: int) -> Plan:
    """Return a plan by which d joins."""
    target = BEFORE.replaced(epoch_to, (), [("c", "d")], change=BrokerChange(joined=frozenset("d")))
    bare = msgspec.structs.replace(swap_plan(), plan=f"plan-{epoch_to}", epoch_to=epoch_to)
    return target.as_target(bare, BEFORE)


def answers(command: Command, **changes: Any) -> list[CommandResult]:
    return [
        msgspec.structs.replace(
            CommandResult(
                command.plan, command.phase, command.broker, command.epoch_to, outcome, "", 0, 0,
                term=command.term, digest=command.digest,
            ),
            **changes,
        )
        for outcome in answers_to(command.phase)
    ]  # fmt: skip


def test_every_stored_version_has_its_term_and_the_instance_that_began_it() -> None:
    """So does a plan that waits for approval: it has not been begun by anybody."""
    controller = Controller(5)
    controller.runner.add([PersistPlan(msgspec.structs.replace(swap_plan(), phase=PlanPhase.PROPOSED))])
    controller.runner.advance(0)
    assert (controller.stored.term, controller.stored.begun_by) == (5, "")
    controller.run_to(PlanPhase.RETIRING)
    begun = controller.ports.plans.versions[1:]
    assert {(plan.term, plan.begun_by) for plan in begun} == {(5, "one")}
    assert controller.log.plans == (controller.stored,)


def test_plans_that_differ_only_in_the_instance_have_different_digests() -> None:
    """Two controllers that do not know of each other choose the same change for the same epoch."""
    digests = set()
    for name in ("one", "two"):
        controller = Controller(instance=name)
        controller.run_to(PlanPhase.PREPARING)
        digests |= {command.digest for command in controller.take_commands()}
    assert len(digests) == 2


def test_a_joining_broker_first_gets_the_aborts_of_earlier_plans_for_its_join() -> None:
    """It was considered dead and not waited for, so it may have prepared the first plan. Others get no such abort."""
    controller = Controller()
    controller.runner.begin(joining_plan(1), 0)
    controller.runner.lose(["d"])
    controller.runner.advance(0)
    first = [one for one in controller.take_commands() if one.phase is CommandPhase.ABORT]
    assert {one.broker for one in first} == {"a", "b", "c"}
    controller.ports.results.records.extend(one for command in first for one in answers(command))
    controller.runner.advance(0)
    assert controller.stored.phase is PlanPhase.ABORTED
    controller.runner.lose([])
    controller.runner.begin(joining_plan(2), 0)
    controller.runner.advance(0)
    sent = [(one.plan, one.phase, one.digest) for one in controller.take_commands() if one.broker == "d"]
    assert sent[0] == ("plan-1", CommandPhase.ABORT, first[0].digest)
    assert [one[:2] for one in sent[1:]] == [("plan-2", CommandPhase.PREPARE)]


@pytest.mark.parametrize("phase", MOVING)
def test_a_successor_resumes_a_plan_unchanged(phase: PlanPhase) -> None:
    """Plan and digest stay, the term becomes the successor's; answers to its predecessor do not count."""
    first = Controller(1)
    first.run_to(phase)
    first.take_commands()
    second = Controller(2, "two", first.ports)
    second.runner.advance(0)
    commands = second.take_commands()
    assert {command.broker for command in commands} == set(BROKERS)
    assert {(one.term, one.digest) for one in commands} == {
        (2, plan_digest(first.stored, BEFORE.target_of(first.stored)))
    }
    for command in commands:
        second.ports.results.records.extend(answers(command, term=1))
    second.runner.advance(1)
    assert second.stored.phase is phase
    assert second.foreign == {"term": len(BROKERS) * len(answers_to(commands[0].phase))}
    for command in commands:
        second.ports.results.records.extend(answers(command))
    second.runner.advance(2)
    assert second.stored.phase is not phase
    assert (second.stored.term, second.stored.begun_by) == (2, "one")


@pytest.mark.parametrize("phase", [*MOVING, PlanPhase.VERIFYING])
@pytest.mark.parametrize("is_refused", [True, False])
def test_a_controller_that_learns_of_a_higher_term_stores_and_sends_nothing(phase: PlanPhase, is_refused: bool) -> None:
    """Refused or not, for this plan or another: a broker that knows a higher term obeys another leader."""
    controller = Controller(2)
    controller.run_to(phase)
    controller.take_commands()
    versions = len(controller.ports.plans.versions)
    own = Command("plan-1", LIFE[PlanPhase.PREPARING].command, "b", 0, 1, term=2)  # type: ignore[arg-type]
    (result,) = answers(own, term=3)
    if is_refused:
        result = msgspec.structs.replace(result, outcome=Outcome.REFUSED, refusal=Refusal.TERM)
    controller.ports.results.records.append(result)
    for now_ms in (0, 10**6, 2 * 10**6):
        controller.runner.advance(now_ms)
        controller.runner.cancel("too late", now_ms)
    assert controller.runner.deposed_by_term == 3
    assert controller.take_commands() == []
    assert len(controller.ports.plans.versions) == versions


def test_an_impossible_term_does_not_depose_the_leader() -> None:
    """A faulty or lying broker cannot end a leader's rule for good: the next term must exceed any that is believed."""
    controller = Controller(2)
    controller.run_to(PlanPhase.PREPARING)
    commands = controller.take_commands()
    (result,) = answers(commands[0], term=2 + TERM_LEAP_MAX + 1)
    controller.ports.results.records.append(result)
    for command in commands:
        controller.ports.results.records.extend(answers(command))
    controller.runner.advance(1)
    assert controller.runner.deposed_by_term == 0
    assert controller.foreign == {"term": 1}
    assert controller.stored.phase is not PlanPhase.PREPARING


@pytest.mark.parametrize(("speakers", "is_deposed"), [(("a",), False), (("a", "b"), True)])
def test_a_leader_in_doubt_believes_no_single_broker_that_another_one_leads(
    speakers: tuple[str, ...], is_deposed: bool
) -> None:
    """Or that broker would depose each leader again and again."""
    controller = Controller(2)
    controller.runner.believes_one = False
    controller.run_to(PlanPhase.PREPARING)
    commands = controller.take_commands()
    for broker in speakers:
        own = next(one for one in commands if one.broker == broker)
        controller.ports.results.records.extend(answers(own, term=3))
    for command in commands:
        controller.ports.results.records.extend(answers(command))
    controller.runner.advance(1)
    assert (controller.runner.deposed_by_term > 0) is is_deposed
    assert (controller.stored.phase is PlanPhase.PREPARING) is is_deposed
    assert controller.runner.is_deposed_by_one is not is_deposed


def test_a_deposed_controller_stores_no_pending_plan() -> None:
    """The store was away; when it is back another controller leads."""
    controller = Controller(2)
    controller.ports.plans.is_unavailable = True
    controller.runner.begin(swap_plan(), 0)
    controller.runner.advance(0)
    (result,) = answers(Command("plan-9", LIFE[PlanPhase.PREPARING].command, "b", 8, 9, term=3))  # type: ignore[arg-type]
    controller.ports.results.records.append(result)
    controller.runner.advance(1)
    controller.ports.plans.is_unavailable = False
    controller.runner.advance(2)
    assert controller.ports.plans.stored == {}
    assert controller.take_commands() == []
