"""Brokers that announce themselves: which are admitted, which wait for an order, and what is reported."""

import pytest

from regraft.controller.execute import take_announcements
from regraft.controller.execute.take_announcements import NEVER_REPORTED
from regraft.controller.settings.member_settings import MemberSettings
from regraft.schemas.announcement import EXPIRY_MS, Announcement
from regraft.schemas.event import EventKind
from regraft.schemas.member import BrokerFacts, MemberState, PeerCost, Position
from regraft.schemas.order import OrderKind
from regraft.schemas.shown_state import ShownAnnounced
from tests.controller.scripted_fleet import ScriptedFleet
from tests.controller.scripted_overlay import settings_of
from tests.controller.test_control_loop import INVENTORY
from tests.controller.test_membership import quiet

NEAR = BrokerFacts(processing_cost=1.0, link_costs=(PeerCost("b00", 2.0),))
QUICK = {"silence_ms": 2_000, "return_pause_ms": 2_000, "batch_ms": 500, "retry_ms": 1_000}


def fleet_of(**members: object) -> ScriptedFleet:
    """Return a fleet whose overlay has seen some windows."""
    fleet = ScriptedFleet(
        INVENTORY,
        quiet,
        settings_of(members=MemberSettings(**(QUICK | members))),  # type: ignore[arg-type]
    )
    fleet.run_windows(6)
    return fleet


def announce(fleet: ScriptedFleet, broker: str, facts: BrokerFacts = NEAR) -> None:
    """Make an agent announce that a broker wants to join, and the controller read it."""
    fleet.ports.announcements.records.append(Announcement(broker, facts, fleet.now_ms))
    fleet.tick()


def asking(fleet: ScriptedFleet) -> list[str]:
    """Return the brokers that ask to join, as the view shows them."""
    fleet.run_windows(1)
    return [one.broker for one in fleet.ports.view.shown.members.announced]


def join_events(fleet: ScriptedFleet) -> list[str]:
    """Return what was reported about announcements."""
    return fleet.events_of(EventKind.JOIN_REQUESTED)


def counted(fleet: ScriptedFleet, outcome: str) -> float | None:
    """Return how many announcements had this outcome."""
    return fleet.metrics.registry.get_sample_value("regraft_controller_announcements_total", {"outcome": outcome})


def test_a_broker_that_announces_itself_waits_for_an_order_and_is_reported_once() -> None:
    """Nothing is done about it, however often it is announced; an operator's order adds it like any other broker."""
    fleet = fleet_of()
    facts = BrokerFacts(1.0, (PeerCost("b00", 2.0),), agent="west", address="10.0.0.9:7000")
    for _ in range(5):
        announce(fleet, "x01", facts)
    assert "x01" not in fleet.loop.state.fleet.members
    assert join_events(fleet) == [
        "x01 asks to join, announced by agent west, at 10.0.0.9:7000: `regraft members add x01` admits it"
    ]
    assert asking(fleet) == ["x01"]
    (shown,) = fleet.ports.view.shown.members.announced
    to_do = "`regraft members add x01` admits it"
    at = "10.0.0.9:7000"
    assert shown == ShownAnnounced(broker="x01", since_ms=shown.since_ms, to_do=to_do, agent="west", address=at)
    fleet.order(OrderKind.ADD, "x01", facts=facts)
    fleet.added, fleet.held["x01"] = ("x01",), 0
    fleet.tick()
    fleet.run_until(MemberState.IN_SERVICE, "x01")
    assert asking(fleet) == []


def test_a_broker_admitted_by_the_settings_joins_as_a_leaf_at_the_cheapest_place() -> None:
    """Without an order, by a plan that loses nothing; later announcements change nothing."""
    fleet = fleet_of(admit_announced=True)
    facts = BrokerFacts(1.0, (PeerCost("b00", 9.0), PeerCost("b02", 2.0), PeerCost("b03", 5.0)))
    fleet.added, fleet.held["x01"] = ("x01",), 0
    announce(fleet, "x01", facts)
    assert fleet.member("x01").state is MemberState.JOINING
    assert fleet.member("x01").facts == facts
    announce(fleet, "x01", NEAR)
    fleet.run_until(MemberState.IN_SERVICE, "x01")
    announce(fleet, "x01", NEAR)
    assert fleet.member("x01").facts == facts
    assert [pair for pair in fleet.last_plan.links_added if "x01" in pair] == [("b02", "x01")]
    assert fleet.last_plan.brokers_lost == ()
    assert (join_events(fleet), asking(fleet)) == ([], [])


@pytest.mark.parametrize("admits", [False, True])
@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (BrokerFacts(), "it names no links"),
        (BrokerFacts(link_costs=(PeerCost("y77", 1.0),)), "the brokers that it names are unknown"),
    ],
)
def test_a_broker_whose_links_have_no_cost_is_not_admitted(facts: BrokerFacts, why: str, *, admits: bool) -> None:
    """An operator has to give the costs, or the broker has to announce itself with them."""
    fleet = fleet_of(admit_announced=admits)
    announce(fleet, "x01", facts)
    (text,) = join_events(fleet)
    assert why in text
    assert "`regraft members add x01 --link PEER=COST`" in text
    assert asking(fleet) == ["x01"]
    announce(fleet, "x01", BrokerFacts(position=Position(1.0, 2.0)))
    assert ("x01" in fleet.loop.state.fleet.members) is admits


def test_a_broker_that_stops_announcing_itself_is_forgotten() -> None:
    """It has gone; when it returns it is reported again."""
    fleet = fleet_of()
    announce(fleet, "x01")
    fleet.now_ms += EXPIRY_MS - EXPIRY_MS % 1_000
    assert asking(fleet) == []
    assert join_events(fleet)[1:] == ["x01 no longer asks to join: it has not been announced for 10 minutes"]
    announce(fleet, "x01")
    assert asking(fleet) == ["x01"]
    assert len(join_events(fleet)) == 3


@pytest.mark.parametrize("admits", [False, True])
def test_an_agent_that_announces_too_many_does_not_affect_other_agents(*, admits: bool) -> None:
    """The first ones of each agent are kept, up to the bound; the others are counted, and reported once."""
    fleet = fleet_of(announced_max=3, admit_announced=admits)
    nowhere = BrokerFacts(agent="noisy")
    for number in range(50):
        announce(fleet, f"n{number:02d}", nowhere)
    announce(fleet, "x01", BrokerFacts(agent="calm"))
    assert asking(fleet) == ["n00", "n01", "n02", "x01"]
    (crowded,) = [text for text in join_events(fleet) if "wait for admission, the maximum" in text]
    assert crowded.startswith("n03 is not recorded: 3 brokers of agent 'noisy' wait")
    assert len(join_events(fleet)) == 5
    assert counted(fleet, "too_many") == 47


def test_the_number_of_brokers_that_join_without_an_order_is_bounded() -> None:
    """Admitted brokers that never report block the others; an operator's order frees a place."""
    fleet = fleet_of(announced_max=2, admit_announced=True)
    for broker in ("x01", "x02", "x03"):
        announce(fleet, broker)
    assert fleet.loop.state.fleet.in_state(MemberState.JOINING) == ("x01", "x02")
    assert asking(fleet) == ["x03"]
    assert "until fewer than 2 others are joining" in join_events(fleet)[0]
    fleet.order(OrderKind.REMOVE, "x01")
    fleet.tick()
    assert fleet.loop.state.fleet.in_state(MemberState.JOINING) == ("x02", "x03")


def test_an_admitted_broker_that_never_reports_loses_its_place_to_the_next() -> None:
    """Brokers that report keep their place; one that lost it is only readmitted by an order."""
    fleet = fleet_of(announced_max=2, admit_announced=True, come_ms_max=20_000)
    fleet.added, fleet.held["x02"] = ("x02",), 0
    for broker in ("x01", "x02", "x03"):
        announce(fleet, broker)
    fleet.run_until(MemberState.IN_SERVICE, "x02")
    announce(fleet, "x03")
    announce(fleet, "x04")
    assert fleet.loop.state.fleet.in_state(MemberState.JOINING) == ("x01", "x03")
    fleet.run_until(MemberState.LEFT, "x01")
    assert fleet.member("x01").reason == NEVER_REPORTED
    announce(fleet, "x04")
    assert fleet.member("x04").state is MemberState.JOINING
    announce(fleet, "x01")
    assert "`regraft members readmit x01`" in join_events(fleet)[-1]
    assert fleet.member("x02").state is MemberState.IN_SERVICE


def test_a_broker_added_by_an_order_is_awaited_without_limit() -> None:
    """The order stays in force until another one."""
    fleet = fleet_of(admit_announced=True, come_ms_max=5_000)
    fleet.order(OrderKind.ADD, "x01", facts=NEAR)
    fleet.run_windows(12)
    assert fleet.member("x01").state is MemberState.JOINING


def test_after_too_many_that_never_report_an_order_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a record that is kept forever."""
    monkeypatch.setattr(take_announcements, "NEVER_REPORTED_MAX", 2)
    fleet = fleet_of(admit_announced=True, come_ms_max=5_000)
    for broker in ("x01", "x02"):
        announce(fleet, broker)
    fleet.run_until(MemberState.LEFT, "x02")
    announce(fleet, "x03")
    assert "x03" not in fleet.loop.state.fleet.members
    assert join_events(fleet)[-1].endswith(
        "2 that were admitted this way never reported: `regraft members add x03` admits it"
    )
    fleet.order(OrderKind.READMIT, "x01")
    fleet.tick()
    fleet.order(OrderKind.REMOVE, "x01")
    fleet.tick()
    announce(fleet, "x03")
    assert fleet.member("x03").state is MemberState.JOINING


def test_two_agents_that_announce_one_broker_are_distinguished() -> None:
    """The first one counts; the other, which may be an impostor, is reported once."""
    fleet = fleet_of()
    announce(fleet, "x01", BrokerFacts(agent="west", position=Position(0, 0)))
    for _ in range(3):
        announce(fleet, "x01", BrokerFacts(agent="east", position=Position(9, 9)))
    assert asking(fleet) == ["x01"]
    assert fleet.ports.view.shown.members.announced[0].agent == "west"
    _, contested = join_events(fleet)
    assert "by agents 'west' and 'east'" in contested
    assert counted(fleet, "contested") == 3


@pytest.mark.parametrize("admits", [False, True])
def test_announcements_of_members_change_nothing_unless_they_have_left(*, admits: bool) -> None:
    """Members in service, leaving and dead follow their own rules. A removed one returns by an order."""
    fleet = fleet_of(admit_announced=admits)
    fleet.refusing.add("b02")
    fleet.order(OrderKind.DRAIN, "b02")
    fleet.tick()
    fleet.dead.add("b01")
    fleet.order(OrderKind.DEAD, "b01")
    fleet.tick()
    before = {name: (one.state, one.facts) for name, one in fleet.loop.state.fleet.members.items()}
    for broker in ("b00", "b01", "b02"):
        announce(fleet, broker)
    assert {name: (one.state, one.facts) for name, one in fleet.loop.state.fleet.members.items()} == before
    assert join_events(fleet) == []
    fleet.order(OrderKind.REMOVE, "b01")
    fleet.run_until(MemberState.LEFT, "b01")
    announce(fleet, "b01")
    assert join_events(fleet) == ["b01 asks to join: it has left: `regraft members readmit b01` lets it rejoin"]
    fleet.run_windows(2)
    assert fleet.member("b01").state is MemberState.LEFT


def test_the_next_controller_learns_which_brokers_still_ask() -> None:
    """Announcements are not stored: brokers that wait repeat them."""
    fleet = fleet_of()
    announce(fleet, "x01")
    fleet.term = 2
    fleet.new_loop()
    assert asking(fleet) == []
    announce(fleet, "x01")
    assert asking(fleet) == ["x01"]
