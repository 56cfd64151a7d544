import json
from pathlib import Path

from regraft.run_records.run_record import HorizonUse
from regraft.stages.observe_run import RunObserver
from schemas.plan import PlanPhase
from tests.regraft.canned_run import START_MS, small_plan


def _controller(refusals: dict[str, int], window_count: int) -> dict[str, object]:
    plan = small_plan(PlanPhase.COMPLETED)
    return {
        "configuration": {"epoch": 1},
        "plans_completed": 1,
        "plans": [{"plan": plan.plan, "epoch_to": 1, "phase": "completed", "proposals": [{"reason": "near"}]}],
        "window_close_to_command_ms": {plan.plan: 2_300},
        "refusals": refusals,
        "cost": [
            {
                "window_end_ms": START_MS + 5_000 * turn,
                "epoch": 1,
                "cost_per_s": 40.0,
                "cost_bootstrap_per_s": 90.0,
                "is_complete": True,
            }
            for turn in range(window_count)
        ],
        "events": [
            {"subject": "plan-1", "kind": "plan_started", "severity": "info", "time_ms": START_MS, "text": "go"}
        ],
    }


def _write(directory: Path, name: str, document: object) -> None:
    (directory / f"{name}.json").write_text(json.dumps(document))


def test_before_any_status_file_nothing_is_claimed(tmp_path: Path) -> None:
    """The first picture of a run is empty, not wrong."""
    observer = RunObserver(tmp_path)
    assert observer.refresh() == []
    frame = observer.frame("starting", 0.0, 75.0, ())
    assert (frame.windows, frame.ledger.published, observer.regime_change_ms) == ((), 0, None)


def test_a_restarted_controller_does_not_set_counts_back(tmp_path: Path) -> None:
    """Refusals of before and after a kill add up; windows, latencies and events are kept once."""
    observer = RunObserver(tmp_path)
    _write(tmp_path, "controller", _controller({"degree": 5}, window_count=3))
    assert len(observer.refresh()) == 1
    _write(tmp_path, "controller", _controller({"degree": 2, "cool_down": 1}, window_count=2))
    assert observer.refresh() == []
    assert observer.refusals == {"degree": 7, "cool_down": 1}
    assert len(observer.windows) == 3
    assert observer.latencies_ms == {"plan-1": 2_300}


def test_a_broken_status_file_is_passed_over(tmp_path: Path) -> None:
    """A full disk may leave a status file empty; the last good picture stays."""
    observer = RunObserver(tmp_path)
    _write(tmp_path, "controller", _controller({}, window_count=1))
    observer.refresh()
    (tmp_path / "controller.json").write_text("")
    observer.refresh()
    assert observer.frame("running", 1.0, None, ()).plans == (("plan-1", 1, "completed", "near"),)


def _with_shadow(document: dict[str, object], started_ms: int, plans: int, seen_from: int) -> dict[str, object]:
    shadow = {
        "plans": plans,
        "plans_taken_back": 0,
        "links_exchanged": 2 * plans,
        "publishers_moved": plans,
        "homes": {"p": "b01"},
        "links": [["b00", "b01"]],
        "refusals": {"cool_down": plans},
        "faults": 0,
        "fault_text": "",
    }
    for turn, point in enumerate(document["cost"]):  # type: ignore[arg-type,var-annotated]
        point["cost_shadows_per_s"] = {"swap_links_ci": 50.0} if turn >= seen_from else {}
    times = {"shadow:swap_links_ci": {"count": 3, "last_ms": 1.0, "mean_ms": 2.0, "max_ms": 3.0}}
    horizon = {"windows": 4, "windows_wanted": 6, "lifetime_s": None, "is_measured": True}
    return document | {
        "started_ms": started_ms,
        "shadows": {"swap_links_ci": shadow},
        "decision_ms": times,
        "horizon": horizon,
    }


def test_a_restarted_controller_does_not_lose_what_shadows_did_before(tmp_path: Path) -> None:
    """Plans add up over controllers, and windows keep the cost that only the earlier one knew."""
    observer = RunObserver(tmp_path)
    assert observer.shadows == ()
    for started_ms, plans, seen_from in ((1, 3, 0), (1, 4, 0), (2, 1, 2)):
        _write(tmp_path, "controller", _with_shadow(_controller({}, 3), started_ms, plans, seen_from))
        observer.refresh()
    (shadow,) = observer.shadows
    assert (shadow.plans, shadow.links_exchanged, shadow.refusals, shadow.starts) == (5, 10, {"cool_down": 5}, 2)
    assert (shadow.publishers_moved, shadow.homes) == (5, {"p": "b01"})
    assert [dict(window.shadows_per_s) for window in observer.windows.values()] == [{"swap_links_ci": 50.0}] * 3
    frame = observer.frame("running", 1.0, None, ())
    assert (frame.shadow_plans, frame.horizon) == ({"swap_links_ci": 5}, HorizonUse(4, None))
    assert observer.decision_times["shadow:swap_links_ci"].max_ms == 3.0


def test_users_are_counted_from_when_they_have_connected(tmp_path: Path) -> None:
    """What brokers subscribe to as the first users come is no change of interests; a tree has no users."""
    observer = RunObserver(tmp_path)
    assert observer.users is None
    document = {"started_ms": START_MS, "users": 9, "subscriptions": 30, "users_moved": 0, "user_wait_ms_max": 0.0}
    changes, without = "broker_subscription_changes", "broker_subscription_changes_at_first_homes"
    for after_ms, counts in ((1_000, (50, 50)), (10_500, (80, 80)), (20_000, (110, 120))):
        _write(
            tmp_path,
            "emulator",
            document | {"time_ms": START_MS + after_ms, changes: counts[0], without: counts[1]},
        )
        observer.refresh()
    assert observer.users is not None
    assert (observer.users.subscription_changes, observer.users.subscription_changes_at_first_homes) == (30, 40)
    assert observer.users.subscription_changes_cut == 0.25
