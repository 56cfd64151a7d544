"""Texts from outside, as long as allowed: whatever repeats them is stored so that every reader accepts it."""

import msgspec
import pytest

from regraft.schemas.bounds import TEXT_LENGTH_MAX
from regraft.schemas.codec import decode, encode
from regraft.schemas.command import Command, CommandPhase, CommandResult, Outcome
from regraft.schemas.member import Member, MemberState
from regraft.schemas.order import Order, OrderKind
from regraft.schemas.texts import CUT, shortened
from tests.controller.scripted_fleet import ScriptedFleet
from tests.controller.scripted_overlay import settings_of
from tests.controller.test_control_loop import INVENTORY, far_ends
from tests.controller.test_membership import QUICK, fleet_of

LONG = "x" * TEXT_LENGTH_MAX


def assert_all_readable(fleet: ScriptedFleet) -> None:
    """Raise UnencodableRecordError or UndecodableRecordError for a record that this controller has written."""
    ports = fleet.ports
    for record in (*ports.plans.versions, *ports.plans.members.values(), *ports.events.emitted, *ports.audit.entries):
        assert decode(encode(record), type(record)) == record


@pytest.mark.parametrize("kind", list(OrderKind))
def test_records_that_repeat_an_order_can_be_read(kind: OrderKind) -> None:
    """By whom and why, both as long as allowed, and given twice."""
    fleet = fleet_of()
    fleet.run_windows(6)
    for subject in ("b01", "plan-1", "b01"):
        fleet.ports.orders.records.append(Order(subject, kind, LONG, LONG, fleet.now_ms, source=LONG))
        fleet.run_windows(3)
    assert_all_readable(fleet)


@pytest.mark.parametrize("phase", [CommandPhase.PREPARE, CommandPhase.ACTIVATE])
def test_records_that_repeat_a_broker_s_reason_can_be_read(phase: CommandPhase) -> None:
    """Its refusal is in the plan's history, the plan's event and, when it is aborted, in that one's."""
    fleet = ScriptedFleet(INVENTORY, lambda start_ms: far_ends(0), settings_of(members=QUICK))
    answers = fleet._answers

    def refusing(command: Command) -> list[CommandResult]:
        found = answers(command)
        if command.phase is not phase:
            return found
        return [msgspec.structs.replace(one, outcome=Outcome.REFUSED, reason=LONG) for one in found]

    fleet._answers = refusing  # type: ignore[method-assign]
    fleet.run_windows(10)
    assert any(LONG[:100] in event.text for event in fleet.ports.events.emitted)
    assert_all_readable(fleet)


def test_a_member_s_record_of_an_earlier_version_can_be_read() -> None:
    """That repeated an order's giver and reason in full; the next record about the broker is within the bounds."""
    old = Member("b01", MemberState.LEAVING, 0, f"removed from the overlay; drain by {LONG}: {LONG}")
    assert decode(encode(old), Member) == old
    fleet = fleet_of()
    fleet.ports.plans.members["b01"] = old
    fleet.run_until(MemberState.LEFT, "b01")
    assert len(fleet.member("b01").reason) <= TEXT_LENGTH_MAX


def test_a_shortened_text_shows_that_it_is() -> None:
    """One that fits stays as it is."""
    assert shortened("as long as allowed", 18) == "as long as allowed"
    assert shortened("longer than allowed", 18) == "longer than al" + CUT
