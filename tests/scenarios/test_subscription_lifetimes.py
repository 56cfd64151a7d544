"""The measured lifetime of subscriptions against the emulator's true one, and the horizon that follows from it."""

import random
from pathlib import Path

import pytest

from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.producers.emulator.place_overlay import place_overlay
from regraft.producers.workloads.stock_settings import WorkloadSettings
from tests.scenarios.closed_loop import WINDOW_MS, ClosedLoop


def observed_overlay(lifetime_s: float, notifications_per_s: float, **settings: object) -> ClosedLoop:
    """Return 12 brokers and 48 subscriptions with this mean lifetime, under a controller in dry run."""
    workload = WorkloadSettings(
        publisher_count=12,
        notifications_per_s=notifications_per_s,
        interested_broker_count=4,
        lifetime_s_mean=lifetime_s,
        broker_load_exponent=1.0,
    )
    values = {"bootstrap": "virtual", "inventory_path": Path("virtual"), "planner": "swap_links_lmst", "dry_run": True}
    looking = ControllerSettings(**(values | settings))  # type: ignore[arg-type]
    return ClosedLoop(place_overlay(12, 8, random.Random(7)), workload, 7, looking)


@pytest.mark.parametrize(
    ("lifetime_s", "notifications_per_s", "duration_s"), [(8.0, 1.0, 60), (8.0, 0.1, 60), (40.0, 0.5, 180)]
)
def test_the_measured_lifetime_is_the_true_one(lifetime_s: float, notifications_per_s: float, duration_s: int) -> None:
    """Within 15 %, from busy publishers and from ones that publish less than once a window."""
    loop = observed_overlay(lifetime_s, notifications_per_s)
    loop.run_for(duration_s * 1000)
    assert loop.ports.view.shown.horizon.lifetime_s == pytest.approx(lifetime_s, rel=0.15)


def test_a_decision_looks_back_the_configured_lifetimes() -> None:
    """Two lifetimes of 10 s are 4 windows of 5 s, and a configured lifetime is not measured."""
    loop = observed_overlay(10.0, 1.0, horizon_lifetimes=2.0)
    loop.run_for(60_000)
    horizon = loop.ports.view.shown.horizon
    wanted = round(2 * horizon.lifetime_s * 1000 / WINDOW_MS)
    assert (horizon.windows, horizon.windows_wanted, horizon.is_measured) == (wanted, wanted, True)
    assert 3 <= wanted <= 5
    given = observed_overlay(10.0, 1.0, horizon_lifetimes=3.0, subscription_lifetime_s=8.0)
    given.run_for(40_000)
    horizon = given.ports.view.shown.horizon
    assert (horizon.windows, horizon.lifetime_s, horizon.is_measured) == (5, 8.0, False)
