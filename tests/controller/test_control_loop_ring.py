"""The whole loop on a ring in memory: windows and users in, plans and commands out, with restarts."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from regraft.controller.kinds.ring.ring_state import RingContext, RingState
from regraft.controller.loop.compose_loop import compose_loop
from regraft.controller.planners.shared_settings import ReassignmentSettings
from regraft.controller.ports.memory_ports import MemoryClients, MemoryPorts
from regraft.controller.report.loop_metrics import LoopMetrics
from regraft.controller.settings.decision_settings import DecisionSettings
from regraft.controller.state.plan_log import PlanLog
from regraft.controller.windows.read_windows import REGISTER_WAIT_MS, WindowReader
from regraft.overlay.inventory.members import FleetView
from regraft.schemas.command import CommandPhase
from regraft.schemas.event import EventKind
from regraft.schemas.plan import PlanPhase, Proposal, Verdict
from tests.controller.named_planners import name_planner
from tests.controller.scripted_overlay import settings_of
from tests.controller.scripted_ring import (
    FIG_2_MOVES,
    OTHER,
    RING,
    TOPIC,
    ScriptedRing,
    placing,
    publisher,
    reassigning,
    ring_inventory,
    ring_window,
    user,
)
from tests.controller.scripted_windows import WINDOW_MS
from tests.controller.small_kinds import ring_kind

INVENTORY = ring_inventory()


def reassign(state: RingState, context: RingContext, rng: random.Random) -> list[Proposal]:
    """Move the subscribers of Zhao13, Fig. 2, to IDs 1, 2, 3 and 5."""
    assert state.traffic is not None
    proposal = reassigning(*FIG_2_MOVES)
    return (
        [proposal]
        if all(state.traffic.configuration.id_of[one.broker] == one.id_from for one in proposal.id_moves)
        else []
    )


def place(state: RingState, context: RingContext, rng: random.Random) -> list[Proposal]:
    """Move u4 to b00, wherever it is."""
    assert state.traffic is not None
    interests = state.traffic.interests
    if "u4" not in interests.position_of:
        return []
    home = interests.brokers[interests.homes[interests.position_of["u4"]]]
    return [placing(("u4", home, "b00"))] if home != "b00" else []


def both(state: RingState, context: RingContext, rng: random.Random) -> list[Proposal]:
    """Reassign first, then place."""
    found = reassign(state, context, rng)
    return [*found, *place(state, context, rng)] if found else []


def overlay_of(planner: object = both, ports: MemoryPorts | None = None, **changes: object) -> ScriptedRing:
    """Return the ring of Fig. 2 with t1's subscribers at IDs 0, 2, 4 and 6, at 10 notifications/s: it costs 150/s."""
    settings = settings_of(**({"user_load_max": 8.0} | changes))  # two of four users at one broker keep the cap
    overlay = ScriptedRing(INVENTORY, lambda _: [], settings, planner, ports or MemoryPorts())  # type: ignore[arg-type]
    overlay.counts = {TOPIC: 10, OTHER: 2}
    overlay.connect(publisher(TOPIC, "b00", TOPIC), publisher(OTHER, "b00", OTHER))
    overlay.connect(*(user(f"u{number}", f"b0{number}", TOPIC) for number in (0, 2, 4, 6)))
    return overlay


def run_until_verifying(overlay: ScriptedRing) -> None:
    """Run until the first plan has been executed."""
    for _ in range(100):
        if overlay.phases[:1] == [PlanPhase.VERIFYING]:
            return
        overlay.tick()
    raise AssertionError(f"no plan was executed: {overlay.phases}")


def test_a_bad_ring_becomes_a_good_one() -> None:
    """IDs and a user change in one plan: 150/s, then 60, then 40; the plan is verified and no other follows."""
    overlay = overlay_of()
    overlay.run_windows(12)
    assert overlay.phases == [PlanPhase.COMPLETED]
    (plan,) = overlay.plans
    assert (len(plan.id_moves), [move.client for move in plan.moves]) == (6, ["u4"])
    assert (plan.cost_before_per_s, plan.cost_predicted_per_s, plan.cost_observed_per_s) == (150.0, 40.0, 40.0)
    assert [one.gain_observed_per_s for one in plan.proposals] == [90.0, 20.0]
    assert (overlay.epoch, overlay.homes()["u4"]) == (1, "b00")
    assert plan.control_messages == 3 * 8
    (text,) = overlay.events_of(EventKind.PLAN_STARTED)
    assert "6 ring IDs reassigned (" in text
    assert "1 client moves (u4 b04 -> b00)" in text


@pytest.mark.parametrize("planner", ["reassign_ids_ssbr", "reassign_ids_assignment+place_users_dynatops"])
def test_the_built_in_planners_plan_for_the_loop(planner: str) -> None:
    """What they find on Zhao13, Fig. 2, is accepted, executed, and saves what was predicted."""
    overlay = overlay_of()
    hour = ReassignmentSettings(ring_free_s=3600.0)
    planners = {"reassign_ids_ssbr": hour, "reassign_ids_assignment": hour}
    overlay.settings, overlay.planner = replace(overlay.settings, planner=planner, planners=planners), None
    overlay.new_loop()
    overlay.run_windows(12)
    assert set(overlay.phases) == {PlanPhase.COMPLETED}
    assert all(plan.cost_observed_per_s == pytest.approx(plan.cost_predicted_per_s) for plan in overlay.plans)
    assert overlay.ports.view.shown.cost[-1].cost_per_s <= 60.0


def test_each_broker_gets_the_ids_and_its_own_users() -> None:
    """b00 and b04 get u4's move, all get the six IDs."""
    overlay = overlay_of()
    overlay.run_windows(6)
    command_of = {command.broker: command for command in overlay.prepared.values()}
    assert {broker for broker, command in command_of.items() if command.moves} == {"b00", "b04"}
    assert {len(command.id_moves) for command in command_of.values()} == {6}
    assert (overlay.commands_seen[CommandPhase.PREPARE], overlay.commands_seen[CommandPhase.RETIRE]) == (8, 8)


def test_the_status_shows_the_ring_and_what_it_costs() -> None:
    """Costs of the ring in force and of the bootstrap with users at their first homes; IDs and links; all as JSON."""
    overlay = overlay_of()
    overlay.run_windows(8)
    shown = overlay.ports.view.shown
    costs = [(point.cost_per_s, point.cost_bootstrap_per_s) for point in shown.cost]
    assert costs[0] == (150.0, 150.0)
    assert costs[-1] == (40.0, 150.0)
    assert {point.cost_counted_per_s for point in shown.cost} == {None}
    ring = dict(shown.configuration.ring)
    assert (ring["b00"], shown.configuration.epoch, shown.configuration.ring_bits) == (1, 1, 3)
    assert len(shown.configuration.links) == len(RING.links)
    (plan,) = shown.plans
    assert not hasattr(plan, "ring_target")
    assert (plan.id_move_count, plan.move_count, len(plan.id_moves)) == (6, 1, 6)
    assert shown.window.users == 4


def test_interests_are_those_of_the_window() -> None:
    """A user that arrives costs from then on, one that leaves no longer does; a topic without users costs nothing."""
    overlay = overlay_of(planner=lambda *_: [])
    overlay.run_windows(2)
    overlay.connect(user("v", "b00", OTHER))
    overlay.run_windows(1)
    overlay.ports.clients.remove("u0")
    overlay.run_windows(1)
    costs = [point.cost_per_s for point in overlay.ports.view.shown.cost]
    way = len(RING.route(RING.rendezvous(OTHER), "b00")) - 1
    assert costs[:3] == [150.0, 150.0, 150.0 + 2 * 2 * way]  # a message and a hop for each link of the path
    assert costs[3] < costs[2]


def turned(overlay: ScriptedRing) -> None:
    """Make the users leave t1 for another topic, to which the new IDs are unfavourable."""
    for number in (0, 2, 6):
        overlay.connect(user(f"u{number}", f"b0{number}", OTHER))
    overlay.connect(user("v", "b05", OTHER))
    overlay.ports.clients.remove("u4")
    overlay.counts = {TOPIC: 1, OTHER: 60}


def undone_overlay(planner: object = both) -> ScriptedRing:
    decision = DecisionSettings(pay_back_s=600.0, window_age_ms_max=5000, mute_ms=20_000)
    overlay = overlay_of(planner, decision=decision)
    run_until_verifying(overlay)
    turned(overlay)
    overlay.run_windows(10)
    return overlay


def test_a_plan_that_made_things_worse_is_rolled_back_with_its_ids() -> None:
    """The IDs return at a new epoch, u4 has left and is not moved, and the planner is muted."""
    overlay = undone_overlay()
    first, undo = overlay.plans
    assert overlay.phases == [PlanPhase.COMPLETED] * 2
    assert (undo.undoes, undo.epoch_to, undo.moves) == ("plan-1", 2, ())
    assert {one.broker: one.ring_id for one in undo.ring_target} == RING.id_of
    assert "rolled back by plan-2" in first.history[-1].reason
    shown = overlay.ports.view.shown
    assert dict(shown.configuration.ring) == RING.id_of
    assert (shown.plans_undone, shown.configuration.epoch) == (1, 2)
    assert shown.refusals[Verdict.MUTED] >= 1


def test_users_move_back_with_a_plan_that_is_rolled_back() -> None:
    """u4 was moved to b00, where what it wants now is more expensive than at b04."""
    overlay = overlay_of(place)
    run_until_verifying(overlay)
    for number in (0, 2, 6):
        overlay.ports.clients.remove(f"u{number}")
    overlay.connect(user("u4", "b00", OTHER))  # its rendezvous is b04 itself
    overlay.counts = {OTHER: 60}
    overlay.run_windows(10)
    assert [plan.undoes for plan in overlay.plans] == ["", "plan-1"]
    assert (overlay.plans[1].moves[0].home_from, overlay.plans[1].moves[0].home_to) == ("b00", "b04")
    assert overlay.homes() == {"u4": "b04"}


@pytest.mark.parametrize("steps", range(0, 40, 2))
def test_the_controller_may_be_killed_after_any_step(steps: int) -> None:
    """Whenever it is killed and restarted, the same plan is executed once and completed."""
    overlay = overlay_of()
    for _ in range(steps):
        overlay.tick()
    overlay.new_loop()
    overlay.run_windows(20)
    assert overlay.phases == [PlanPhase.COMPLETED]
    assert (overlay.epoch, overlay.homes()["u4"]) == (1, "b00")
    assert overlay.plans[0].cost_observed_per_s == 40.0
    assert dict(overlay.ports.view.shown.configuration.ring)["b04"] == 3


def test_a_restart_between_undoing_and_closing_rolls_back_once() -> None:
    """The next controller finds the undoing plan and closes the one that it undoes."""
    for steps in range(24):
        overlay = overlay_of(decision=DecisionSettings(pay_back_s=600.0, window_age_ms_max=5000, mute_ms=60_000))
        run_until_verifying(overlay)
        turned(overlay)
        for _ in range(steps):
            overlay.tick()
        overlay.new_loop()
        overlay.run_windows(10)
        assert [plan.undoes for plan in overlay.plans] == ["", "plan-1"]
        assert overlay.phases == [PlanPhase.COMPLETED] * 2


def test_an_aborted_undoing_plan_does_not_count_as_a_rollback() -> None:
    """A broker that does not answer stops the rollback before it begins; the IDs stay, and the plan says so."""
    overlay = overlay_of(decision=DecisionSettings(pay_back_s=600.0, window_age_ms_max=5000, mute_ms=60_000))
    run_until_verifying(overlay)
    turned(overlay)
    overlay.silent_brokers = {"b02"}
    overlay.run_windows(13)
    overlay.silent_brokers = set()
    overlay.run_windows(4)
    assert overlay.phases == [PlanPhase.COMPLETED, PlanPhase.ABORTED]
    assert overlay.plans[0].history[-1].reason == "made things worse, but was not rolled back by plan-2"
    assert dict(overlay.ports.view.shown.configuration.ring)["b00"] == 1


def test_nothing_is_decided_while_the_users_are_unknown() -> None:
    """The state is refused with its reason and no cost is shown; all continues once the register has been read."""
    overlay = overlay_of()
    overlay.ports.clients.is_known = False
    overlay.run_windows(3)
    shown = overlay.ports.view.shown
    assert (overlay.plans, shown.cost, shown.windows_closed) == ([], (), 3)
    assert shown.refusals == {Verdict.INCOMPLETE_STATE: 3}
    assert "the users' subscriptions are unknown" in shown.last_decision.state_reason
    (text,) = overlay.events_of(EventKind.WINDOW_INCOMPLETE)
    assert "the register of clients is empty" in text
    overlay.ports.clients.is_known = True
    overlay.run_windows(8)
    assert overlay.phases == [PlanPhase.COMPLETED]


def test_publishers_without_a_topic_are_counted_and_reported() -> None:
    """A tenth of the notifications comes from a publisher that the register does not know: too much to decide on."""
    overlay = overlay_of()
    overlay.counts = {TOPIC: 10, OTHER: 2, "nobody": 3}
    overlay.run_windows(3)
    assert overlay.plans == []
    assert (
        "20% of the notifications come from publishers without a topic (nobody)"
        in overlay.events_of(EventKind.WINDOW_INCOMPLETE)[0]
    )
    assert overlay.ports.view.shown.errors["state: publisher without a topic in a window"] == 3


def test_users_that_move_by_themselves_stay_there() -> None:
    """u4, moved to b00, moves to b05 by itself: its costs follow, and the bootstrap's cost has it there, too."""
    overlay = overlay_of()
    overlay.run_windows(8)
    overlay.connect(user("u4", "b05", TOPIC))
    overlay.run_windows(1)
    point = overlay.ports.view.shown.cost[-1]
    homes = {f"u{number}": (f"b0{number}", [TOPIC]) for number in (0, 2, 6)} | {"u4": ("b05", [TOPIC])}
    window = ring_window(homes, {TOPIC: 10})
    assert point.cost_bootstrap_per_s == ring_kind(INVENTORY).cost_per_s(RING, window)
    assert point.cost_per_s == ring_kind(INVENTORY).cost_per_s(RING.replaced(1, overlay.plans[0].id_moves), window)
    assert overlay.ports.view.shown.window.users_strayed == 1


def test_a_shadow_next_to_an_idle_planner_reaches_the_ring_of_its_planner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its IDs, homes and costs are those of the same planner when it acts."""
    name_planner(monkeypatch, "both", both, "ring")
    overlay = overlay_of(planner=lambda *_: [], shadow_planners=("both",))
    overlay.run_windows(8)
    shown = overlay.ports.view.shown
    assert overlay.plans == []
    shadow = shown.shadows["both"]
    assert (shadow.plans, shadow.users_moved, shadow.id_moves, shadow.publishers_moved) == (1, 1, 6, 0)
    assert (dict(shadow.ring)["b00"], shadow.homes) == (1, {"u4": "b00"})
    assert shadow.last_plans[0].cost_observed_per_s == 40.0
    assert shown.cost[-1].cost_shadows_per_s == {"both": 40.0}
    assert shown.cost[-1].cost_per_s == 150.0


def test_a_shadow_does_not_see_the_acting_planners_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Next to the same planner acting, an idle shadow keeps the first ring, with u4 at its first home."""
    name_planner(monkeypatch, "idle", lambda *_: [], "ring")
    overlay = overlay_of(shadow_planners=("idle",))
    overlay.run_windows(12)
    assert overlay.phases == [PlanPhase.COMPLETED]
    point = overlay.ports.view.shown.cost[-1]
    assert (point.cost_per_s, point.cost_shadows_per_s) == (40.0, {"idle": 150.0})


def test_metrics_count_ids_and_users() -> None:
    """Publishers do not count as users."""
    metrics = LoopMetrics()
    overlay = overlay_of()
    overlay.loop = compose_loop(overlay.settings, INVENTORY, overlay.ports.ports, both, metrics)
    overlay.run_windows(8)
    value = metrics.registry.get_sample_value
    assert value("regraft_controller_changes", {"what": "ring_ids"}) == 6
    assert value("regraft_controller_changes", {"what": "users"}) == 1
    assert value("regraft_controller_changes", {"what": "publishers"}) is None
    assert value("regraft_controller_cost_per_s", {"tree": "present"}) == 40.0


def test_windows_reread_after_a_restart_are_costed_by_present_interests() -> None:
    """The state does not hold what users wanted then: the view says so by its source; a run's record is more exact."""
    overlay = overlay_of(planner=lambda *_: [])
    overlay.run_windows(3)
    overlay.ports.clients.remove("u4")
    overlay.new_loop()
    for start_ms in range(0, overlay.now_ms, WINDOW_MS):
        overlay.write_window(start_ms)
    overlay.loop.step(overlay.now_ms + 1)
    costs = [point.cost_per_s for point in overlay.ports.view.shown.cost]
    assert len(set(costs)) == 1
    assert costs[0] < 150.0


class SlowClients(MemoryClients):
    """A register that takes a while to be read."""

    @property
    def is_loading(self) -> bool:
        return not self.is_known


def test_windows_wait_until_the_register_has_been_read() -> None:
    """Until then state stays in its topic, so that no window is assembled without its users; but not forever."""
    overlay = overlay_of(ports=MemoryPorts(clients=SlowClients()))
    overlay.ports.clients.is_known = False
    overlay.run_windows(3)
    assert overlay.ports.view.shown.windows_closed == 0
    overlay.ports.clients.is_known = True
    overlay.run_windows(6)
    shown = overlay.ports.view.shown
    assert (overlay.phases, shown.windows_incomplete) == ([PlanPhase.COMPLETED], 0)
    never = overlay_of(ports=MemoryPorts(clients=SlowClients()))
    never.ports.clients.is_known = False
    never.run_windows(REGISTER_WAIT_MS // WINDOW_MS + 1)
    assert never.ports.view.shown.refusals[Verdict.INCOMPLETE_STATE] >= 1


def test_only_windows_for_verification_keep_interests() -> None:
    """Rates are kept for the whole horizon, interests, which need memory, for the newest windows."""
    overlay = overlay_of(planner=lambda *_: [], horizon_windows_max=6)
    overlay.run_windows(6)
    reader = WindowReader(overlay.settings, ring_kind(INVENTORY), overlay.ports.ports)
    for start_ms in range(0, 6000, WINDOW_MS):
        overlay.write_window(start_ms)
    windows = reader.read(PlanLog(INVENTORY), FleetView(INVENTORY), overlay.now_ms)
    assert [window.interests is None for window in windows] == [False] * 6
    assert [window.interests is None for window in reader.complete] == [True] * 4 + [False] * 2
    assert all(window.topic_rates_per_s[TOPIC] == 10.0 for window in reader.complete)
    assert len(reader.verifying(range(2))) == 2
    horizon, info = reader.horizon(windows[-1])
    assert (len(horizon), info is not None) == (6, True)


def test_a_user_at_an_absent_broker_is_counted() -> None:
    """It is left out of costs and plans, and counted among the errors."""
    overlay = overlay_of(planner=lambda *_: [])
    overlay.connect(user("lost", "elsewhere", TOPIC))
    overlay.run_windows(2)
    shown = overlay.ports.view.shown
    assert (shown.window.users, shown.errors["state: user at an unknown broker"]) == (4, 1)
