"""Brokers that report telemetry but answer no command: no plan waits for them forever."""

from dataclasses import dataclass, field

import pytest

from regraft.controller.settings.controller_settings import TransitionLimits
from regraft.schemas.command import Command, CommandPhase, CommandResult
from regraft.schemas.event import EventKind
from regraft.schemas.member import MemberState
from regraft.schemas.plan import PlanPhase
from tests.controller.scripted_fleet import ScriptedFleet
from tests.controller.scripted_overlay import settings_of
from tests.controller.test_control_loop import INVENTORY
from tests.controller.test_membership import QUICK, quiet

LIMITS = TransitionLimits(prepare_ms=3_000, activate_ms=3_000, drain_ms=3_000, retire_ms=3_000, resend_ms=500)


@dataclass
class DeafFleet(ScriptedFleet):
    """``deaf`` brokers answer no command of these phases."""

    deaf: set[str] = field(default_factory=set)
    unanswered: frozenset[CommandPhase] = frozenset(CommandPhase)

    def _answers(self, command: Command) -> list[CommandResult]:
        is_deaf = command.broker in self.deaf and command.phase in self.unanswered
        return [] if is_deaf else super()._answers(command)


def deaf_fleet(*deaf: str, unanswered: frozenset[CommandPhase] = frozenset(CommandPhase)) -> DeafFleet:
    fleet = DeafFleet(INVENTORY, quiet, settings_of(members=QUICK, transition=LIMITS))
    fleet.run_windows(6)
    fleet.deaf, fleet.unanswered = set(deaf), unanswered
    return fleet


@pytest.mark.parametrize(
    "first",
    [CommandPhase.PREPARE, CommandPhase.ACTIVATE, CommandPhase.RETIRE],
)
def test_a_repair_continues_without_a_broker_that_answers_nothing(first: CommandPhase) -> None:
    """From whatever command on: it counts as dead, and is back in service soon after it answers again."""
    order = (CommandPhase.PREPARE, CommandPhase.ACTIVATE, CommandPhase.RETIRE)
    later = frozenset({*order[order.index(first) :], CommandPhase.ABORT, CommandPhase.INSTALL})
    fleet = deaf_fleet("b03", unanswered=later)
    fleet.dead.add("b01")
    fleet.run_until(MemberState.DEAD, "b03", windows_max=60)
    assert fleet.member("b03").reason.startswith("it has answered no command for")
    fleet.run_windows(20)
    assert fleet.lost == frozenset()
    assert fleet.present_brokers == tuple(one for one in INVENTORY.brokers if one not in ("b01", "b03"))
    assert fleet.loop.state.plan_log.moving is None
    assert any("b03 is dead" in text for text in fleet.events_of(EventKind.MEMBER_CHANGED))
    fleet.deaf.clear()
    fleet.run_until(MemberState.IN_SERVICE, "b03")
    assert "b03" in fleet.present_brokers


def test_one_that_refuses_or_only_waits_for_others_is_not_declared_dead() -> None:
    """Each answer counts, not only the one that the plan waits for."""
    fleet = deaf_fleet()
    fleet.dead.add("b01")
    fleet.refusing = {"b03"}
    fleet.run_windows(120)
    assert fleet.member("b03").state is MemberState.IN_SERVICE


def test_if_most_brokers_answer_nothing_none_is_declared_dead() -> None:
    """More likely their answers do not get through; this is reported once."""
    fleet = deaf_fleet("b02", "b03", "b04")
    fleet.dead.add("b01")
    fleet.run_windows(120)
    assert fleet.loop.state.fleet.in_state(MemberState.DEAD) == ("b01",)
    (doubt,) = fleet.events_of(EventKind.DEATHS_IMPLAUSIBLE)
    assert "3 of 5 brokers answer no command at the same time (b02, b03, b04)" in doubt
    fleet.deaf.clear()
    fleet.run_windows(10)
    assert fleet.lost == frozenset()
    assert fleet.plans[-1].phase is PlanPhase.COMPLETED


@pytest.mark.parametrize("deaf_for", [2, 30])
def test_of_brokers_in_doubt_those_that_are_heard_last_have_their_time(deaf_for: int) -> None:
    """Answers get through again one after the other: the last two are dead only if that takes long."""
    fleet = deaf_fleet("b02", "b03", "b04")
    fleet.dead.add("b01")
    while not fleet.events_of(EventKind.DEATHS_IMPLAUSIBLE):
        fleet.run_windows(1)
    fleet.deaf = {"b03", "b04"}
    fleet.run_windows(deaf_for)
    fleet.deaf.clear()
    fleet.run_windows(1)
    late = ("b03", "b04") if deaf_for > 2 else ()
    assert tuple(one for one in ("b03", "b04") if fleet.member(one).deaths_ms) == late
