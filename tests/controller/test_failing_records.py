"""Records whose handling fails, whatever the error is: each is left out and counted, and the loop continues."""

from collections.abc import Callable

import pytest

from regraft.controller.execute.take_announcements import AnnouncementTaker
from regraft.controller.execute.take_orders import OrderTaker
from regraft.controller.execute.transition import Transition
from regraft.controller.loop import decide_once
from regraft.controller.loop.follow_members import FollowMembers
from regraft.controller.loop.take_windows import TakeWindows
from regraft.controller.windows.assemble_state import WindowAssembler
from regraft.controller.windows.read_windows import WindowReader
from regraft.schemas.announcement import Announcement
from regraft.schemas.audit import AuditOutcome
from regraft.schemas.event import EventKind
from regraft.schemas.member import BrokerFacts
from regraft.schemas.order import WHOLE_OVERLAY, Order, OrderKind
from regraft.schemas.plan import PlanPhase
from tests.controller.scripted_overlay import ScriptedOverlay
from tests.controller.test_control_loop import overlay_of


def fail_at(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, number: int) -> None:
    """Make the call with this number raise, and leave all others as they are."""
    usual, calls = getattr(owner, name), [0]

    def failing(*arguments: object, **more: object) -> object:
        calls[0] += 1
        if calls[0] == number:
            raise ZeroDivisionError("an error of ours")
        return usual(*arguments, **more)

    monkeypatch.setattr(owner, name, failing)


def nothing(overlay: ScriptedOverlay) -> None:
    """Give nothing in addition."""


def give_an_order(overlay: ScriptedOverlay) -> None:
    overlay.ports.orders.records.append(Order(WHOLE_OVERLAY, OrderKind.RESUME, "ann", "calm", overlay.now_ms))


def drain(overlay: ScriptedOverlay) -> None:
    overlay.ports.orders.records.append(Order("b04", OrderKind.DRAIN, "ann", "old", overlay.now_ms))


def announce(overlay: ScriptedOverlay) -> None:
    overlay.ports.announcements.records.append(Announcement("x01", BrokerFacts(), overlay.now_ms))


@pytest.mark.parametrize(
    ("owner", "name", "error", "give"),
    [
        (WindowAssembler, "add", "state: record that failed", nothing),
        (WindowReader, "_take", "state: window that failed", nothing),
        (TakeWindows, "_judged", "window not costed", nothing),
        (FollowMembers, "_judge", "window not judged", nothing),
        (FollowMembers, "_execute", "order about a member", drain),
        (TakeWindows, "_add_bill", "window not billed", nothing),
        (decide_once, "decide_plan", "decision that failed", nothing),
        (OrderTaker, "_take", "order that failed", give_an_order),
        (AnnouncementTaker, "_take", "announcement that failed", announce),
    ],
)
def test_one_record_that_fails_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, error: str, give: Callable[[ScriptedOverlay], None]
) -> None:
    """A plan is made and executed in spite of it; the view counts it."""
    fail_at(monkeypatch, owner, name, 1)
    overlay = overlay_of()
    give(overlay)
    overlay.run_windows(20)
    assert overlay.phases == [PlanPhase.COMPLETED]
    assert overlay.ports.view.shown.errors[error] == 1
    assert (overlay.events_of(EventKind.PLANNER_FAILED) != []) is (owner is decide_once)


def test_an_answer_that_fails_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as ignored; the command is repeated as after a lost answer."""
    fail_at(monkeypatch, Transition, "on_result", 2)
    overlay = overlay_of()
    overlay.run_windows(20)
    assert overlay.phases == [PlanPhase.COMPLETED]
    failed = {"part": "failed"}
    assert overlay.metrics.registry.get_sample_value("regraft_controller_results_foreign_total", failed) == 1


def test_an_order_that_fails_is_refused_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its giver is answered; a restarted controller does not meet it again as new."""
    fail_at(monkeypatch, OrderTaker, "_take", 1)
    overlay = overlay_of()
    give_an_order(overlay)
    overlay.run_windows(1)
    assert [(entry.kind, entry.outcome) for entry in overlay.ports.audit.entries] == [("resume", AuditOutcome.REFUSED)]
