"""Alerts about deaths and repairs: raised when they begin, cleared when they are over, the same after a restart."""

import pytest
from msgspec import structs

from regraft.schemas.member import BrokerFacts, Member, MemberState
from regraft.schemas.plan import PlanPhase
from tests.alerts.scripted_alerts import BEGIN_MS, BROKERS, Scene, StampedRecord, book, plan, words

RULES = """
[[rule]]
name = "broker_dead"
on = "broker.dead"
[[rule]]
name = "repair_running"
on = "repair.running"
for_s = 2
[[rule]]
name = "traffic_at_risk"
on = "traffic.at_risk"
"""


def member(broker: str, state: MemberState, second: float, facts: BrokerFacts | None = None) -> StampedRecord:
    time_ms = BEGIN_MS + int(second * 1000)
    return StampedRecord(Member(broker, state, time_ms, "silent for 10 s", facts=facts), time_ms)


def repair(number: int, phase: PlanPhase, second: float, lost: tuple[str, ...], begun: float = 0.0) -> StampedRecord:
    stored = plan(number, phase, second)
    target = tuple(broker for broker in BROKERS if broker not in lost)
    history = stored.record.history  # type: ignore[attr-defined]
    first = structs.replace(history[0], phase=PlanPhase.PREPARING, time_ms=BEGIN_MS + int(begun * 1000))
    made = structs.replace(stored.record, brokers_target=target, brokers_lost=lost, history=(first, *history))
    return StampedRecord(made, stored.time_ms)


def test_a_death_is_raised_and_its_repair_ends_the_risk_to_traffic() -> None:
    """The dead broker stays dead; the traffic is no longer at risk once the repair is in force."""
    scene = Scene(book(RULES))
    scene.feed(member("b01", MemberState.DEAD, 1))
    assert words(scene.tick(1)) == ["1 broker_dead b01 raised", "1 traffic_at_risk overlay raised"]
    scene.feed(repair(1, PlanPhase.PREPARING, 2, ("b01",), begun=2))
    assert scene.tick(3) == []
    assert words(scene.tick(4)) == ["4 repair_running plan-1 raised"]
    scene.feed(repair(1, PlanPhase.RETIRING, 5, ("b01",), begun=2))
    assert words(scene.tick(5)) == ["5 repair_running plan-1 cleared", "5 traffic_at_risk overlay cleared"]
    scene.feed(member("b01", MemberState.JOINING, 9))
    assert words(scene.tick(9)) == ["9 broker_dead b01 cleared"]


def test_an_aborted_repair_leaves_the_traffic_at_risk() -> None:
    """Only a plan in force removes the risk."""
    scene = Scene(book(RULES))
    scene.feed(member("b01", MemberState.DEAD, 1), repair(1, PlanPhase.PREPARING, 2, ("b01",), begun=2))
    scene.tick(4)
    scene.feed(repair(1, PlanPhase.ABORTED, 5, ("b01",), begun=2))
    assert words(scene.tick(5)) == ["5 repair_running plan-1 cleared"]


def test_a_second_death_puts_traffic_at_risk_again() -> None:
    """The plan that took the broker in again predates its second death."""
    scene = Scene(book(RULES))
    back = repair(1, PlanPhase.COMPLETED, 5, ("b01",), begun=2)
    back = StampedRecord(structs.replace(back.record, brokers_target=BROKERS), back.time_ms)
    scene.feed(back, member("b01", MemberState.DEAD, 9))
    assert words(scene.tick(9)) == ["9 broker_dead b01 raised", "9 traffic_at_risk overlay raised"]


def test_a_restarted_broker_puts_traffic_at_risk_until_it_has_rejoined() -> None:
    """It runs but does not know the overlay: what crosses it is lost as if it were dead."""
    scene = Scene(book(RULES))
    scene.feed(member("b01", MemberState.JOINING, 1))
    assert words(scene.tick(1)) == ["1 traffic_at_risk overlay raised"]
    back = repair(1, PlanPhase.RETIRING, 5, ("b01",), begun=2)
    scene.feed(StampedRecord(structs.replace(back.record, brokers_target=BROKERS), back.time_ms))
    assert words(scene.tick(5)) == ["5 traffic_at_risk overlay cleared"]
    scene.feed(member("b01", MemberState.IN_SERVICE, 6))
    assert scene.tick(6) == []


def test_a_broker_that_never_joined_puts_nothing_at_risk() -> None:
    """A broker that was added and died before it joined carries nothing."""
    scene = Scene(book(RULES))
    scene.feed(member("x1", MemberState.DEAD, 1, BrokerFacts(1.0)))
    assert words(scene.tick(1)) == ["1 broker_dead x1 raised"]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_active_alerts_are_raised_once_and_cleared_across_a_restart(is_restarted: bool) -> None:
    """Members and plans are read again from the start, and what was reported before is not reported again."""
    scene = Scene(book(RULES))
    past = [member("b01", MemberState.DEAD, 1), member("b02", MemberState.DEAD, 1)]
    scene.feed(*past)
    scene.tick(1)
    if is_restarted:
        scene = Scene(book(RULES), known=list(scene.engine.book.alerts.values()))
        scene.feed(*past, is_known=True)
    assert scene.tick(2) == []
    scene.feed(member("b01", MemberState.JOINING, 3))
    assert words(scene.tick(3)) == ["3 broker_dead b01 cleared"]
    scene.feed(member("b02", MemberState.LEFT, 4))
    assert words(scene.tick(4)) == ["4 broker_dead b02 cleared"]
    scene.feed(repair(1, PlanPhase.RETIRING, 5, ("b01", "b02"), begun=4))
    assert words(scene.tick(5)) == ["5 traffic_at_risk overlay cleared"]
