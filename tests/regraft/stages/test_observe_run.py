import json
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from regraft.schemas.bounds import TIME_MS_MAX
from regraft.schemas.event import AdaptationEvent, EventKind, Severity
from regraft.schemas.live_view import Horizon, LiveView, encode_view
from regraft.schemas.loop_verdict import SILENCE_S_MAX
from regraft.schemas.member import MemberState
from regraft.schemas.plan import REPAIR, PlanPhase
from regraft.schemas.shown_state import DecisionTimes, ShownFleet, ShownMember
from regraft.stages.observe_run import RunObserver
from tests.regraft.canned_run import START_MS, small_plan
from tests.schemas.shown_views import cost_point, shown_plan, shown_proposal, shown_shadow, view_of


def _view(refusals: dict[str, int], window_count: int, **changes: Any) -> LiveView:
    name = small_plan(PlanPhase.COMPLETED).plan
    view = view_of(
        plans_completed=1,
        plans=(shown_plan(name, PlanPhase.COMPLETED, START_MS, proposals=(shown_proposal("near"),)),),
        window_close_to_command_ms={name: 2_300},
        refusals=refusals,
        cost=tuple(cost_point(START_MS + 5_000 * turn, 40.0, 90.0) for turn in range(window_count)),
        events=(AdaptationEvent("plan-1", EventKind.PLAN_STARTED, Severity.INFO, START_MS, "go"),),
    )
    return replace(view, **changes)


def _show(directory: Path, view: LiveView) -> None:
    (directory / "controller.json").write_bytes(encode_view(view))


def _write(directory: Path, name: str, document: object) -> None:
    (directory / f"{name}.json").write_text(json.dumps(document))


def test_before_any_status_file_the_view_is_empty(tmp_path: Path) -> None:
    """Nothing is claimed about the run."""
    observer = RunObserver(tmp_path)
    assert observer.refresh() == []
    frame = observer.frame("starting", 0.0, 75.0, ())
    assert (frame.windows, frame.ledger, observer.regime_change_ms) == ((), None, None)


def test_a_run_is_congested_while_such_an_alert_is_raised(tmp_path: Path) -> None:
    """Other alerts, and cleared ones, do not count."""
    observer = RunObserver(tmp_path)
    assert not observer.is_congested
    _write(tmp_path, "alerts", {"active": [{"rule": "late_rows"}, {"rule": "link_congestion"}]})
    assert observer.is_congested
    _write(tmp_path, "alerts", {"active": [{"rule": "late_rows"}], "recent": [{"rule": "link_congestion"}]})
    assert not observer.is_congested


def test_a_restarted_controller_does_not_set_counts_back(tmp_path: Path) -> None:
    """Refusals before and after a kill add up; windows, latencies and events are kept once."""
    observer = RunObserver(tmp_path)
    _show(tmp_path, _view({"degree": 5}, window_count=3))
    assert len(observer.refresh()) == 1
    _show(tmp_path, _view({"degree": 2, "cool_down": 1}, window_count=2))
    assert observer.refresh() == []
    assert observer.refusals == {"degree": 7, "cool_down": 1}
    assert len(observer.windows) == 3
    assert observer.latencies_ms == {"plan-1": 2_300}


def test_a_restarted_controller_that_stands_by_hides_no_plans(tmp_path: Path) -> None:
    """Until it leads again it knows neither plans nor epoch; the last leader's stay, with a note."""
    observer = RunObserver(tmp_path)
    _show(tmp_path, _view({}, window_count=1))
    observer.refresh()
    before = observer.frame("running", 1.0, None, ())
    _show(tmp_path, _view({}, 0, is_standby=True, plans=(), plans_completed=0, events=()))
    assert observer.refresh() == []
    standing_by = observer.frame("running", 2.0, None, ())
    assert (standing_by.plans, standing_by.plans_completed, standing_by.epoch) == (before.plans, 1, before.epoch)
    assert "no controller leads" in standing_by.note
    _show(tmp_path, _view({}, window_count=1))
    observer.refresh()
    assert observer.frame("running", 3.0, None, ()).note == before.note


def test_old_values_are_said_to_be_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of a controller that cannot write it, or that is gone, was shown as the present state."""
    observer, now_s = RunObserver(tmp_path), 1_000.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    _show(tmp_path, _view({}, 1, time_ms=1_000))
    observer.refresh()
    now_s += SILENCE_S_MAX
    observer.refresh()
    assert "status" not in observer.frame("running", 1.0, None, ()).note
    (tmp_path / "controller.json").unlink()
    now_s += 5.0
    observer.refresh()
    assert "the controller has written no status for 20 s" in observer.frame("running", 1.0, None, ()).note
    _show(tmp_path, _view({}, 1, time_ms=2_000))
    observer.refresh()
    assert "status" not in observer.frame("running", 1.0, None, ()).note


def test_a_broken_status_file_is_ignored(tmp_path: Path) -> None:
    """A full disk may leave a status file empty; the last good view stays."""
    observer = RunObserver(tmp_path)
    _show(tmp_path, _view({}, window_count=1))
    observer.refresh()
    (tmp_path / "controller.json").write_text("")
    observer.refresh()
    assert observer.frame("running", 1.0, None, ()).plans == (("plan-1", 1, "completed", "near"),)


def _with_shadow(started_ms: int, plans: int, seen_from: int) -> LiveView:
    shadow = shown_shadow(
        plans=plans,
        links_exchanged=2 * plans,
        publishers_moved=plans,
        homes={"p": "b01"},
        links=(("b00", "b01"),),
        refusals={"cool_down": plans},
    )
    view = _view({}, 3)
    seen = [{"swap_links_ci": 50.0} if turn >= seen_from else {} for turn in range(3)]
    return replace(
        view,
        started_ms=started_ms,
        shadows={"swap_links_ci": shadow},
        cost=tuple(replace(point, cost_shadows_per_s=costs) for point, costs in zip(view.cost, seen, strict=True)),
        decision_ms={"shadow:swap_links_ci": DecisionTimes(3, 1.0, 2.0, 3.0)},
        horizon=Horizon(4, 6, None, True),
    )


def test_a_restarted_controller_does_not_lose_earlier_results_of_shadows(tmp_path: Path) -> None:
    """Plans add up over controllers, and windows keep the cost that only the earlier one knew."""
    observer = RunObserver(tmp_path)
    assert observer.shadows == ()
    for started_ms, plans, seen_from in ((1, 3, 0), (1, 4, 0), (2, 1, 2)):
        _show(tmp_path, _with_shadow(started_ms, plans, seen_from))
        observer.refresh()
    (shadow,) = observer.shadows
    assert (shadow.plans, shadow.links_exchanged, shadow.refusals, shadow.starts) == (5, 10, {"cool_down": 5}, 2)
    assert (shadow.publishers_moved, shadow.homes) == (5, {"p": "b01"})
    assert [dict(window.shadows_per_s) for window in observer.windows.values()] == [{"swap_links_ci": 50.0}] * 3
    frame = observer.frame("running", 1.0, None, ())
    assert (frame.shadow_plans, frame.horizon) == ({"swap_links_ci": 5}, Horizon(4, 6, None, is_measured=True))
    assert observer.decision_times["shadow:swap_links_ci"].max_ms == 3.0


def test_users_are_counted_once_they_have_connected(tmp_path: Path) -> None:
    """Subscriptions of the first users to connect are no change of interests; a tree has no users."""
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


def test_only_a_plan_that_began_after_the_shift_and_saved_has_followed_it(tmp_path: Path) -> None:
    """One from before it, one that still waits for its windows, one that saved nothing and a repair do not count."""
    observer = RunObserver(tmp_path)
    _write(tmp_path, "emulator", {"started_ms": START_MS, "time_ms": START_MS, "regime_changed_ms": START_MS + 9_000})
    followed = []
    repair = (replace(shown_proposal("b01 is dead"), planner=REPAIR),)
    for phase, start_ms, observed, proposals in (
        ("completed", 0, 500.0, ()),
        ("verifying", 10_000, None, ()),
        ("completed", 10_000, None, ()),
        ("completed", 10_000, 950.0, ()),
        ("completed", 10_000, 500.0, repair),
        ("completed", 10_000, 500.0, ()),
    ):
        plan = shown_plan(
            "plan-1", PlanPhase(phase), START_MS + start_ms, cost_observed_per_s=observed, proposals=proposals
        )
        _show(tmp_path, _view({}, 1, plans=(plan,)))
        observer.refresh()
        followed.append(observer.has_followed_shift)
    assert followed == [False] * 5 + [True]


def test_next_to_real_brokers_nobody_counts(tmp_path: Path) -> None:
    """Without clients that keep a ledger there is none to show, not one of zeros."""
    observer = RunObserver(tmp_path)
    _show(tmp_path, _view({}, 1))
    observer.refresh()
    assert observer.frame("running", 1.0, None, ()).ledger is None
    _write(tmp_path, "emulator", {"ledger": {"lost": 0}})
    observer.refresh()
    assert observer.frame("running", 2.0, None, ()).ledger is not None


def test_a_shadow_that_starts_again_keeps_its_counts(tmp_path: Path) -> None:
    """A death makes shadow planners start again in the same controller; what they planned before still counts."""
    observer = RunObserver(tmp_path)
    for shadow in (shown_shadow(plans=2), shown_shadow(plans=1, epoch_start=3)):
        _show(tmp_path, _view({}, 1, shadows={"swap_links_ci": shadow}))
        observer.refresh()
    (found,) = observer.shadows
    assert (found.plans, found.starts, found.epoch_start) == (3, 2, 3)


def test_an_overlay_is_whole_if_all_running_brokers_are_in_it(tmp_path: Path) -> None:
    """A death must be noticed and repaired, and a returned broker admitted."""
    observer = RunObserver(tmp_path)
    assert not observer.is_whole
    dead = ShownMember(broker="b01", state=MemberState.DEAD, since_ms=START_MS, reason="silent", in_overlay=True)
    out, joining = replace(dead, in_overlay=False), replace(dead, state=MemberState.JOINING, in_overlay=False)
    back = replace(dead, state=MemberState.IN_SERVICE)
    first, second = [[START_MS - 1, "b00, b01: died"]], [[START_MS - 1, "b01: died"], [START_MS + 5, "b01: died"]]
    course = (
        ("all is well", [], 0, {"in_service": 3}, (), True),
        ("b01 died, unnoticed", second[:1], 1, {"in_service": 3}, (), False),
        ("and is known to be dead", second[:1], 1, {"in_service": 2, "dead": 1}, (dead,), False),
        ("the overlay does without it", second[:1], 1, {"in_service": 2, "dead": 1}, (out,), True),
        ("it is back, unnoticed", second[:1], 0, {"in_service": 2, "dead": 1}, (out,), False),
        ("and is to join", second[:1], 0, {"in_service": 2, "joining": 1}, (joining,), False),
        ("and is taken in", second[:1], 0, {"in_service": 3}, (back,), True),
        ("b00 came back, too, before anybody missed it", first, 0, {"in_service": 3}, (back,), False),
        ("b01 began again before it was missed", second, 0, {"in_service": 3}, (back,), False),
    )
    for what, notes, dead_count, counts, members, is_whole in course:
        _write(tmp_path, "emulator", {"outage_notes": notes, "brokers_dead": dead_count})
        _show(tmp_path, _view({}, 1, members=ShownFleet(counts=counts, members=members)))
        observer.refresh()
        assert observer.is_whole is is_whole, what


def test_a_run_waits_for_the_last_dead_broker_that_will_return(tmp_path: Path) -> None:
    """A broker that was leaving when it died, and one that has returned, do not count."""
    observer = RunObserver(tmp_path)
    assert observer.returns_ms == 0
    dead = ShownMember(broker="b01", state=MemberState.DEAD, since_ms=START_MS, reason="silent", returns_ms=START_MS)
    later, never = replace(dead, returns_ms=START_MS + 80_000), replace(dead, returns_ms=TIME_MS_MAX)
    back = replace(later, state=MemberState.IN_SERVICE, returns_ms=START_MS + 90_000)
    for members, returns_ms in (((dead, later, never, back), START_MS + 80_000), ((never, back), 0)):
        _show(tmp_path, _view({}, 1, members=ShownFleet(members=members)))
        observer.refresh()
        assert observer.returns_ms == returns_ms


def test_mobile_clients_are_those_of_real_brokers(tmp_path: Path) -> None:
    """Without any there are no figures; means are None until there is something to average."""
    observer = RunObserver(tmp_path)
    _write(tmp_path, "emulator", {"started_ms": START_MS, "time_ms": START_MS})
    observer.refresh()
    assert observer.mobile == {}
    counts = {"checkins_moving": 3, "clients_brought_nearer": 2, "clients_brought_to_nearest": 1}
    trips = {"brought_trip_ms_before": None, "brought_trip_ms_after": None}
    trips |= {"mobile_trip_ms": 40.0, "mobile_unplanned_trip_ms": 60.0}
    _write(tmp_path, "emulator", {"started_ms": START_MS, "time_ms": START_MS, **counts, **trips})
    observer.refresh()
    assert observer.mobile == {**counts, **trips}
