"""How a lost log of plans is rebuilt: from the overlay that all brokers hold, or refused with what each holds."""

import random

import msgspec
import pytest

from regraft.controller.execute.execute_plan import PlanLogBehindError, check_plan_log
from regraft.controller.ports.recover_plans import RecoveryRefusedError, recovered_plan
from regraft.controller.state.plan_log import PlanLog
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.inventory.members import FleetView, extended
from regraft.overlay.overlay_configuration import OverlayConfiguration, link
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.emulator.place_overlay import place_overlay, place_ring
from regraft.producers.emulator.starting_point import starting_point
from regraft.producers.virtual_overlay import VirtualOverlay, VirtualSettings
from regraft.schemas.codec import decode, encode
from regraft.schemas.command import Command, CommandPhase, CommandResult, Outcome, Refusal
from regraft.schemas.event import EventKind
from regraft.schemas.member import BrokerFacts, Member, MemberState, PeerCost
from regraft.schemas.plan import Plan, PlanPhase
from tests.controller.test_control_loop import overlay_of
from tests.producers.emulator.test_starting_point import ask, next_overlay, plan_to

TREE = place_overlay(8, 4, random.Random(1))
RING = place_ring(8, random.Random(1))
KINDS = pytest.mark.parametrize("inventory", [TREE, RING], ids=["tree", "ring"])
NOW_MS, TERM = 5_000, 7


def brokers_after(inventory: Inventory, plans: list[Plan]) -> VirtualOverlay:
    """Return brokers whose overlay is the one that the plans lead to."""
    return VirtualOverlay(inventory, None, VirtualSettings(start=starting_point(inventory, plans)))


def reports_of(virtual: VirtualOverlay, term: int = TERM) -> dict[str, CommandResult]:
    """Return the brokers' answers to a report command, encoded and decoded."""
    before = len(virtual.results.results)
    for broker in virtual.overlay.brokers:
        virtual.send_command(Command("report-7", CommandPhase.REPORT, broker, 0, 0, term=term))
    virtual.run_for(1_000)
    found = list(virtual.results.results)[before:]
    return {result.broker: decode(encode(result), CommandResult) for result in found}


def two_plans(inventory: Inventory) -> tuple[list[Plan], OverlayConfiguration]:
    """Return two completed plans, and the overlay that they lead to."""
    rng = random.Random(2)
    first = next_overlay(inventory.bootstrap, rng)
    second = next_overlay(first, rng)
    return [plan_to(first, inventory.bootstrap), plan_to(second, first)], second


def with_broker(present: OverlayConfiguration, broker: str) -> OverlayConfiguration:
    """Return the overlay of the next epoch with this broker added and the last leaf, or last broker, removed."""
    if isinstance(present, TreeConfiguration):
        leaf = next(one for one in reversed(present.brokers) if len(present.neighbours[one]) == 1)
        links = {pair for pair in present.links if leaf not in pair} | {link(present.neighbours[leaf][0], broker)}
        return TreeConfiguration.of(1, {*present.brokers, broker} - {leaf}, links)
    assert isinstance(present, RingConfiguration)
    *kept, last = present.brokers
    placed = {one: present.id_of[one] for one in kept} | {broker: present.id_of[last]}
    return RingConfiguration.of(1, present.bits, placed)


def refusal_of(inventory: Inventory, stored: list[Plan], reports: dict[str, CommandResult]) -> str:
    with pytest.raises(RecoveryRefusedError) as refused:
        recovered_plan(PlanLog(inventory, stored), FleetView(inventory), reports, NOW_MS, TERM)
    return str(refused.value)


@KINDS
@pytest.mark.parametrize("stored_count", [0, 1])
def test_a_lost_log_is_rebuilt_from_the_brokers_overlay(inventory: Inventory, stored_count: int) -> None:
    """Whether all plans were lost or only the newest; the next plan then has an epoch that no broker has seen."""
    plans, present = two_plans(inventory)
    reports = reports_of(brokers_after(inventory, plans))
    log = PlanLog(inventory, plans[:stored_count])
    plan = recovered_plan(log, FleetView(inventory), reports, NOW_MS, TERM)
    assert plan is not None
    assert (plan.plan, plan.phase, plan.term) == ("plan-2", PlanPhase.COMPLETED, TERM)
    log.record(decode(encode(plan), Plan))
    assert log.present.with_homes({}) == present
    assert log.epoch_next == 3
    assert recovered_plan(log, FleetView(inventory), reports, NOW_MS, TERM) is None


@KINDS
def test_a_log_that_lost_its_beginning_is_rebuilt_before_an_aborted_plan(inventory: Inventory) -> None:
    """The aborted plan has a later epoch than any that brokers hold; the next plan has a later one still."""
    plans, present = two_plans(inventory)
    reports = reports_of(brokers_after(inventory, plans))
    aborted = msgspec.structs.replace(
        plan_to(next_overlay(present, random.Random(3)), present), phase=PlanPhase.ABORTED, history=()
    )
    log = PlanLog(inventory, [aborted])
    plan = recovered_plan(log, FleetView(inventory), reports, NOW_MS, TERM)
    assert plan is not None
    log.record(plan)
    assert log.present.with_homes({}) == present
    assert log.epoch_next == aborted.epoch_to + 1
    assert recovered_plan(log, FleetView(inventory), reports, NOW_MS, TERM) is None


@KINDS
def test_a_report_changes_nothing_but_the_term(inventory: Inventory) -> None:
    """Before, during and after a plan: brokers execute it as without the report; older terms are refused."""
    plans, present = two_plans(inventory)
    virtual = brokers_after(inventory, plans[:1])
    for command, outcome in (
        (CommandPhase.PREPARE, Outcome.PREPARED),
        (CommandPhase.ACTIVATE, Outcome.DRAINED),
        (CommandPhase.RETIRE, Outcome.RETIRED),
    ):
        reports_of(virtual)
        assert set(ask(virtual, plans[1], starting_point(inventory, plans).digest, command)) == {outcome}
    assert {broker.core.epoch for broker in virtual.overlay.brokers.values()} == {present.epoch}
    assert {report.refusal for report in reports_of(virtual, term=8).values()} == {Refusal.TERM}


@KINDS
def test_brokers_that_disagree_are_listed(inventory: Inventory) -> None:
    """One has another epoch, another overlay at the same epoch, is silent, or refuses: which is right is unknown."""
    plans, _ = two_plans(inventory)
    reports = reports_of(brokers_after(inventory, plans))
    odd = inventory.brokers[3]
    earlier = reports_of(brokers_after(inventory, plans[:1]))[odd]
    assert f"{odd}: epoch 1, overlay" in refusal_of(inventory, [], reports | {odd: earlier})
    other = msgspec.structs.replace(earlier, epoch_to=2)
    assert f"{odd}: epoch 2, overlay" in refusal_of(inventory, [], reports | {odd: other})
    silent = {broker: report for broker, report in reports.items() if broker != odd}
    assert f"{odd}: no answer" in refusal_of(inventory, [], silent)
    refusing = msgspec.structs.replace(reports[odd], outcome=Outcome.REFUSED, reason="a leader of term 9 commands")
    assert f"{odd}: refused, a leader of term 9 commands" in refusal_of(inventory, [], reports | {odd: refusing})
    strange = msgspec.structs.replace(reports[odd], links_held=(("x", "y"),), ring_held=())
    assert f"{odd}: epoch 2, no overlay of this inventory" in refusal_of(inventory, [], reports | {odd: strange})
    assert "brokers answered within 20 s: start them first" in refusal_of(inventory, [], {})


@KINDS
def test_members_of_the_overlay_must_answer(inventory: Inventory) -> None:
    """A dead broker still in the overlay is not waited for; any other member must answer and hold it, too."""
    plans, present = two_plans(inventory)
    reports = reports_of(brokers_after(inventory, plans))
    gone = inventory.brokers[0]
    alive = {broker: report for broker, report in reports.items() if broker != gone}
    dead = FleetView.of(inventory, [Member(gone, MemberState.DEAD, NOW_MS, "silent")])
    plan = recovered_plan(PlanLog(inventory), dead, alive, NOW_MS, TERM)
    assert plan is not None
    assert plan.brokers_target == present.brokers == inventory.brokers
    for state in (MemberState.IN_SERVICE, MemberState.LEAVING, MemberState.JOINING, MemberState.LEFT):
        fleet = FleetView.of(inventory, [Member(gone, state, NOW_MS, "")])
        with pytest.raises(RecoveryRefusedError, match=f"{gone}: no answer"):
            recovered_plan(PlanLog(inventory), fleet, alive, NOW_MS, TERM)


@KINDS
def test_a_smaller_and_a_larger_overlay_are_recovered(inventory: Inventory) -> None:
    """Brokers that have left are no longer awaited; added ones count, if the members list them."""
    larger = extended(inventory, {"b99": BrokerFacts(link_costs=(PeerCost(inventory.brokers[0], 1.0),))})
    present = with_broker(inventory.bootstrap, "b99")
    reports = reports_of(brokers_after(larger, [plan_to(present, inventory.bootstrap)]))
    outside = {broker: report for broker, report in reports.items() if broker in present.brokers}
    added = Member("b99", MemberState.IN_SERVICE, 0, "", facts=BrokerFacts())
    left = [Member(broker, MemberState.LEFT, 0, "") for broker in set(inventory.brokers) - set(present.brokers)]
    log = PlanLog(inventory)
    plan = recovered_plan(log, FleetView.of(inventory, [added, *left]), outside, NOW_MS, TERM)
    assert plan is not None
    log.record(decode(encode(plan), Plan))
    assert log.present.brokers == present.brokers
    with pytest.raises(RecoveryRefusedError, match="list b99"):
        recovered_plan(PlanLog(inventory), FleetView.of(inventory, left), outside, NOW_MS, TERM)


@KINDS
def test_a_log_is_not_rebuilt_from_brokers_between_two_overlays(inventory: Inventory) -> None:
    """All of them prepared a plan that is no longer known."""
    plans, _ = two_plans(inventory)
    virtual = brokers_after(inventory, plans[:1])
    ask(virtual, plans[1], starting_point(inventory, plans).digest, CommandPhase.PREPARE, term=TERM)
    assert "epoch 1, overlay" in (refusal := refusal_of(inventory, [], reports_of(virtual)))
    assert ", prepared" in refusal


@KINDS
def test_a_log_is_not_rebuilt_from_brokers_that_lag_behind_it(inventory: Inventory) -> None:
    """It is they that must catch up."""
    plans, _ = two_plans(inventory)
    assert "no plan is missing" in refusal_of(inventory, plans, reports_of(brokers_after(inventory, plans[:1])))


def test_a_log_behind_the_brokers_stops_the_controller() -> None:
    """If most brokers are beyond it in a recent window; a single broker that says so stops nothing."""
    overlay = overlay_of()
    overlay.run_windows(12)
    assert overlay.epoch == 1
    check_plan_log(overlay.loop.state, overlay.now_ms, 5_000)
    overlay.ports.plans.stored.clear()
    overlay.new_loop()
    check_plan_log(overlay.loop.state, overlay.now_ms, 5_000)  # Nothing is known yet.
    overlay.run_windows(2)
    assert overlay.events_of(EventKind.DEATHS_IMPLAUSIBLE) == []  # It would advise to readmit or give up brokers.
    with pytest.raises(PlanLogBehindError, match=r"are 0, up to epoch 0, but b00, .* at epoch 1.*regraft recover"):
        check_plan_log(overlay.loop.state, overlay.now_ms, 5_000)
    check_plan_log(overlay.loop.state, overlay.now_ms + 60_000, 5_000)
    overlay.restarted_brokers = {"b00", "b01", "b02"}
    overlay.run_windows(1)
    check_plan_log(overlay.loop.state, overlay.now_ms, 5_000)


def test_a_log_that_lost_its_beginning_and_ends_with_an_aborted_plan_stops_the_controller() -> None:
    """Its epochs reach beyond the brokers', but none of its plans leads to where they are."""
    overlay = overlay_of()
    overlay.run_windows(12)
    (executed,) = overlay.plans
    aborted = msgspec.structs.replace(executed, plan="plan-9", epoch_from=1, epoch_to=9, phase=PlanPhase.ABORTED)
    overlay.ports.plans.stored = {aborted.plan: aborted}
    overlay.new_loop()
    overlay.run_windows(2)
    with pytest.raises(PlanLogBehindError, match=r"are 1, up to epoch 9, with 0 in force, but b00, .* at epoch 1"):
        check_plan_log(overlay.loop.state, overlay.now_ms, 5_000)
