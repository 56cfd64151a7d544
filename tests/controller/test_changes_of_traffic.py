"""How the loop handles a change of traffic: what was before no longer counts."""

from __future__ import annotations

import random

from regraft.controller.kinds.tree.tree_state import TreeContext, TreeState
from regraft.controller.loop.compose_loop import compose_loop
from regraft.controller.report.loop_metrics import LoopMetrics
from regraft.overlay.tree.tree_costs import LinkSwap
from regraft.schemas.event import EventKind
from regraft.schemas.plan import PlanPhase, Proposal, Verdict
from tests.controller.scripted_overlay import ScriptedOverlay, settings_of
from tests.controller.scripted_windows import WINDOW_MS
from tests.controller.test_control_loop import INVENTORY, far_ends, overlay_of

SHIFT_MS = 10 * WINDOW_MS


def shifting(start_ms: int) -> list[set[str]]:
    """The far ends want the same, then the brokers in the middle do."""
    return far_ends(0) if start_ms < SHIFT_MS else [{"b02", "b03"}] * 40


def late(state: TreeState, context: TreeContext, rng: random.Random) -> list[Proposal]:
    """A planner that makes one change just before the shift, which is bad for the traffic after it."""
    swap = LinkSwap(("b02", "b03"), ("b00", "b04"))
    if state.newest.end_ms < SHIFT_MS or swap.added in state.configuration.links:
        return []
    cost_per_s = state.tree_costs.cost_per_s
    return [Proposal("late", (swap.removed,), (swap.added,), cost_per_s, cost_per_s / 2, 0.0, "trust me")]


def test_a_plan_overtaken_by_a_shift_is_neither_verified_nor_rolled_back() -> None:
    """It was right when it was made: it is closed, no planner is muted, and planners adapt to the new traffic."""
    overlay = ScriptedOverlay(INVENTORY, shifting, settings_of(), late)
    overlay.run_windows(20)
    (plan,) = overlay.plans
    assert plan.phase is PlanPhase.COMPLETED
    assert plan.cost_observed_per_s is None
    assert "traffic has changed" in plan.history[-1].reason
    assert overlay.events_of(EventKind.GAIN_MISSED) == []
    assert Verdict.MUTED not in overlay.ports.view.shown.refusals


def test_without_detection_the_same_plan_is_rolled_back() -> None:
    """With detection off, the plan is judged on traffic that it was not made for."""
    overlay = ScriptedOverlay(INVENTORY, shifting, settings_of(quiet_windows_per_change=0.0), late)
    overlay.run_windows(20)
    assert overlay.plans[1].undoes == overlay.plans[0].plan
    assert overlay.events_of(EventKind.CHANGE_DETECTED) == []


def test_a_change_is_reported_once_and_cuts_the_horizon() -> None:
    """Event and metric give its start; decisions use the window in which it was found until the next one has closed."""
    metrics = LoopMetrics()
    overlay = overlay_of()
    overlay.wanted = shifting
    overlay.loop = compose_loop(overlay.settings, INVENTORY, overlay.ports.ports, metrics=metrics)
    looked_back = []
    for _ in range(14):
        overlay.run_windows(1)
        assert overlay.loop.state.horizon is not None
        looked_back.append(overlay.loop.state.horizon.windows)
    assert looked_back[8:] == [3, 3, 1, 1, 2, 3]
    (event,) = [one for one in overlay.ports.events.emitted if one.kind is EventKind.CHANGE_DETECTED]
    assert event.details["since_ms"] == str(SHIFT_MS)
    assert overlay.loop.state.changed_since_ms == SHIFT_MS + WINDOW_MS
    labels = {"statistic": event.details["statistic"]}
    assert metrics.registry.get_sample_value("regraft_controller_changes_found_total", labels) == 1


def test_a_restarted_controller_knows_the_change_and_does_not_report_it_again() -> None:
    """It reads the windows of the horizon again."""
    overlay = overlay_of()
    overlay.wanted = shifting
    overlay.run_windows(20)
    overlay.new_loop()
    for start_ms in range(0, 20 * WINDOW_MS, WINDOW_MS):
        overlay.write_window(start_ms)
    overlay.run_windows(1)
    assert overlay.loop.state.changed_since_ms == SHIFT_MS + WINDOW_MS
    assert len(overlay.events_of(EventKind.CHANGE_DETECTED)) == 1
