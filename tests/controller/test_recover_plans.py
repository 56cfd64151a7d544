"""What a lost log of plans is built from: the overlay that all brokers hold, or a refusal that says who holds what."""

import random

import msgspec
import pytest

from controller.execute.check_plan_log import PlanLogBehindError, check_plan_log
from controller.recover_plans import RecoveryRefusedError, recovered_plan
from controller.state.plan_log import PlanLog
from overlay.inventory import Inventory
from overlay.overlay_configuration import OverlayConfiguration
from producers.emulator.place_overlay import place_overlay, place_ring
from producers.emulator.starting_point import starting_point
from producers.virtual_overlay import VirtualOverlay, VirtualSettings
from schemas.codec import decode, encode
from schemas.command import Command, CommandPhase, CommandResult, Outcome, Refusal
from schemas.plan import Plan, PlanPhase
from tests.controller.test_control_loop import overlay_of
from tests.producers.emulator.test_starting_point import ask, next_overlay, plan_to

TREE = place_overlay(8, 4, random.Random(1))
RING = place_ring(8, random.Random(1))
KINDS = pytest.mark.parametrize("inventory", [TREE, RING], ids=["tree", "ring"])
NOW_MS, TERM = 5_000, 7


def brokers_after(inventory: Inventory, plans: list[Plan]) -> VirtualOverlay:
    """Brokers that began where the plans lead."""
    return VirtualOverlay(inventory, None, VirtualSettings(start=starting_point(inventory, plans)))


def reports_of(virtual: VirtualOverlay, term: int = TERM) -> dict[str, CommandResult]:
    """What the brokers answer when they are asked, through the codec."""
    before = len(virtual.results.results)
    for broker in virtual.overlay.brokers:
        virtual.send_command(Command("report-7", CommandPhase.REPORT, broker, 0, 0, term=term))
    virtual.run_for(1_000)
    found = list(virtual.results.results)[before:]
    return {result.broker: decode(encode(result), CommandResult) for result in found}


def two_plans(inventory: Inventory) -> tuple[list[Plan], OverlayConfiguration]:
    """Two plans that are over, and where they lead."""
    rng = random.Random(2)
    first = next_overlay(inventory.bootstrap, rng)
    second = next_overlay(first, rng)
    return [plan_to(first, inventory.bootstrap), plan_to(second, first)], second


def refusal_of(inventory: Inventory, stored: list[Plan], reports: dict[str, CommandResult]) -> str:
    with pytest.raises(RecoveryRefusedError) as refused:
        recovered_plan(PlanLog(inventory, stored), inventory, reports, NOW_MS, TERM)
    return str(refused.value)


@KINDS
@pytest.mark.parametrize("stored_count", [0, 1])
def test_a_lost_log_leads_again_to_where_the_brokers_are(inventory: Inventory, stored_count: int) -> None:
    """Whether all plans were lost or the newest; the next plan then has an epoch that no broker has seen."""
    plans, present = two_plans(inventory)
    reports = reports_of(brokers_after(inventory, plans))
    log = PlanLog(inventory, plans[:stored_count])
    plan = recovered_plan(log, inventory, reports, NOW_MS, TERM)
    assert plan is not None
    assert (plan.plan, plan.phase, plan.term) == ("plan-2", PlanPhase.COMPLETED, TERM)
    log.record(decode(encode(plan), Plan))
    assert log.present.with_homes({}) == present
    assert log.epoch_next == 3
    assert recovered_plan(log, inventory, reports, NOW_MS, TERM) is None


@KINDS
def test_a_report_changes_nothing_but_the_term(inventory: Inventory) -> None:
    """Before, in and after a plan: brokers carry it out as if nobody had asked; older terms are refused."""
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
def test_brokers_that_do_not_agree_are_listed(inventory: Inventory) -> None:
    """One at another epoch, or at the same with another overlay, or silent, or refusing: which of them is right?"""
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
    assert "no answer" in refusal_of(inventory, [], {})


@KINDS
def test_brokers_between_two_overlays_are_no_ground_for_a_log(inventory: Inventory) -> None:
    """All of them prepared for a plan that nobody knows any more."""
    plans, _ = two_plans(inventory)
    virtual = brokers_after(inventory, plans[:1])
    ask(virtual, plans[1], starting_point(inventory, plans).digest, CommandPhase.PREPARE, term=TERM)
    assert "epoch 1, overlay" in (said := refusal_of(inventory, [], reports_of(virtual)))
    assert ", prepared" in said


@KINDS
def test_brokers_that_are_behind_are_no_ground_for_a_log(inventory: Inventory) -> None:
    """It is they that have to come back."""
    plans, _ = two_plans(inventory)
    assert "no plan is missing" in refusal_of(inventory, plans, reports_of(brokers_after(inventory, plans[:1])))


def test_a_log_behind_the_brokers_stops_the_controller() -> None:
    """When most brokers are beyond it, in a window of now; one broker that says so stops nobody."""
    overlay = overlay_of()
    overlay.run_windows(12)
    assert overlay.epoch == 1
    check_plan_log(overlay.loop.state, overlay.now_ms, 5_000)
    overlay.ports.plans.stored.clear()
    overlay.new_loop()
    check_plan_log(overlay.loop.state, overlay.now_ms, 5_000)  # Nothing is known yet.
    overlay.run_windows(2)
    with pytest.raises(PlanLogBehindError, match=r"are 0, up to epoch 0, but b00, .* at epoch 1.*regraft recover"):
        check_plan_log(overlay.loop.state, overlay.now_ms, 5_000)
    check_plan_log(overlay.loop.state, overlay.now_ms + 60_000, 5_000)
    overlay.restarted_brokers = {"b00", "b01", "b02"}
    overlay.run_windows(1)
    check_plan_log(overlay.loop.state, overlay.now_ms, 5_000)
