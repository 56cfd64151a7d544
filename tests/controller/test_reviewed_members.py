"""A dry run: what no operator ordered waits for approval, deaths and returns of brokers included."""

import pytest

from regraft.controller.settings.decision_settings import DecisionSettings
from regraft.controller.settings.member_settings import MemberSettings
from regraft.schemas.announcement import Announcement
from regraft.schemas.command import CommandPhase
from regraft.schemas.event import EventKind
from regraft.schemas.member import BrokerFacts, MemberState, PeerCost
from regraft.schemas.order import Order, OrderKind
from regraft.schemas.plan import Plan, PlanPhase
from tests.controller.scripted_fleet import ScriptedFleet
from tests.controller.scripted_overlay import settings_of
from tests.controller.test_control_loop import INVENTORY, far_ends
from tests.controller.test_membership import QUICK, fleet_of

WITHOUT_B01 = tuple(one for one in INVENTORY.brokers if one != "b01")


def reviewed(**changes: object) -> ScriptedFleet:
    """A fleet in a dry run that has settled."""
    fleet = fleet_of(dry_run=True, **changes)
    fleet.run_windows(6)
    return fleet


def waiting(fleet: ScriptedFleet) -> Plan:
    """Return the one plan that waits for approval."""
    (plan,) = [plan for plan in fleet.plans if plan.phase is PlanPhase.PROPOSED]
    return plan


def answer(fleet: ScriptedFleet, kind: OrderKind, plan: Plan) -> None:
    """Approve or refuse a plan as an operator who sees it."""
    fleet.ports.orders.records.append(
        Order(plan.plan, kind, "ada", "because", fleet.now_ms, 0, False, plan.approval_digest)
    )


def die(fleet: ScriptedFleet, broker: str) -> None:
    """Let a broker die, and the controller notice it and do what it does."""
    fleet.dead.add(broker)
    fleet.run_until(MemberState.DEAD, broker)
    fleet.run_windows(3)


def test_a_repair_waits_for_approval_and_is_executed_as_shown() -> None:
    """Nothing is sent before; event and plan say what waits, and the overlay is whole once the plan is approved."""
    fleet = reviewed()
    die(fleet, "b01")
    repair = waiting(fleet)
    assert (repair.brokers_lost, repair.is_membership) == (("b01",), True)
    assert fleet.received == []
    assert fleet.lost == {"b01"}
    assert fleet.events_of(EventKind.REPAIR_WAITS) == [
        f"repair of b01 waits: approve {repair.plan} (`regraft plans approve`)"
    ]
    assert fleet.ports.view.shown.plan_in_review == repair.plan
    answer(fleet, OrderKind.APPROVE, repair)
    fleet.run_windows(3)
    (executed,) = fleet.plans
    assert (executed.phase, executed.links_target) == (PlanPhase.COMPLETED, repair.links_target)
    assert [one.reason for one in executed.history][:2] == ["waits for approval; b01 lost", "approved by ada: because"]
    assert fleet.present_brokers == WITHOUT_B01


def test_a_broker_that_restarted_is_reset_only_once_that_is_approved() -> None:
    """It is a broker of the overlay in force, and may be serving: no INSTALL before the approval."""
    fleet = reviewed()
    fleet.restart("b01")
    fleet.run_until(MemberState.JOINING, "b01")
    fleet.run_windows(5)
    assert fleet.received == []
    answer(fleet, OrderKind.APPROVE, waiting(fleet))
    fleet.run_until(MemberState.IN_SERVICE, "b01")
    assert fleet.received[0].phase is CommandPhase.INSTALL
    assert [(plan.brokers_lost, plan.brokers_target) for plan in fleet.plans] == [(("b01",), INVENTORY.brokers)]


def test_a_return_is_proposed_like_a_repair() -> None:
    """The broker is out of the overlay by an approved plan; it comes back by another one."""
    fleet = reviewed()
    die(fleet, "b01")
    answer(fleet, OrderKind.APPROVE, waiting(fleet))
    fleet.run_windows(3)
    fleet.restart("b01")
    fleet.run_until(MemberState.JOINING, "b01")
    fleet.run_windows(3)
    assert fleet.present_brokers == WITHOUT_B01
    assert "b01" not in {one.broker for one in fleet.received}
    answer(fleet, OrderKind.APPROVE, waiting(fleet))
    fleet.run_until(MemberState.IN_SERVICE, "b01")
    assert fleet.present_brokers == INVENTORY.brokers


def test_a_repair_that_no_longer_fits_gives_way_to_one_that_does() -> None:
    """The dead broker comes back while its repair waits: that one is refused, and the next brings the broker back."""
    fleet = reviewed()
    die(fleet, "b01")
    first = waiting(fleet)
    fleet.restart("b01")
    fleet.run_until(MemberState.JOINING, "b01")
    fleet.run_windows(2)
    assert fleet.plans[0].phase is PlanPhase.REFUSED
    assert "other brokers have died, joined or left since" in fleet.plans[0].history[-1].reason
    second = waiting(fleet)
    assert (second.plan != first.plan, second.brokers_lost, second.brokers_target) == (
        True,
        ("b01",),
        INVENTORY.brokers,
    )


def test_a_refused_repair_is_shown_again_only_after_a_while_or_for_another_death() -> None:
    """Otherwise each step would bring it back; but a further death is another change."""
    decision = DecisionSettings(cool_down_windows=2, pay_back_s=600.0, window_age_ms_max=5_000, mute_ms=20_000)
    fleet = reviewed(decision=decision)
    die(fleet, "b01")
    answer(fleet, OrderKind.REFUSE, waiting(fleet))
    fleet.run_windows(10)
    assert [plan.phase for plan in fleet.plans] == [PlanPhase.REFUSED]
    fleet.run_windows(20)
    assert waiting(fleet).brokers_lost == ("b01",)
    answer(fleet, OrderKind.REFUSE, waiting(fleet))
    die(fleet, "b03")
    assert waiting(fleet).brokers_lost == ("b01", "b03")


def test_a_repair_is_shown_before_a_plan_that_saves_and_ends_it() -> None:
    """The saving plan waits meanwhile; once the repair is executed, it no longer starts from the overlay in force."""
    fleet = ScriptedFleet(INVENTORY, lambda start_ms: far_ends(0), settings_of(members=QUICK, dry_run=True))
    fleet.run_windows(6)
    saving = waiting(fleet)
    fleet.dead.add("b01")
    fleet.run_until(MemberState.DEAD, "b01")
    fleet.run_windows(2)
    repair = next(plan for plan in fleet.plans if plan.is_membership)
    assert fleet.ports.view.shown.plan_in_review == repair.plan
    answer(fleet, OrderKind.APPROVE, repair)
    fleet.run_windows(3)
    phases = {plan.plan: plan.phase for plan in fleet.plans}
    assert (phases[saving.plan], phases[repair.plan]) == (PlanPhase.REFUSED, PlanPhase.COMPLETED)


def test_a_pause_holds_an_approved_repair_but_not_its_refusal() -> None:
    """What the controller is asked to leave alone stays as it is."""
    fleet = reviewed()
    die(fleet, "b01")
    repair = waiting(fleet)
    fleet.order(OrderKind.PAUSE, "*")
    fleet.tick()
    answer(fleet, OrderKind.APPROVE, repair)
    fleet.run_windows(4)
    assert fleet.received == []
    answer(fleet, OrderKind.REFUSE, repair)
    fleet.run_windows(2)
    assert fleet.plans[0].phase is PlanPhase.REFUSED


@pytest.mark.parametrize("kind", [OrderKind.DEAD, OrderKind.DRAIN])
def test_what_an_operator_orders_needs_no_second_approval(kind: OrderKind) -> None:
    """The order is the approval, of the return of the broker, too."""
    fleet = reviewed()
    fleet.dead |= {"b01"} if kind is OrderKind.DEAD else set()
    fleet.order(kind, "b01")
    fleet.run_windows(6)
    assert fleet.present_brokers == WITHOUT_B01
    fleet.restart("b01")
    fleet.order(OrderKind.READMIT, "b01")
    fleet.run_until(MemberState.IN_SERVICE, "b01")
    assert fleet.present_brokers == INVENTORY.brokers


def test_one_ordered_death_takes_the_others_along() -> None:
    """No overlay without the one can rely on the other, so the order about the one is executed without both."""
    fleet = reviewed(members=MemberSettings(silence_ms=2_000, batch_ms=500, deaths_share_max=1.0))
    die(fleet, "b01")
    fleet.dead.add("b03")
    fleet.order(OrderKind.DEAD, "b03")
    fleet.run_windows(4)
    assert fleet.lost == frozenset()
    assert fleet.last_plan.brokers_lost == ("b01", "b03")


def test_a_broker_admitted_by_its_announcement_waits_for_approval() -> None:
    """The setting makes it a member; that it carries traffic is another matter, in a dry run."""
    fleet = fleet_of(MemberSettings(silence_ms=2_000, batch_ms=500, admit_announced=True), dry_run=True)
    fleet.run_windows(6)
    fleet.ports.announcements.records.append(
        Announcement("x01", BrokerFacts(link_costs=(PeerCost("b00", 1.0),)), fleet.now_ms)
    )
    fleet.tick()
    fleet.added = ("x01",)
    fleet.boots["x01"] = fleet.now_ms
    fleet.run_windows(4)
    assert fleet.received == []
    answer(fleet, OrderKind.APPROVE, waiting(fleet))
    fleet.run_until(MemberState.IN_SERVICE, "x01")


def test_a_setting_lets_a_dry_run_act_on_deaths_only() -> None:
    """The repair and the return need no approval, a plan that saves does."""
    settings = settings_of(members=QUICK, dry_run=True, act_on_deaths=True)
    fleet = ScriptedFleet(INVENTORY, lambda start_ms: far_ends(0), settings)
    fleet.run_windows(6)
    assert waiting(fleet).proposals[0].planner == settings.planner
    die(fleet, "b01")
    fleet.restart("b01")
    fleet.run_until(MemberState.IN_SERVICE, "b01")
    assert fleet.present_brokers == INVENTORY.brokers
    assert not any(plan.phase is PlanPhase.COMPLETED and not plan.is_membership for plan in fleet.plans)
