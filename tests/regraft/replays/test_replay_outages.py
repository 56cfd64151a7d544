"""Recordings in which a broker dies, is repaired around and returns: decided again and backtested like any other."""

from __future__ import annotations

import pytest
from rich.console import Console

from regraft.backtests.backtest_outcome import Mode
from regraft.backtests.run_backtest import BacktestOptions, run_backtest
from regraft.producers.recordings.read_recording import Recording, open_recording
from regraft.replays.read_inputs import read_inputs, recorded_settings
from regraft.replays.replay_decisions import StateRecord, decide_again
from regraft.schemas.plan import Plan
from regraft.settings.place_demo import ensure_inventory
from regraft.settings.run_settings import load_settings
from regraft.streaming.reference_aggregator import ReferenceAggregator
from tests.record_virtual import record_virtual

PLANNER = "swap_links_cost+relocate_publishers_joint"
DEAD = "b3"
RECORDED_S, CLOSED_S = 90, 70


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Return a recording of ten brokers, one of which is dead from second 15 to 50."""
    folder = tmp_path_factory.mktemp("outage")
    settings = load_settings(
        {
            "run": {"directory": str(folder / "run"), "seed": 3},
            "demo": {"brokers": 10},
            "controller": {"dry_run": False, "planner": PLANNER, "horizon_lifetimes": 1.0},
            "emulator": {
                "outages": [f"death {DEAD} at 15 for 35"],
                "workload": {"publisher_count": 12, "notifications_per_s": 2.0},
            },
        }
    )
    record_virtual(settings, ensure_inventory(settings), RECORDED_S, folder / "rec.avro")
    return open_recording(folder / "rec.avro")


def changes_of_brokers(plans: list[Plan]) -> list[tuple[str, bool]]:
    """Return, for plans that change the brokers of the overlay, who was lost and whether DEAD is in it afterwards."""
    changing = (plan for plan in plans if plan.proposals[0].planner in ("repair", "membership"))
    return [("".join(plan.brokers_lost), DEAD in plan.brokers_target) for plan in changing]


def test_a_repair_and_a_return_are_decided_again(recording: Recording) -> None:
    """No answers were recorded, so brokers are simulated: the returned one can be admitted."""
    settings, _ = recorded_settings(recording, {}, None)
    window_ms, grace_ms = settings.streaming.window_ms, settings.streaming.grace_ms
    aggregator = ReferenceAggregator(window_ms, grace_ms)
    rows: list[StateRecord] = []
    for batch in recording.batches():
        aggregator.take(batch)
        for window in aggregator.advance():
            rows += [*window.rows, window.marker]
    inputs = read_inputs(recording)
    recorded = sorted(inputs.recorded.values(), key=lambda plan: plan.epoch_to)
    decided = decide_again(rows, inputs, recording.info.inventory, settings.controller, grace_ms)
    assert changes_of_brokers(recorded) == [(DEAD, False), ("", True)]
    assert changes_of_brokers(list(decided.plans)) == [(DEAD, False), ("", True)]


def test_planners_are_backtested_on_it(recording: Recording) -> None:
    """In both modes: open with overlays of other brokers, closed with the death that the settings schedule."""
    found = run_backtest(BacktestOptions(recording.path, (PLANNER,), closed_loop_s=CLOSED_S), Console(quiet=True))
    assert not found.errors
    assert {one.mode for one in found.outcomes} == {Mode.OPEN_LOOP, Mode.CLOSED_LOOP}
    assert all(one.points and not one.windows_unknown for one in found.outcomes)
    closed = next(one.deliveries for one in found.outcomes if one.deliveries is not None)
    assert closed.lost_to_deaths > 0  # What was in the dead broker and on its links.
    assert (closed.lost, closed.repeated, closed.out_of_order) == (0, 0, 0)
