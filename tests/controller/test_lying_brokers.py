"""Brokers that report running neighbours dead: whom the control loop believes, and what it costs the liar."""

from dataclasses import replace

import msgspec
import pytest

from regraft.controller.execute.weigh_claims import MUTED_MS, UNFOUNDED_MAX
from regraft.overlay.inventory.inventory import Inventory
from regraft.schemas.bounds import PLAN_MESSAGES_MAX
from regraft.schemas.command import Command, CommandResult
from regraft.schemas.event import EventKind
from regraft.schemas.member import MemberState
from regraft.schemas.plan import PlanPhase
from tests.controller.scripted_fleet import ScriptedFleet
from tests.controller.scripted_overlay import ScriptedOverlay, settings_of
from tests.controller.scripted_windows import WINDOW_MS
from tests.controller.test_control_loop import INVENTORY, far_ends
from tests.controller.test_membership import fleet_of

AGENTS = dict(zip(INVENTORY.brokers, ("west", "east", "west", "north", "east"), strict=True))


def fleet_with_agents() -> ScriptedFleet:
    fleet = fleet_of(inventory=with_agents())
    fleet.run_windows(6)
    return fleet


def with_agents() -> Inventory:
    return replace(INVENTORY, agent_of=AGENTS)


def windows_outside(fleet: ScriptedFleet, broker: str, windows: int) -> int:
    """Return in how many of the next windows a broker is not in service."""
    outside = 0
    for _ in range(windows):
        fleet.run_windows(1)
        outside += fleet.member(broker).state is not MemberState.IN_SERVICE or broker in fleet.lost
    return outside


def test_a_broker_has_no_say_about_brokers_that_are_not_its_neighbours() -> None:
    """Not even about silent ones: these are declared dead as if nobody had reported them."""
    for lies in (False, True):
        fleet = fleet_of()
        fleet.run_windows(6)
        far = next(one for one in INVENTORY.brokers if one not in (*INVENTORY.bootstrap.neighbours["b04"], "b04"))
        for _ in range(10):
            fleet.report_lost("b04", far)
            assert windows_outside(fleet, far, 2) == 0
        fleet.dead.add(far)
        if lies:
            fleet.report_lost("b04", far)
        fleet.run_until(MemberState.DEAD, far)
        assert fleet.member(far).reason == "silent for 2 s"


def test_one_agent_cannot_have_a_running_broker_of_another_one_admitted_again() -> None:
    """However often its brokers report that, and in however many answers; after some of them they are ignored."""
    fleet = fleet_with_agents()
    outside = 0
    for _ in range(30):
        fleet.report_lost("b01", "b02")
        outside += windows_outside(fleet, "b02", 2)
    assert outside == 0
    assert fleet.plans == []
    (doubt,) = fleet.events_of(EventKind.DEATHS_IMPLAUSIBLE)
    assert doubt.startswith("b01 keeps reporting that neighbours are dead, most recently b02")
    assert fleet.metrics.registry.get_sample_value(
        "regraft_controller_peer_claims_total", {"outcome": "unfounded"}
    ) == (UNFOUNDED_MAX)


def test_a_running_broker_that_neighbours_of_two_agents_ignore_is_admitted_again() -> None:
    """The second one confirms what the first one reported some windows before."""
    fleet = fleet_with_agents()
    fleet.report_lost("b01", "b02")
    assert windows_outside(fleet, "b02", 4) == 0
    fleet.report_lost("b03", "b02")
    fleet.run_until(MemberState.JOINING, "b02")
    assert fleet.member("b02").reason == "b01 and b03 consider it dead, though it runs, and ignore it"
    fleet.run_until(MemberState.IN_SERVICE, "b02")


def test_a_death_is_found_as_soon_as_a_window_confirms_the_neighbours_word() -> None:
    """Silence is the second witness, whichever agents the two belong to."""
    fleet = fleet_with_agents()
    fleet.dead.add("b02")
    fleet.report_lost("b01", "b02")
    fleet.run_windows(2)
    assert fleet.member("b02").state is MemberState.DEAD
    assert fleet.member("b02").reason.startswith("a neighbour has lost it")


@pytest.mark.parametrize("victims", [("b00",), ("b00", "b02")])
def test_within_one_agent_a_broker_alone_is_believed_once(victims: tuple[str, ...]) -> None:
    """One agent is responsible for both; from then on it is ignored for a while."""
    fleet = fleet_of()
    fleet.run_windows(6)
    for victim in victims:
        fleet.report_lost("b01", victim)
    fleet.run_until(MemberState.JOINING, "b00")
    fleet.run_until(MemberState.IN_SERVICE, "b00")
    outside = 0
    for _ in range(MUTED_MS // WINDOW_MS // 20):
        for victim in victims:
            fleet.report_lost("b01", victim)
            outside += windows_outside(fleet, victim, 10 // len(victims))
    assert outside == 0
    assert len(fleet.plans) == 1


def test_a_broker_alone_ends_plans_only_until_it_is_muted() -> None:
    """Its word ends a plan that is being prepared, as its refusal would; but not one plan after the other."""
    fleet = fleet_with_agents()
    answers = fleet._answers

    def lying(command: Command) -> list[CommandResult]:
        lost = ("b02",) if command.broker == "b01" else ()
        return [msgspec.structs.replace(one, lost_peers=lost) for one in answers(command)]

    fleet._answers = lying  # type: ignore[method-assign]
    fleet.restart("b04")
    fleet.run_until(MemberState.JOINING, "b04")
    fleet.run_until(MemberState.IN_SERVICE, "b04")
    fleet.run_windows(3)
    phases = [plan.phase for plan in fleet.plans]
    assert set(phases[:-1]) == {PlanPhase.ABORTED}
    assert phases[-1] is PlanPhase.COMPLETED
    assert len(phases) <= 2 * UNFOUNDED_MAX  # each word counts once the next window is there
    assert fleet.member("b02").state is MemberState.IN_SERVICE


@pytest.mark.parametrize("stored", [True, False])
def test_one_count_of_messages_does_not_price_later_plans_out(*, stored: bool) -> None:
    """Neither from an answer now, nor from a log that an earlier version has stored."""
    overlay = ScriptedOverlay(INVENTORY, far_ends, settings_of())
    answers = overlay._answers
    lie = PLAN_MESSAGES_MAX

    def lying(command: Command) -> list[CommandResult]:
        sent = lie if command.broker == "b04" and not stored else 3
        return [msgspec.structs.replace(one, control_messages=sent) for one in answers(command)]

    overlay._answers = lying  # type: ignore[method-assign]
    overlay.run_windows(20)
    (plan,) = overlay.plans
    assert plan.phase is PlanPhase.COMPLETED
    if stored:
        overlay.ports.plans.stored[plan.plan] = msgspec.structs.replace(plan, control_messages=(1 << 63) - 20)
    overlay.new_loop()
    overlay.wanted = lambda start_ms: [{"b01", "b03"}] * 40
    overlay.run_windows(40)
    assert len(overlay.plans) > 1
