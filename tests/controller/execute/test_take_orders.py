"""The outcome of an order: which plan it refers to, whether it is authentic, and what the audit keeps."""

import pytest
from msgspec import structs

from regraft.controller.execute.take_orders import CLOCKS_APART_MS_MAX, SHOWN_MAX, outcome_of
from regraft.schemas.audit import AuditEntry, AuditOutcome, GivenOrder
from regraft.schemas.bounds import TEXT_LENGTH_MAX
from regraft.schemas.codec import decode, encode
from regraft.schemas.event import FORGED, EventKind
from regraft.schemas.order import WHOLE_OVERLAY, Order, OrderKind
from regraft.schemas.plan import PlanPhase
from tests.controller.execute.test_review_plans import give, order_of, overlay_of, restart_with
from tests.controller.scripted_overlay import ScriptedOverlay


def outcomes(overlay: ScriptedOverlay) -> list[tuple[str, str]]:
    return [(entry.kind, entry.outcome) for entry in overlay.ports.audit.entries]


def reviewed() -> ScriptedOverlay:
    """Return an overlay whose first plan waits for approval."""
    overlay = overlay_of()
    overlay.run_windows(3)
    assert overlay.phases == [PlanPhase.PROPOSED]
    return overlay


def test_an_approval_from_before_the_plan_has_no_effect() -> None:
    """Plan names are predictable: an order that names a plan before it exists was given without seeing it."""
    overlay = overlay_of()
    overlay.ports.orders.records.append(Order("plan-1", OrderKind.APPROVE, "chief-operator", "forged", 0))
    overlay.run_windows(12)
    assert overlay.phases == [PlanPhase.PROPOSED]
    assert outcomes(overlay) == [("approve", AuditOutcome.REFUSED)]
    assert "no plan is named plan-1" in overlay.events_of(EventKind.ORDER_REFUSED)[0]


@pytest.mark.parametrize("digest", ["", "0" * 32])
def test_an_approval_of_another_plan_of_that_name_has_no_effect(digest: str) -> None:
    """The digest identifies the plan that was seen; without one it is unknown."""
    overlay = reviewed()
    approval = structs.replace(order_of(overlay, OrderKind.APPROVE, "plan-1"), plan_digest=digest)
    overlay.ports.orders.records.append(approval)
    overlay.run_windows(3)
    assert overlay.phases == [PlanPhase.PROPOSED]
    assert outcomes(overlay) == [("approve", AuditOutcome.REFUSED)]


def test_an_approval_that_is_older_than_the_plan_has_no_effect() -> None:
    """Even with the right digest: its time says that it was signed before."""
    overlay = overlay_of()
    overlay.now_ms = 10 * CLOCKS_APART_MS_MAX
    overlay.run_windows(3)
    old = structs.replace(order_of(overlay, OrderKind.APPROVE, "plan-1"), time_ms=8 * CLOCKS_APART_MS_MAX)
    overlay.ports.orders.records.append(old)
    overlay.run_windows(3)
    assert overlay.phases == [PlanPhase.PROPOSED]
    assert "it is older than plan-1" in overlay.events_of(EventKind.ORDER_REFUSED)[0]


def test_a_forged_order_changes_nothing_and_is_reported_and_audited() -> None:
    """A forged order to resume does not end the pause; both refusals are reported as forged and audited."""
    overlay = overlay_of(dry_run=False)
    give(overlay, OrderKind.PAUSE, WHOLE_OVERLAY)
    forged = Order(WHOLE_OVERLAY, OrderKind.RESUME, "ada", "forged", overlay.now_ms, source="a desk")
    overlay.ports.orders.records.append(GivenOrder(forged, 7, 3, refusal="it is unsigned"))
    overlay.ports.orders.records.append(GivenOrder(None, 8, 4, "adaptation/overlay", "it deletes an order"))
    overlay.run_windows(6)
    assert overlay.plans == []
    assert overlay.ports.view.shown.orders.paused is not None
    pause, kept, taken_out = overlay.ports.audit.entries
    assert pause.outcome is AuditOutcome.ACCEPTED
    assert (kept.outcome, kept.why, kept.source, kept.offset) == (
        AuditOutcome.REFUSED,
        "it is unsigned",
        "a desk",
        3,
    )
    assert (taken_out.subject, taken_out.kind) == ("adaptation/overlay", "")
    refused = [event for event in overlay.ports.events.emitted if event.kind is EventKind.ORDER_REFUSED]
    assert [event.details for event in refused] == [{FORGED: "1"}] * 2


def test_a_flood_of_forged_orders_is_fully_audited_but_briefly_reported() -> None:
    """Events are for people; the audit has every order."""
    overlay = overlay_of()
    forged = Order(WHOLE_OVERLAY, OrderKind.PAUSE, "ada", "forged", 0)
    overlay.ports.orders.records.extend(GivenOrder(forged, offset=n, refusal="no") for n in range(5 * SHOWN_MAX))
    overlay.tick()
    reported = overlay.events_of(EventKind.ORDER_REFUSED)
    assert len(overlay.ports.audit.entries) == 5 * SHOWN_MAX
    assert len(reported) == SHOWN_MAX + 1
    assert reported[-1].startswith(f"{4 * SHOWN_MAX} more orders were refused")


@pytest.mark.parametrize("written_ms", [-1, 2**63 - 1])
def test_the_audit_entry_of_a_refused_order_can_be_decoded(written_ms: int) -> None:
    """Whatever time the record has, and however much of the order the refusal quotes."""
    boundless = "b" * TEXT_LENGTH_MAX
    forged = Order(WHOLE_OVERLAY, OrderKind.PAUSE, boundless, boundless, 0)
    for order in (forged, None):
        given = GivenOrder(order, written_ms, 3, "adaptation/overlay", f"the key ada speaks not for {boundless}")
        entry = given.entry(AuditOutcome.REFUSED, given.refusal, 9)
        assert decode(encode(entry), AuditEntry) == entry


def test_the_audit_has_the_final_outcome_of_an_order_about_a_plan() -> None:
    """Approved and executed; an order that arrives when the plan is over is too late."""
    overlay = reviewed()
    give(overlay, OrderKind.APPROVE, "plan-1")
    overlay.run_windows(8)
    give(overlay, OrderKind.CANCEL, "plan-1")
    overlay.run_windows(1)
    assert outcomes(overlay) == [
        ("approve", AuditOutcome.ACCEPTED),
        ("approve", AuditOutcome.EXECUTED),
        ("cancel", AuditOutcome.TOO_LATE),
    ]
    assert overlay.ports.audit.entries[1].why == "approved by ada: because"


def test_an_approval_overtaken_by_a_refusal_is_too_late() -> None:
    """The newest order counts, and both are answered."""
    overlay = reviewed()
    give(overlay, OrderKind.APPROVE, "plan-1")
    give(overlay, OrderKind.REFUSE, "plan-1")
    overlay.run_windows(1)
    assert overlay.phases == [PlanPhase.REFUSED]
    assert outcomes(overlay)[2:] == [("approve", AuditOutcome.TOO_LATE), ("refuse", AuditOutcome.EXECUTED)]


def test_the_outcome_of_an_order_is_recorded_once_through_restarts() -> None:
    """A restarted controller reads again what it reported before; the outcome that was open then is recorded once."""
    overlay = reviewed()
    approval = order_of(overlay, OrderKind.APPROVE, "plan-1")
    overlay.ports.orders.records.append(GivenOrder(approval, is_new=False))
    restart_with(overlay)
    overlay.run_windows(8)
    assert overlay.phases == [PlanPhase.COMPLETED]
    assert outcomes(overlay) == [("approve", AuditOutcome.EXECUTED)]


def test_orders_are_read_again_when_the_trusted_keys_change() -> None:
    """When the trusted keys change, orders signed with a removed key are no longer in force."""
    overlay = overlay_of(dry_run=False)
    give(overlay, OrderKind.PAUSE, WHOLE_OVERLAY)
    overlay.run_windows(4)
    assert overlay.plans == []
    overlay.ports.orders.version += 1
    overlay.run_windows(4)
    assert overlay.plans != []


def test_a_refused_order_is_not_executed_when_the_topic_is_read_again() -> None:
    """Not even if what it lacked is there by then: its giver was answered that it is refused."""
    overlay = overlay_of(dry_run=False)
    refused = GivenOrder(order_of(overlay, OrderKind.PAUSE, WHOLE_OVERLAY), 1_000, 7, refusal="its key is not trusted")
    unknown = GivenOrder(order_of(overlay, OrderKind.MAINTAIN, "b99"), 2_000, 8)
    overlay.ports.orders.records.extend([refused, unknown])
    overlay.run_windows(1)
    assert outcomes(overlay) == [("pause", AuditOutcome.REFUSED), ("maintain", AuditOutcome.REFUSED)]
    overlay.ports.orders.version += 1
    overlay.ports.orders.records.extend(structs.replace(one, refusal="", is_new=False) for one in (refused, unknown))
    overlay.run_windows(4)
    assert overlay.plans != []
    assert overlay.ports.view.shown.orders.maintenance == ()


def test_an_accepted_maintenance_holds_while_its_broker_is_out_of_the_overlay() -> None:
    """A controller that starts meanwhile reads it again, and does not judge it by the overlay of that moment."""
    overlay = overlay_of(dry_run=False)
    overlay.ports.orders.records.append(GivenOrder(order_of(overlay, OrderKind.MAINTAIN, "b99"), 1, 7, is_new=False))
    overlay.run_windows(1)
    assert [one.broker for one in overlay.ports.view.shown.orders.maintenance] == ["b99"]


@pytest.mark.parametrize(
    ("kind", "phase", "outcome"),
    [
        (OrderKind.APPROVE, PlanPhase.PROPOSED, None),
        (OrderKind.APPROVE, PlanPhase.PREPARING, AuditOutcome.EXECUTED),
        (OrderKind.APPROVE, PlanPhase.REFUSED, AuditOutcome.TOO_LATE),
        (OrderKind.REFUSE, PlanPhase.REFUSED, AuditOutcome.EXECUTED),
        (OrderKind.REFUSE, PlanPhase.PREPARING, AuditOutcome.TOO_LATE),
        (OrderKind.CANCEL, PlanPhase.PREPARING, None),
        (OrderKind.CANCEL, PlanPhase.ABORTING, AuditOutcome.EXECUTED),
        (OrderKind.CANCEL, PlanPhase.ACTIVATING, AuditOutcome.TOO_LATE),
    ],
)
def test_the_outcome_of_an_order_follows_from_the_plans_phase(
    kind: OrderKind, phase: PlanPhase, outcome: AuditOutcome | None
) -> None:
    """As long as the order can still be followed it has no outcome."""
    assert outcome_of(kind, phase) is outcome
