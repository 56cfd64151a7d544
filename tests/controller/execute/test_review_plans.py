"""Plans that wait for approval, pauses and maintenance, through the whole loop in memory and its restarts."""

from collections.abc import Callable

import pytest

from regraft.controller.ports.memory_ports import MemoryPorts
from regraft.controller.settings.decision_settings import DecisionSettings
from regraft.overlay.inventory.inventory import Inventory
from regraft.schemas.event import EventKind
from regraft.schemas.order import WHOLE_OVERLAY, Order, OrderKind
from regraft.schemas.plan import Plan, PlanPhase, Verdict
from tests.controller.scripted_overlay import ScriptedOverlay, settings_of
from tests.controller.scripted_windows import WINDOW_MS
from tests.controller.test_control_loop import turning, worsening
from tests.overlay.small_overlays import inventory_of, line_of

TREE = line_of(5)
INVENTORY = inventory_of(TREE, {("b00", "b04"): 2.0, ("b01", "b03"): 2.0})


def far_ends(start_ms: int) -> list[set[str]]:
    """The ends of the line want the same."""
    return [{"b00", "b04"}] * 40


def shifting(start_ms: int) -> list[set[str]]:
    """First the ends of the line want the same, from 6 s on their neighbours do."""
    return far_ends(start_ms) if start_ms < 6_000 else [{"b01", "b03"}] * 40


def overlay_of(wanted=far_ends, inventory: Inventory = INVENTORY, **changes: object) -> ScriptedOverlay:  # type: ignore[no-untyped-def]
    return ScriptedOverlay(inventory, wanted, settings_of(**({"dry_run": True} | changes)))


def give(overlay: ScriptedOverlay, kind: OrderKind, subject: str, *, evacuate: bool = False) -> None:
    overlay.ports.orders.records.append(order_of(overlay, kind, subject, evacuate=evacuate))


def order_of(overlay: ScriptedOverlay, kind: OrderKind, subject: str, *, evacuate: bool = False) -> Order:
    """Return an order as an operator gives it who sees the plans stored now."""
    digest = next((plan.approval_digest for plan in overlay.plans if plan.plan == subject), "")
    return Order(subject, kind, "ada", "because", overlay.now_ms, 0, evacuate, digest)


def restart_with(overlay: ScriptedOverlay, *orders: Order) -> None:
    """Restart the controller; the compacted topic delivers the orders in force."""
    overlay.ports.orders.records.extend(orders)
    overlay.new_loop()


def commands_of(ports: MemoryPorts) -> int:
    return len(ports.commands.sent)


def waiting(overlay: ScriptedOverlay) -> Plan:
    (plan,) = [plan for plan in overlay.plans if plan.phase is PlanPhase.PROPOSED]
    return plan


def test_the_approved_plan_is_executed_exactly() -> None:
    """The executed plan is exactly the one that was shown; its history says who approved it and why."""
    overlay = overlay_of()
    overlay.run_windows(3)
    shown = waiting(overlay)
    give(overlay, OrderKind.APPROVE, "plan-1")
    overlay.run_windows(8)
    (plan,) = overlay.plans
    assert plan.phase is PlanPhase.COMPLETED
    assert (plan.proposals[0].links_added, plan.links_target) == (shown.proposals[0].links_added, shown.links_target)
    assert [change.reason for change in plan.history][:2] == ["waits for approval", "approved by ada: because"]
    assert overlay.epoch == 1


def test_one_plan_waits_at_a_time() -> None:
    """While a plan waits no other is made, and that is counted as the reason."""
    overlay = overlay_of()
    overlay.run_windows(10)
    assert overlay.phases == [PlanPhase.PROPOSED]
    assert overlay.ports.view.shown.refusals[Verdict.IN_REVIEW] >= 5
    assert len(overlay.events_of(EventKind.PLAN_PROPOSED)) == 1


def test_a_refused_plan_has_no_effect_and_is_not_proposed_again_at_once() -> None:
    """No command was sent; its planner is muted for a while, or the next window would bring the same plan again."""
    overlay = overlay_of()
    overlay.run_windows(3)
    give(overlay, OrderKind.REFUSE, "plan-1")
    overlay.run_windows(6)
    assert overlay.phases == [PlanPhase.REFUSED]
    assert overlay.plans[0].history[-1].reason == "refused by ada: because"
    assert commands_of(overlay.ports) == 0
    assert overlay.ports.view.shown.refusals[Verdict.MUTED] >= 1


def test_a_plan_that_no_longer_pays_is_not_executed() -> None:
    """Interests shift while the plan waits: it is refused as stale, and a plan for the new interests follows."""
    overlay = overlay_of(shifting, horizon_windows_max=2)
    overlay.run_windows(5)
    first = waiting(overlay)
    overlay.run_windows(10)
    stale = overlay.plans[0]
    assert (stale.plan, stale.phase) == (first.plan, PlanPhase.REFUSED)
    assert "no longer as shown" in stale.history[-1].reason
    assert ("b01", "b03") in waiting(overlay).links_added


def test_a_plan_does_not_wait_forever() -> None:
    """A plan that waits too long is refused; the next one is based on newer windows."""
    overlay = overlay_of(review_ms_max=4 * WINDOW_MS)
    overlay.run_windows(9)
    assert overlay.phases[0] is PlanPhase.REFUSED
    assert "it was not approved" in overlay.plans[0].history[-1].reason
    assert waiting(overlay).plan == "plan-2"


def test_a_plan_waits_through_a_restart_and_an_order_given_meanwhile_counts() -> None:
    """The plan and the order are in Kafka, so a controller that was down executes what was approved."""
    overlay = overlay_of()
    overlay.run_windows(3)
    restart_with(overlay, order_of(overlay, OrderKind.APPROVE, "plan-1"))
    overlay.run_windows(8)
    assert overlay.phases == [PlanPhase.COMPLETED]


def test_an_approved_plan_waits_for_a_complete_state() -> None:
    """Approved while batches are missing, it begins with the first complete window."""
    overlay = overlay_of()
    overlay.run_windows(3)
    overlay.lost_batches = {"b03": 2}
    overlay.run_windows(1)
    give(overlay, OrderKind.APPROVE, "plan-1")
    overlay.run_windows(3)
    assert overlay.phases == [PlanPhase.PROPOSED]
    overlay.lost_batches = {}
    overlay.run_windows(6)
    assert overlay.phases == [PlanPhase.COMPLETED]


@pytest.mark.parametrize("wanted", [far_ends, lambda start_ms: far_ends(0) if start_ms < 3_000 else []])
def test_a_plan_waits_while_long_queues_hide_its_savings(wanted: Callable[[int], list[set[str]]]) -> None:
    """Approved or not, it neither begins nor becomes stale until the queues are short, however little seems wanted."""
    overlay = overlay_of(wanted, horizon_windows_max=2)
    overlay.run_windows(3)
    overlay.wait_ms = 2 * overlay.settings.decision.queue_wait_ms_max
    overlay.run_windows(3)
    give(overlay, OrderKind.APPROVE, "plan-1")
    overlay.run_windows(3)
    assert overlay.phases == [PlanPhase.PROPOSED]
    overlay.wait_ms = 0.0
    overlay.run_windows(8)
    assert overlay.plans[0].phase is (PlanPhase.COMPLETED if wanted is far_ends else PlanPhase.REFUSED)


def test_a_plan_that_waits_can_be_cancelled() -> None:
    """No broker knows of it, so it is refused; the operator need not know whether it was approved meanwhile."""
    overlay = overlay_of()
    overlay.run_windows(3)
    give(overlay, OrderKind.CANCEL, waiting(overlay).plan)
    overlay.run_windows(1)
    assert overlay.phases == [PlanPhase.REFUSED]
    assert overlay.plans[0].history[-1].reason == "cancelled by ada: because"
    assert (len(overlay.events_of(EventKind.ORDER_TAKEN)), overlay.events_of(EventKind.ORDER_REFUSED)) == (1, [])


def test_a_plan_that_is_being_prepared_can_be_cancelled() -> None:
    """A broker does not answer; the operator need not wait for the time-out."""
    overlay = overlay_of(dry_run=False)
    overlay.silent_brokers = {"b02"}
    overlay.run_windows(3)
    assert overlay.phases == [PlanPhase.PREPARING]
    give(overlay, OrderKind.CANCEL, "plan-1")
    overlay.tick()
    overlay.silent_brokers = set()
    overlay.run_windows(1)
    assert overlay.phases[0] is PlanPhase.ABORTED
    assert "cancelled by ada" in overlay.plans[0].history[-2].reason
    assert overlay.epoch == 0


@pytest.mark.parametrize(
    ("kind", "subject", "because"),
    [
        (OrderKind.CANCEL, "plan-1", "plan-1 is completed: cancel needs a plan that is proposed or preparing"),
        (OrderKind.APPROVE, "plan-1", "plan-1 is completed: approve needs a plan that is proposed"),
        (OrderKind.APPROVE, "plan-9", "no plan is named plan-9"),
        (OrderKind.MAINTAIN, "b99", "no broker b99"),
    ],
)
def test_an_order_that_cannot_be_executed_is_answered(kind: OrderKind, subject: str, because: str) -> None:
    """The plan is over, or no plan or broker has the name: an event says so, and nothing else happens."""
    overlay = overlay_of(dry_run=False)
    overlay.run_windows(10)
    assert overlay.phases == [PlanPhase.COMPLETED]
    give(overlay, kind, subject)
    overlay.run_windows(1)
    (text,) = overlay.events_of(EventKind.ORDER_REFUSED)
    assert because in text
    assert overlay.phases == [PlanPhase.COMPLETED]


def test_a_paused_controller_decides_nothing_until_it_is_resumed_through_restarts() -> None:
    """The pause is stored in Kafka; a controller that has not read the orders yet acts as if paused."""
    overlay = overlay_of(dry_run=False)
    overlay.ports.orders.is_known = False
    overlay.run_windows(3)
    assert overlay.plans == []
    assert overlay.ports.view.shown.refusals == {Verdict.PAUSED: 3}
    overlay.ports.orders.is_known = True
    pause = Order(WHOLE_OVERLAY, OrderKind.PAUSE, "ada", "patching", overlay.now_ms)
    restart_with(overlay, pause)
    overlay.run_windows(4)
    assert overlay.plans == []
    assert overlay.ports.view.shown.orders.paused.reason == "patching"
    give(overlay, OrderKind.RESUME, WHOLE_OVERLAY)
    overlay.run_windows(8)
    assert overlay.phases == [PlanPhase.COMPLETED]
    assert len(overlay.events_of(EventKind.ORDER_TAKEN)) == 2  # including the order given while it was down


def test_a_plan_under_way_continues_while_adaptation_is_paused() -> None:
    """Brokers between two configurations are not left there."""
    overlay = overlay_of(dry_run=False)
    while not overlay.plans:
        overlay.tick()
    give(overlay, OrderKind.PAUSE, WHOLE_OVERLAY)
    overlay.run_windows(6)
    assert overlay.phases == [PlanPhase.COMPLETED]


def test_no_link_is_added_to_a_broker_in_maintenance() -> None:
    """The link to b04 would save most; during its maintenance it is refused with who and why, later it is made."""
    overlay = overlay_of(dry_run=False)
    give(overlay, OrderKind.MAINTAIN, "b04")
    overlay.run_windows(6)
    assert all("b04" not in pair for plan in overlay.plans for pair in plan.links_added)
    assert overlay.ports.view.shown.refusals[Verdict.MAINTENANCE] >= 1
    give(overlay, OrderKind.RETURN, "b04")
    overlay.run_windows(12)
    assert ("b00", "b04") in {pair for plan in overlay.plans for pair in plan.links_added}


def test_a_rollback_is_reviewed_too() -> None:
    """In a dry run even the plan that undoes a harmful one waits for approval."""
    decision = DecisionSettings(pay_back_s=600.0, window_age_ms_max=5000, mute_ms=20_000)
    overlay = ScriptedOverlay(INVENTORY, turning, settings_of(decision=decision, dry_run=True), worsening)
    while not overlay.plans:
        overlay.tick()
    give(overlay, OrderKind.APPROVE, "plan-1")
    overlay.run_windows(8)
    undo = overlay.plans[-1]
    assert (undo.undoes, undo.phase) == ("plan-1", PlanPhase.PROPOSED)
    give(overlay, OrderKind.APPROVE, undo.plan)
    overlay.run_windows(8)
    assert overlay.phases[:2] == [PlanPhase.COMPLETED, PlanPhase.COMPLETED]
    assert set(overlay.plans[1].links_target) == set(TREE.links)
