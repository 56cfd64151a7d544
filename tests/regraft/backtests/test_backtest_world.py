"""A backtest's planners know what the controller of the recording knew: link costs and changes of traffic."""

import random
from pathlib import Path

import pytest

from regraft.backtests.backtest_outcome import RECORDED
from regraft.backtests.run_backtest import BacktestOptions, run_backtest
from regraft.producers.emulator.place_overlay import place_overlay
from regraft.schemas.event import EventKind
from regraft.settings.fixed_settings import with_recorded
from regraft.settings.place_demo import ensure_inventory
from regraft.settings.run_settings import load_settings
from tests.record_virtual import record_virtual
from tests.regraft.backtests.test_backtest import PLANNER, QUIET, outcome


def test_links_and_changes_of_traffic_are_those_known_to_the_controller(tmp_path: Path) -> None:
    """A link slower than the inventory says costs what its round trips show, and shifts of interests are detected."""
    slow = ",".join(place_overlay(10, 8, random.Random(3)).bootstrap.links[0])
    chosen = load_settings(
        {
            "run": {"directory": str(tmp_path / "run"), "seed": 3},
            "demo": {"brokers": 10},
            "controller": {"dry_run": False, "planner": PLANNER, "horizon_lifetimes": 1.0},
            "emulator": {
                "outages": [f"slow {slow} at 15 for 200 by 10"],
                "workload": {"publisher_count": 12, "notifications_per_s": 2.0, "regime_change": "interests at 60"},
            },
        }
    )
    settings = with_recorded(chosen, {"streaming": {"trigger_ms": 100}})
    file = tmp_path / "rec.avro"
    loop = record_virtual(settings, ensure_inventory(settings), 90, file)
    state = loop.loop.state
    assert state.fleet.measured
    found = run_backtest(BacktestOptions(file, (PLANNER,), closed_loop_s=0), QUIET)
    recorded = outcome(found, RECORDED)
    seen = {point.window_end_ms: point for point in state.cost_points if point.is_complete}
    for point in recorded.points:
        assert point.cost_per_s == pytest.approx(seen[point.end_ms].cost_per_s)
        assert point.cost_bootstrap_per_s == pytest.approx(seen[point.end_ms].cost_bootstrap_per_s)
    assert recorded.links_corrected == len(state.fleet.measured)
    (change,) = (event for event in state.events if event.kind is EventKind.CHANGE_DETECTED)
    assert recorded.changes_found_ms == (int(change.details["since_ms"]),)
    assert state.changed_since_ms == recorded.changes_found_ms[0] + 5_000  # The window in which it came is left out.
    assert any("recorded round trips" in note for note in found.notes)
    assert any("Traffic changed" in note for note in found.notes)
    by_file = {"controller": {"links": {"cost_per_ms": 0.0}}}
    deaf = outcome(run_backtest(BacktestOptions(file, (PLANNER,), by_file, closed_loop_s=0), QUIET), RECORDED)
    assert deaf.links_corrected == 0
