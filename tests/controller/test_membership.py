"""Brokers die, restart, return, join and leave: how the control loop reacts."""

from itertools import pairwise

from regraft.controller.settings.controller_settings import TransitionLimits
from regraft.controller.settings.member_settings import MemberSettings
from regraft.controller.state.member_transitions import NEVER_MS
from regraft.overlay.inventory.inventory import Inventory
from regraft.schemas.command import CommandPhase
from regraft.schemas.event import EventKind
from regraft.schemas.member import BrokerFacts, MemberState, PeerCost
from regraft.schemas.order import Order, OrderKind
from regraft.schemas.plan import OFF_RING, PlanPhase
from tests.controller.scripted_fleet import ScriptedFleet, ScriptedRingFleet
from tests.controller.scripted_overlay import settings_of
from tests.controller.scripted_ring import BROKERS, FIG_2_USERS, TOPIC, publisher, ring_inventory, user
from tests.controller.test_control_loop import INVENTORY, far_ends

QUICK = MemberSettings(silence_ms=2_000, return_pause_ms=2_000, batch_ms=500, retry_ms=1_000)


def quiet(start_ms: int) -> list[set[str]]:
    """Traffic for which no planner proposes anything."""
    return [{"b01", "b02"}] * 40


def fleet_of(members: MemberSettings = QUICK, inventory: Inventory = INVENTORY, **changes: object) -> ScriptedFleet:
    return ScriptedFleet(inventory, quiet, settings_of(members=members, **changes))


def test_a_silent_broker_is_declared_dead_and_the_overlay_is_repaired_without_it() -> None:
    """Decisions continue without the dead broker."""
    fleet = fleet_of()
    fleet.run_windows(6)
    fleet.dead.add("b01")
    fleet.run_until(MemberState.DEAD, "b01")
    assert fleet.lost == {"b01"}
    shown = fleet.ports.view.shown.members
    assert [(one.broker, one.state, one.in_overlay) for one in shown.members] == [("b01", "dead", True)]
    assert shown.traffic_at_risk_per_s == 5.0
    fleet.run_windows(3)
    shown = fleet.ports.view.shown.members
    assert shown.counts == {"in_service": len(INVENTORY.brokers) - 1, "dead": 1}
    assert [one.in_overlay for one in shown.members] == [False]
    (repair,) = shown.repairs
    assert repair.lost == ("b01",)
    assert repair.dead_since_ms < repair.whole_ms
    assert shown.traffic_at_risk_per_s == 0.0
    assert fleet.present_brokers == tuple(one for one in INVENTORY.brokers if one != "b01")
    plan = fleet.last_plan
    assert plan.brokers_lost == ("b01",)
    assert plan.phase is PlanPhase.COMPLETED
    assert [one.planner for one in plan.proposals] == ["repair"]
    assert "b01" not in {command.broker for command in fleet.received}
    assert fleet.ports.plans.members["b01"].state is MemberState.DEAD
    assert any("b01 is dead" in text for text in fleet.events_of(EventKind.MEMBER_CHANGED))
    refused = fleet.loop.state.refusals.total()
    fleet.run_windows(5)
    assert fleet.loop.state.newest is not None
    assert fleet.loop.state.newest.is_complete
    assert fleet.loop.state.refusals.total() == refused


def test_many_simultaneous_deaths_are_a_failure_of_monitoring_unless_ordered_otherwise() -> None:
    """Three of four fall silent: none is declared dead, one event says so; an order declares one of them dead."""
    fleet = fleet_of()
    fleet.run_windows(6)
    fleet.dead |= set(INVENTORY.brokers[1:])
    fleet.run_windows(10)
    assert fleet.loop.state.fleet.in_state(MemberState.DEAD) == ()
    assert len(fleet.events_of(EventKind.DEATHS_IMPLAUSIBLE)) == 1
    fleet.order(OrderKind.DEAD, INVENTORY.brokers[1])
    fleet.tick()
    assert fleet.member(INVENTORY.brokers[1]).state is MemberState.DEAD


def test_a_dead_broker_returns_as_an_outsider_and_joins_by_a_plan_after_a_pause() -> None:
    """Each pause is twice as long; meanwhile the overlay works without the broker, afterwards it is in service."""
    fleet = fleet_of()
    fleet.run_windows(6)
    pauses = []
    for _ in range(4):
        fleet.dead.add("b01")
        fleet.run_until(MemberState.DEAD, "b01")
        fleet.run_windows(4)
        assert "b01" not in fleet.present_brokers
        assert fleet.lost == frozenset()
        fleet.restart("b01")
        pauses.append(fleet.member("b01").returns_ms - fleet.member("b01").since_ms)
        dead = fleet.member("b01")
        fleet.run_until(MemberState.JOINING, "b01")
        assert fleet.member("b01").since_ms >= dead.returns_ms
        fleet.run_until(MemberState.IN_SERVICE, "b01")
        assert fleet.present_brokers == INVENTORY.brokers
        assert fleet.last_plan.brokers_lost == ()
        installs = [one for one in fleet.received if one.phase is CommandPhase.INSTALL]
        assert {one.broker for one in installs} == {"b01"}
        assert installs[-1].epoch_to == fleet.last_plan.epoch_from
        assert installs[-1].brokers_joined == tuple(one for one in INVENTORY.brokers if one != "b01")
    assert pauses == [2_000, 4_000, 8_000, 16_000]


def test_a_broker_that_restarts_before_it_is_missed_rejoins_by_one_plan() -> None:
    """It is removed and added at once; nothing of its earlier incarnation is relied on."""
    fleet = fleet_of()
    fleet.run_windows(6)
    fleet.restart("b01")
    fleet.run_until(MemberState.JOINING, "b01")
    fleet.run_until(MemberState.IN_SERVICE, "b01")
    assert [(plan.brokers_lost, plan.brokers_target) for plan in fleet.plans] == [(("b01",), INVENTORY.brokers)]
    fleet.run_windows(5)
    assert fleet.lost == frozenset()


def test_a_running_broker_that_is_considered_dead_rejoins_by_one_plan() -> None:
    """Only the neighbour can report that it ignores it; reports from before the return are ignored, by any clock."""
    fleet = fleet_of()
    fleet.run_windows(6)
    fleet.report_lost("b00", "b01", fleet.now_ms + 60_000)
    fleet.run_until(MemberState.JOINING, "b01")
    assert fleet.member("b01").reason == "b00 considers it dead, though it runs, and ignores it"
    fleet.run_until(MemberState.IN_SERVICE, "b01")
    assert [(plan.brokers_lost, plan.brokers_target) for plan in fleet.plans] == [(("b01",), INVENTORY.brokers)]
    assert {one.broker for one in fleet.received if one.phase is CommandPhase.INSTALL} == {"b01"}
    fleet.report_lost("b00", "b01", fleet.member("b01").since_ms)
    fleet.report_lost("b00", "x99")
    fleet.run_windows(5)
    assert len(fleet.plans) == 1
    fleet.report_lost("b02", "b01")
    fleet.run_until(MemberState.DEAD, "b01")  # a second time within the hour: only after a pause
    fleet.run_until(MemberState.IN_SERVICE, "b01")
    assert fleet.present_brokers == INVENTORY.brokers


def test_a_broker_that_reports_its_restart_is_believed_without_a_window() -> None:
    """A repair that relies on it would fail each time: the next one does without it, even while no window closes."""
    fleet = fleet_of()
    fleet.run_windows(6)
    fleet.refusing, fleet.outside = {"b02"}, {"b02"}
    fleet.boots["b02"] = fleet.now_ms + 1
    fleet.dead.add("b01")
    fleet.order(OrderKind.DEAD, "b01")
    window = fleet.loop.state.newest
    while fleet.member("b02").state is not MemberState.DEAD:
        fleet.tick()
    assert fleet.member("b02").reason == "it reports that it restarted"
    assert fleet.loop.state.newest is window
    fleet.refusing, fleet.outside = set(), set()
    fleet.tick()
    first, second = fleet.plans
    assert (first.phase, first.brokers_lost, second.brokers_lost) == (PlanPhase.ABORTED, ("b01",), ("b01", "b02"))
    fleet.run_until(MemberState.IN_SERVICE, "b02")
    fleet.run_windows(6)
    assert fleet.member("b02").state is MemberState.IN_SERVICE
    assert fleet.present_brokers == tuple(one for one in INVENTORY.brokers if one != "b01")


def test_a_broker_at_another_epoch_than_the_one_in_force_joins_again() -> None:
    """It reported no restart, yet it does not hold what the others hold."""
    fleet = ScriptedFleet(INVENTORY, lambda start_ms: far_ends(0), settings_of(members=QUICK))
    fleet.run_windows(20)
    assert fleet.phases == [PlanPhase.COMPLETED]
    fleet.held["b01"] = 0
    fleet.run_until(MemberState.JOINING, "b01")
    fleet.run_until(MemberState.IN_SERVICE, "b01")
    assert fleet.last_plan.brokers_lost == ("b01",)
    assert fleet.events_of(EventKind.EPOCH_MISMATCH) == []


def test_a_death_while_a_plan_is_prepared_ends_the_plan_and_the_repair_follows() -> None:
    """Otherwise the dead broker would be waited for until the prepare's time-out."""
    fleet = ScriptedFleet(INVENTORY, lambda start_ms: far_ends(0), settings_of(members=QUICK))
    while fleet.loop.state.plan_log.moving is None and fleet.now_ms < 20_000:
        fleet.tick()
    fleet.ports.results.records.clear()
    fleet.dead.add("b01")
    fleet.order(OrderKind.DEAD, "b01")
    for _ in range(8):
        fleet.tick()
    first, repair = fleet.plans
    assert first.phase is PlanPhase.ABORTED
    assert "b01 declared dead" in first.history[-2].reason
    assert repair.brokers_lost == ("b01",)


def test_a_plan_being_verified_delays_no_repair() -> None:
    """A repair begins at the next tick."""
    fleet = ScriptedFleet(INVENTORY, lambda start_ms: far_ends(0), settings_of(members=QUICK, verify_windows=5))
    while fleet.phases != [PlanPhase.VERIFYING] and fleet.now_ms < 100_000:
        fleet.tick()
    fleet.order(OrderKind.DEAD, "b01")
    fleet.tick()
    fleet.tick()
    assert fleet.plans[0].phase is PlanPhase.VERIFYING
    assert fleet.last_plan.brokers_lost == ("b01",)


def test_a_death_during_a_repair_leads_to_the_next_one() -> None:
    """The first is aborted or executed without the second dead broker; in the end neither is in the overlay."""
    fleet = fleet_of(MemberSettings(silence_ms=2_000, deaths_share_max=1.0))
    fleet.run_windows(6)
    fleet.dead |= {"b01", "b02"}
    fleet.order(OrderKind.DEAD, "b01")
    fleet.tick()
    fleet.tick()
    assert fleet.last_plan.brokers_lost == ("b01",)
    fleet.run_until(MemberState.DEAD, "b02")
    fleet.run_windows(4)
    assert fleet.present_brokers == tuple(one for one in INVENTORY.brokers if one not in ("b01", "b02"))
    assert fleet.lost == frozenset()


def test_a_pause_holds_repairs_except_of_brokers_ordered_dead() -> None:
    """The waiting repair is reported once."""
    fleet = fleet_of()
    fleet.run_windows(6)
    fleet.ports.orders.records.append(Order("overlay", OrderKind.PAUSE, "ann", "hands off", fleet.now_ms))
    fleet.dead.add("b01")
    fleet.run_until(MemberState.DEAD, "b01")
    fleet.run_windows(5)
    assert fleet.plans == []
    (waits,) = fleet.events_of(EventKind.REPAIR_WAITS)
    assert "b01" in waits
    assert "paused by ann" in waits
    fleet.dead.add("b02")
    fleet.order(OrderKind.DEAD, "b02")
    fleet.run_windows(3)
    assert fleet.last_plan.brokers_lost == ("b01", "b02")


def test_a_drained_broker_leaves_by_a_lossless_plan_and_is_not_missed() -> None:
    """It takes part in the plan that removes it; afterwards it has left, and is no longer awaited."""
    fleet = fleet_of()
    fleet.run_windows(6)
    fleet.order(OrderKind.DRAIN, "b01")
    fleet.run_until(MemberState.LEFT, "b01")
    plan = fleet.last_plan
    assert plan.brokers_lost == ()
    assert "b01" not in plan.brokers_target
    assert "b01" in {one.broker for one in fleet.received if one.phase is CommandPhase.PREPARE}
    fleet.dead.add("b01")
    fleet.run_windows(6)
    assert fleet.member("b01").state is MemberState.LEFT
    assert len(fleet.plans) == 1


def test_as_many_brokers_stay_as_an_overlay_needs() -> None:
    """All but two may leave, also by orders given together; a drain that could never end is refused, and why."""
    fleet = fleet_of()
    fleet.run_windows(6)
    for broker in INVENTORY.brokers:
        fleet.order(OrderKind.DRAIN, broker)
    fleet.run_windows(20)
    assert fleet.present_brokers == INVENTORY.brokers[-2:]
    states = [fleet.member(broker).state for broker in INVENTORY.brokers]
    assert states == [MemberState.LEFT] * (len(INVENTORY.brokers) - 2) + [MemberState.IN_SERVICE] * 2
    (first, _) = fleet.events_of(EventKind.ORDER_REFUSED)
    assert "1 would be left in service, but an overlay needs at least 2 brokers" in first


def test_a_drain_revoked_while_its_plan_runs_ends_with_the_broker_in_the_overlay() -> None:
    """The plan removes it nevertheless; it does not count as in service outside the overlay, but joins again."""
    fleet = fleet_of()
    fleet.run_windows(6)
    fleet.order(OrderKind.DRAIN, "b01")
    while fleet.loop.state.plan_log.moving is None:
        fleet.tick()
    fleet.order(OrderKind.READMIT, "b01")
    fleet.run_windows(20)
    assert [len(plan.brokers_target) for plan in fleet.plans[:2]] == [
        len(INVENTORY.brokers) - 1,
        len(INVENTORY.brokers),
    ]
    assert fleet.present_brokers == INVENTORY.brokers
    assert fleet.member("b01").state is MemberState.IN_SERVICE


def test_a_broker_that_dies_while_draining_stays_out() -> None:
    """It was to leave anyway: when it reports again it is not added."""
    fleet = fleet_of()
    fleet.refusing.add("b01")  # its leave fails
    fleet.run_windows(6)
    fleet.order(OrderKind.DRAIN, "b01")
    fleet.run_windows(3)
    assert fleet.member("b01").state is MemberState.LEAVING
    fleet.dead.add("b01")
    fleet.run_until(MemberState.DEAD, "b01")
    assert fleet.member("b01").returns_ms == NEVER_MS
    fleet.run_until(MemberState.LEFT, "b01")
    fleet.restart("b01")
    fleet.run_windows(6)
    assert fleet.member("b01").state is MemberState.LEFT


def test_repeated_refusals_are_retried_after_ever_longer_pauses() -> None:
    """A leave that one broker refuses; a death meanwhile is still repaired at once."""
    fleet = fleet_of()
    fleet.refusing.add("b01")
    fleet.run_windows(6)
    fleet.order(OrderKind.DRAIN, "b01")
    fleet.run_windows(20)
    began_ms = [plan.history[0].time_ms for plan in fleet.plans]
    pauses_ms = [later - earlier for earlier, later in pairwise(began_ms)]
    assert len(pauses_ms) >= 3
    assert pauses_ms == sorted(pauses_ms)
    assert pauses_ms[-1] >= 2 * pauses_ms[0] > 0
    fleet.refusing.clear()
    fleet.order(OrderKind.DEAD, "b02")
    fleet.run_windows(2)
    assert "b02" not in fleet.present_brokers


def test_a_repair_that_fails_with_and_without_a_returning_broker_is_retried_after_pauses() -> None:
    """A returning broker has to be installed again after each failure, so every other attempt does without it."""
    slow = MemberSettings(retry_ms=4_000)
    fleet = fleet_of(slow, transition=TransitionLimits(prepare_ms=3_000, resend_ms=1_000))
    fleet.run_windows(6)
    fleet.refusing = {"b02"}
    fleet.restart("b01")
    fleet.run_until(MemberState.JOINING, "b01")
    fleet.run_windows(20)
    began_ms = [plan.history[0].time_ms for plan in fleet.plans]
    assert len({plan.brokers_target for plan in fleet.plans}) == 2
    assert all(plan.brokers_lost == ("b01",) and plan.phase is PlanPhase.ABORTED for plan in fleet.plans)
    assert 3 <= len(began_ms) <= 8
    later_ms = [after - before for before, after in pairwise(began_ms)][2:]
    assert all(after >= before for before, after in pairwise(later_ms))
    fleet.refusing = set()
    fleet.run_until(MemberState.IN_SERVICE, "b01")


def test_an_added_broker_joins_once_it_reports() -> None:
    """Until it runs no command is sent to it; its costs come with the order."""
    fleet = fleet_of()
    fleet.run_windows(6)
    facts = BrokerFacts(processing_cost=1.0, link_costs=(PeerCost("b00", 2.0),))
    fleet.order(OrderKind.ADD, "x01", facts=facts)
    fleet.run_windows(4)
    assert fleet.member("x01").state is MemberState.JOINING
    assert fleet.received == []
    fleet.added, fleet.held["x01"] = ("x01",), 0
    fleet.run_until(MemberState.IN_SERVICE, "x01")
    assert fleet.present_brokers == (*INVENTORY.brokers, "x01")
    assert ("b00", "x01") in fleet.last_plan.links_added
    fleet.run_windows(4)
    assert fleet.loop.state.newest is not None
    assert fleet.loop.state.newest.is_complete


def test_the_next_controller_knows_declared_deaths() -> None:
    """It resumes the repair where it was."""
    fleet = fleet_of()
    fleet.run_windows(6)
    fleet.dead.add("b01")
    fleet.run_until(MemberState.DEAD, "b01")
    fleet.tick()
    fleet.ports.commands.sent.clear()
    fleet.term = 2
    fleet.new_loop()
    fleet.run_windows(6)
    assert "b01" not in fleet.present_brokers
    assert fleet.member("b01").state is MemberState.DEAD
    assert [plan.phase for plan in fleet.plans] == [PlanPhase.COMPLETED]


def test_users_of_a_dead_broker_on_a_ring_get_another_home_and_its_arc_another_broker() -> None:
    """The repair moves the users that it can; a moved user is no longer at the dead broker."""
    fleet = ScriptedRingFleet(ring_inventory(), quiet, settings_of(members=QUICK, planner="reassign_ids_ssbr"))
    for name, (home, topics) in FIG_2_USERS.items():
        fleet.ports.clients.put(user(name, home, *topics))
    fleet.ports.clients.put(publisher("p", "b01", TOPIC))
    fleet.run_windows(6)
    fleet.dead.add("b04")
    fleet.run_until(MemberState.DEAD, "b04")
    fleet.run_windows(4)
    assert "b04" not in fleet.present_brokers
    plan = fleet.last_plan
    assert [(move.client, move.home_from) for move in plan.moves] == [("u4", "b04")]
    assert {one.broker for one in plan.ring_target} == set(BROKERS) - {"b04"}
    fleet.restart("b04")
    fleet.run_until(MemberState.IN_SERVICE, "b04")
    assert fleet.present_brokers == BROKERS
    install = next(one for one in fleet.received if one.phase is CommandPhase.INSTALL)
    assert {one.broker: one.id_from for one in install.id_moves} == dict.fromkeys(set(BROKERS) - {"b04"}, OFF_RING)


def test_every_other_attempt_at_a_refused_repair_moves_no_clients() -> None:
    """A user whose home has changed meanwhile must not block the repair for all."""
    settings = settings_of(members=MemberSettings(retry_ms=1_000), planner="reassign_ids_ssbr")
    fleet = ScriptedRingFleet(ring_inventory(), quiet, settings)
    for name, (home, topics) in FIG_2_USERS.items():
        fleet.ports.clients.put(user(name, home, *topics))
    fleet.ports.clients.put(publisher("p", "b01", TOPIC))
    fleet.run_windows(6)
    fleet.refusing = {"b02"}
    fleet.dead.add("b04")
    fleet.run_until(MemberState.DEAD, "b04")
    fleet.run_windows(10)
    tries = [plan for plan in fleet.plans if plan.brokers_lost]
    assert len(tries) >= 3
    assert [len(plan.moves) for plan in tries[:3]] == [1, 0, 1]
