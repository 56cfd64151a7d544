"""Quiet traffic of the emulator, with churn and executed plans: no change of traffic is reported."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.overlay.inventory.inventory import Inventory
from regraft.producers.emulator.place_overlay import place_overlay, place_ring
from regraft.producers.virtual_overlay import VirtualSettings
from regraft.producers.workloads.checkin_settings import CheckinSettings
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.schemas.event import EventKind
from regraft.virtual_runs.virtual_loop import WINDOW_MS, VirtualLoop
from tests.scenarios.closed_loop import DESCENTS_ONLY
from tests.scenarios.test_closed_loop import WORKLOAD
from tests.scenarios.test_closed_loop_ring import CHECKINS

WINDOWS = 36
SEED = 5
TREE = place_overlay(12, 6, random.Random(SEED))
RING = place_ring(12, random.Random(SEED))


@pytest.mark.parametrize(
    ("place", "workload", "planner"),
    [
        (TREE, replace(WORKLOAD, regime_change_s=None), "swap_links_cost+relocate_publishers_joint"),
        (RING, CHECKINS, "place_users_dynatops"),
    ],
    ids=["quotes", "check-ins"],
)
def test_no_change_is_reported(place: Inventory, workload: WorkloadSettings | CheckinSettings, planner: str) -> None:
    """Subscriptions come and go, publishers and users move; only lasting differences would be a change of traffic."""
    settings = ControllerSettings(
        bootstrap="virtual", inventory_path=Path("virtual"), dry_run=False, seed=SEED, planner=planner,
        planners=DESCENTS_ONLY,
    )  # fmt: skip
    loop = VirtualLoop(place, workload, settings, VirtualSettings(seed=SEED))
    loop.run_for((WINDOWS + 1) * WINDOW_MS)
    state = loop.loop.state
    assert state.windows_closed - state.windows_incomplete >= WINDOWS - 1
    assert state.client_changes > 10 * WINDOWS
    assert any(plan.moves for plan in loop.plans)
    silences = loop.virtual.overlay.publishers.moves  # Commands take equally long to every broker, so there are none.
    assert (silences.wait_ms_max < 1.0, silences.notifications_waited) == (True, 0)
    assert [event.text for event in loop.ports.events.emitted if event.kind is EventKind.CHANGE_DETECTED] == []
    assert state.changed_since_ms is None
