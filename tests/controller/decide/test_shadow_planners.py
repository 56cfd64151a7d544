"""Shadow planners: their own tree, the acting planner's rules, and no effect on the overlay."""

import random
from types import SimpleNamespace
from typing import Any

import pytest

from regraft.controller.decide.shadow_planners import ShadowPlanner
from regraft.controller.kinds.tree.tree_state import TreeContext, TreeState
from regraft.controller.loop.compose_loop import compose_loop
from regraft.controller.report.loop_metrics import LoopMetrics
from regraft.controller.settings.decision_settings import DecisionSettings
from regraft.overlay.tree.overlay_cost import overlay_cost
from regraft.schemas.event import EventKind, Severity
from regraft.schemas.plan import PlanPhase, Proposal, Verdict
from regraft.schemas.shown_state import DecisionTimes
from tests.controller.named_planners import name_planner
from tests.controller.scripted_overlay import ScriptedOverlay, settings_of
from tests.controller.scripted_windows import WINDOW_MS
from tests.overlay.small_overlays import inventory_of, line_of, sets_of

TREE = line_of(5)
INVENTORY = inventory_of(TREE, {("b00", "b04"): 2.0, ("b01", "b03"): 2.0})
ACTING = "swap_links_lmst"


def far_ends(start_ms: int) -> list[set[str]]:
    """The ends of the line want the same."""
    return [{"b00", "b04"}] * 40


def idle(state: TreeState, context: TreeContext, rng: random.Random) -> list[Proposal]:
    """A planner that proposes nothing."""
    return []


def failing(state: TreeState, context: TreeContext, rng: random.Random) -> list[Proposal]:
    """A planner with a bug."""
    raise KeyError("no such broker")


def swapping(state: TreeState, context: TreeContext, rng: random.Random) -> list[Proposal]:
    """A planner that links the far ends instead of b02-b03, and promises a large gain."""
    if ("b00", "b04") in state.configuration.links:
        return []
    cost_per_s = state.tree_costs.cost_per_s
    links = ((("b02", "b03"),), (("b00", "b04"),))
    return [Proposal("swapping", *links, cost_per_s, cost_per_s / 2, 0.0, "trust me")]


@pytest.fixture(autouse=True)
def _planners(monkeypatch: pytest.MonkeyPatch) -> None:
    for planner in (idle, failing, swapping):
        name_planner(monkeypatch, planner.__name__, planner, "tree")


def overlay_of(planner: str, *shadows: str, **changes: object) -> ScriptedOverlay:
    return ScriptedOverlay(INVENTORY, far_ends, settings_of(planner=planner, shadow_planners=shadows, **changes))


def shadow_of(overlay: ScriptedOverlay) -> ShadowPlanner:
    (shadow,) = overlay.loop.state.shadows
    return shadow


def test_a_shadow_makes_the_tree_that_its_planner_would_make() -> None:
    """Next to an idle planner, a shadow planner reaches the tree that the same planner reaches when it acts."""
    acting, shadowing = overlay_of("swap_links_ci"), overlay_of("idle", "swap_links_ci")
    for overlay in (acting, shadowing):
        overlay.run_windows(20)
    assert shadowing.plans == []
    assert shadow_of(shadowing).overlay.links == acting.plans[-1].links_target
    assert shadow_of(shadowing).plans_made == len(acting.plans) >= 1
    (last, *_), (work, *_) = shadow_of(shadowing).plans, acting.plans
    assert (last.window_end_ms, last.links_added) == (work.window_end_ms, work.links_added)


def test_a_shadow_does_not_affect_plans() -> None:
    """Plans are byte-identical with and without shadow planners."""
    alone, watched = overlay_of(ACTING), overlay_of(ACTING, "swap_links_ci", "swapping", "failing")
    for overlay in (alone, watched):
        overlay.run_windows(20)
    assert alone.ports.plans.versions
    assert watched.ports.plans.versions == alone.ports.plans.versions


def test_the_cost_of_a_shadow_is_that_of_its_tree_on_the_real_windows() -> None:
    """Exact on each window, beginning with the initial configuration, whatever the real tree has become."""
    overlay = overlay_of(ACTING, "swapping")
    overlay.run_windows(12)
    points = overlay.ports.view.shown.cost
    sets = sets_of(INVENTORY.brokers, far_ends(0))
    costs = [overlay_cost(tree, INVENTORY, sets).total_per_s for tree in (TREE, shadow_of(overlay).overlay)]
    assert costs[1] < costs[0]
    assert points[0].cost_shadows_per_s == {"swapping": pytest.approx(costs[0])}
    assert points[-1].cost_shadows_per_s == {"swapping": pytest.approx(costs[1])}


def test_a_shadows_plan_saves_nothing_before_its_decision() -> None:
    """A window is known some time after its end, when the next has begun, so that one partly runs on the old tree."""
    overlay = overlay_of("idle", "swapping")
    overlay.loop.step(0)
    for end_ms in (1000, 2000, 3000, 4000, 5000):
        overlay.write_window(end_ms - WINDOW_MS)
        overlay.loop.step(end_ms + 1250)
    shadow = shadow_of(overlay)
    assert [plan.window_end_ms for plan in shadow.plans] == [1000]
    sets = sets_of(INVENTORY.brokers, far_ends(0))
    old, new = (overlay_cost(tree, INVENTORY, sets).total_per_s for tree in (TREE, shadow.overlay))
    costs = [point.cost_shadows_per_s["swapping"] for point in overlay.ports.view.shown.cost]
    assert costs == pytest.approx([old, old, (old + 3 * new) / 4, new, new])


def test_a_error_of_a_shadow_is_counted_reported_once_and_stops_nothing() -> None:
    """The acting planner and other shadow planners continue; the error appears in events, counters and status."""
    overlay = overlay_of(ACTING, "failing", "swapping")
    overlay.run_windows(12)
    assert overlay.phases == [PlanPhase.COMPLETED]
    (event,) = [event for event in overlay.ports.events.emitted if event.kind is EventKind.PLANNER_FAILED]
    assert (event.subject, event.severity) == ("planner-failing", Severity.WARNING)
    assert "no such broker" in event.text
    shown = overlay.ports.view.shown
    assert shown.shadows["failing"].errors == shown.errors["shadow planner: failing"] == 12
    assert shown.shadows["swapping"].plans == 1


def test_a_shadow_plans_as_often_as_an_acting_planner() -> None:
    """With a limit of one link per plan, its plans are as far apart as those of the same planner when it acts."""
    decision = DecisionSettings(changes_per_plan_max=1, pay_back_s=600.0, window_age_ms_max=5000)
    wanted = [{"b00", "b04"}, {"b01", "b03"}, {"b00", "b04"}] * 20

    def run(*planners: str) -> ScriptedOverlay:
        settings = settings_of(planner=planners[0], shadow_planners=planners[1:], decision=decision)
        overlay = ScriptedOverlay(INVENTORY, lambda start_ms: wanted, settings)
        overlay.run_windows(30)
        return overlay

    acting = run(ACTING)
    plans = shadow_of(run("idle", ACTING)).plans
    assert len(plans) == len(acting.plans) == 2
    assert [plan.window_end_ms for plan in plans] == [plan.window_end_ms for plan in acting.plans]


def turning(start_ms: int) -> list[set[str]]:
    """The far ends want the same until the plan is made; then the brokers in the middle do."""
    return far_ends(0) if start_ms < 1000 else [{"b02", "b03"}] * 40


def test_a_shadow_rolls_back_a_plan_that_made_things_worse() -> None:
    """As when it acts: the links before the plan come back, and its planner is muted for a while."""
    decision = DecisionSettings(pay_back_s=600.0, window_age_ms_max=5000, mute_ms=20_000)
    settings = settings_of(planner="idle", shadow_planners=("swapping",), decision=decision)
    overlay = ScriptedOverlay(INVENTORY, turning, settings)
    overlay.run_windows(12)
    shadow = shadow_of(overlay)
    assert (shadow.plans_made, shadow.plans_rolled_back) == (1, 1)
    assert shadow.overlay.links == TREE.links
    assert shadow.refusals[Verdict.MUTED] >= 1
    overlay.wanted = far_ends
    overlay.run_windows(25)
    assert (shadow.plans_made, shadow.plans_rolled_back) == (2, 1)


def test_a_shadow_verifies_its_plan_on_windows_without_long_queues() -> None:
    """What seems to be wanted behind long queues would make it roll back a good plan."""
    overlay = overlay_of("idle", "swapping", quiet_windows_per_change=0)
    overlay.run_windows(2)
    overlay.wanted = lambda start_ms: [{"b02", "b03"}] * 40
    overlay.wait_ms = 2 * overlay.settings.decision.queue_wait_ms_max
    overlay.run_windows(6)
    overlay.wanted, overlay.wait_ms = far_ends, 0.0
    overlay.run_windows(4)
    shadow = shadow_of(overlay)
    (plan,) = shadow.plans
    assert shadow.plans_rolled_back == 0
    assert plan.cost_observed_per_s == pytest.approx(
        overlay_cost(shadow.overlay, INVENTORY, sets_of(INVENTORY.brokers, far_ends(0))).total_per_s
    )


def test_nothing_is_decided_on_incomplete_windows() -> None:
    """The rules about windows are those of the acting planner."""
    overlay = overlay_of("idle", "swapping")
    overlay.lost_batches = {"b03": 2}
    overlay.run_windows(6)
    shadow = shadow_of(overlay)
    assert (shadow.plans_made, shadow.refusals) == (0, {Verdict.INCOMPLETE_STATE: 6})


def test_a_restarted_controller_begins_its_shadows_at_the_present_configuration() -> None:
    """Windows from before the restart have no cost of a shadow planner, those after it do."""
    overlay = overlay_of(ACTING, "idle")
    overlay.run_windows(12)
    present = overlay.plans[-1].links_target
    assert shadow_of(overlay).overlay.links == TREE.links
    overlay.new_loop()
    overlay.write_window(overlay.now_ms - 2 * WINDOW_MS)
    overlay.run_windows(2)
    assert shadow_of(overlay).overlay.links == present
    costs = [point.cost_shadows_per_s for point in overlay.ports.view.shown.cost]
    assert costs[0] == {}
    assert all(set(cost) == {"idle"} for cost in costs[1:])


def test_status_and_metrics_show_each_planner() -> None:
    """Plans that would have been made, refusals and the duration of decisions, all as JSON."""
    seconds = iter(range(10_000))
    metrics = LoopMetrics()
    overlay = overlay_of(ACTING, "swapping")
    ports = overlay.ports.ports
    overlay.loop = compose_loop(
        overlay.settings, INVENTORY, ports, metrics=metrics, stopwatch_s=lambda: float(next(seconds))
    )
    overlay.run_windows(12)
    shown = overlay.ports.view.shown
    shadow = shown.shadows["swapping"]
    assert (shadow.plans, shadow.links_exchanged, shadow.errors) == (1, 1, 0)
    (plan,) = shadow.last_plans
    assert (plan.links_removed, plan.links_added) == ((("b02", "b03"),), (("b00", "b04"),))
    assert plan.cost_observed_per_s == pytest.approx(plan.cost_predicted_per_s)
    assert set(shown.decision_ms) == {f"acting:{ACTING}", "shadow:swapping"}
    assert shown.decision_ms["shadow:swapping"] == DecisionTimes(12, 1000, 1000, 1000)
    value = metrics.registry.get_sample_value
    labels = {"planner": "swapping", "role": "shadow"}
    assert value("regraft_controller_decision_ms_count", labels) == 12
    shadow_cost = shown.cost[-1].cost_shadows_per_s["swapping"]
    assert value("regraft_controller_cost_per_s", {"tree": "shadow:swapping"}) == shadow_cost


def test_shadows_skip_windows_that_came_during_the_last_decision() -> None:
    """However many records one poll returns, the next decision is on the newest window: a delay does not persist."""
    overlay = overlay_of("idle", "swapping")
    overlay.ports.state.poll_max = 5  # less than a window's
    overlay.run_windows(3)
    for _ in range(2):
        overlay.now_ms += WINDOW_MS
        overlay.write_window(overlay.now_ms - WINDOW_MS)
    assert len(overlay.ports.state.records) > 2 * overlay.ports.state.poll_max
    overlay.loop.step(overlay.now_ms)
    shown = overlay.ports.view.shown
    assert (shown.windows_closed, shown.cost[-1].window_end_ms) == (5, overlay.now_ms)
    decided = {name: times.count for name, times in shown.decision_ms.items()}
    assert decided == {"acting:idle": 4, "shadow:swapping": 3}
    assert overlay.metrics.registry.get_sample_value("regraft_controller_shadow_skips_total") == 1
    overlay.run_windows(1)
    assert overlay.ports.view.shown.decision_ms["shadow:swapping"].count == 4


def test_shadows_do_not_delay_a_transition(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the step that begins a plan until its last broker has answered, no shadow planner runs; it does then."""
    moving: list[bool] = []
    overlay = overlay_of(ACTING, "watching")

    def watching(state: TreeState, context: TreeContext, rng: random.Random) -> list[Proposal]:
        moving.append(overlay.loop.is_transition_running)
        return []

    name_planner(monkeypatch, "watching", watching, "tree")
    overlay.run_windows(3)
    assert overlay.plans
    assert moving
    assert not any(moving)


def test_shadows_skip_a_window_of_brokers_that_a_transition_has_changed_since() -> None:
    """A repair may begin in the step that ends a plan, so a situation may wait until its brokers are others."""
    overlay = overlay_of("idle", "swapping")
    overlay.run_windows(1)
    state = overlay.loop.state
    (shadow,), decided = state.shadows, state.decision_times["shadow:swapping"].count
    before: Any = SimpleNamespace(state=SimpleNamespace(configuration=SimpleNamespace(brokers=("b1", "dead"))))
    state.for_shadows = before
    overlay.loop.step(overlay.now_ms)
    assert state.for_shadows is None
    assert (shadow.errors, state.decision_times["shadow:swapping"].count) == (0, decided)
