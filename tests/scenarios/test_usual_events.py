"""Windows in which plans are executed: decided on where that is right, and never reported."""

import random
from pathlib import Path

from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.controller.settings.decision_settings import DecisionSettings
from regraft.producers.emulator.place_overlay import place_overlay
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.schemas.event import EventKind
from regraft.schemas.plan import Verdict
from tests.scenarios.closed_loop import WINDOW_MS, ClosedLoop
from tests.scenarios.test_closed_loop_ring import small_ring

WORKLOAD = WorkloadSettings(publisher_count=8, interested_broker_count=4, lifetime_s_mean=10.0)


def test_the_window_of_a_transition_that_moves_users_is_not_reported_as_stale() -> None:
    """It shows them at two homes, so nothing is decided on it; the event of the plan has said all."""
    loop = small_ring(1)
    loop.run_for(40_000)
    state = loop.loop.state
    assert state.refusals[Verdict.STALE_STATE]
    assert [event.text for event in state.events if event.kind is EventKind.WINDOW_STALE] == []


def test_a_plan_for_links_and_publishers_is_followed_by_another_one_window_later() -> None:
    """The window in which it was executed shows the same traffic as any other."""
    few = DecisionSettings(changes_per_plan_max=3, noise_factor=0.0)
    settings = ControllerSettings(
        bootstrap="virtual", inventory_path=Path("virtual"), dry_run=False, decision=few, planner="swap_links_cost"
    )
    loop = ClosedLoop(place_overlay(12, 6, random.Random(1)), WORKLOAD, 1, settings)
    loop.run_for(20_000)
    first, second = loop.plans[:2]
    assert second.window_end_ms - first.window_end_ms == WINDOW_MS
    assert not loop.loop.state.refusals[Verdict.STALE_STATE]
