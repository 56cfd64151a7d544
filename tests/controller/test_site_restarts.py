"""All or most brokers restart together: how the control loop lets them join again."""

import pytest

from regraft.schemas.command import CommandPhase
from regraft.schemas.event import EventKind
from regraft.schemas.member import MemberState
from regraft.schemas.order import OrderKind
from tests.controller.test_control_loop import INVENTORY
from tests.controller.test_membership import fleet_of


@pytest.mark.parametrize("staying", [0, 1])
def test_brokers_that_all_restart_join_again_by_one_plan(staying: int) -> None:
    """Each reports another boot: after a power cut that is no failure of monitoring."""
    fleet = fleet_of()
    fleet.run_windows(6)
    for broker in INVENTORY.brokers[staying:]:
        fleet.restart(broker)
    fleet.run_windows(8)
    assert fleet.loop.state.fleet.serving == INVENTORY.brokers
    assert [plan.brokers_lost for plan in fleet.plans] == [INVENTORY.brokers[staying:]]
    assert fleet.events_of(EventKind.DEATHS_IMPLAUSIBLE) == []


def test_brokers_that_all_refuse_a_plan_because_they_restarted_join_again() -> None:
    """No window shows it, as after a restart of the controller; each says so itself."""
    fleet = fleet_of()
    fleet.run_windows(6)
    fleet.refusing = fleet.outside = set(INVENTORY.brokers[1:])
    fleet.order(OrderKind.DEAD, "b00")
    for _ in range(6):
        fleet.tick()
    assert fleet.loop.state.fleet.in_state(MemberState.DEAD) == INVENTORY.brokers
    fleet.refusing, fleet.outside = set(), set()
    fleet.run_until(MemberState.IN_SERVICE, "b01")
    fleet.run_windows(10)
    assert fleet.loop.state.fleet.serving == INVENTORY.brokers[1:]


def test_one_order_admits_brokers_that_are_outside_without_anything_that_shows_it() -> None:
    """They count as in service; by the order they become outsiders and join by one plan."""
    fleet = fleet_of()
    fleet.run_windows(6)
    for broker in INVENTORY.brokers:
        fleet.order(OrderKind.READMIT, broker)
    fleet.run_windows(6)
    assert fleet.loop.state.fleet.serving == INVENTORY.brokers
    assert [plan.brokers_lost for plan in fleet.plans] == [INVENTORY.brokers]
    assert {one.broker for one in fleet.received if one.phase is CommandPhase.INSTALL} == set(INVENTORY.brokers)
