from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from lab.benchmarks.seeds_table import main, seeds_table
from regraft.controller.kinds.overlay_kind import RELIEF
from regraft.producers.emulator.ledger import LedgerSnapshot
from regraft.run_records.run_record import BurstFigures
from regraft.run_records.summary import failures, percentile, summarise
from regraft.schemas.plan import MEMBERSHIP, REPAIR, Plan, PlanPhase
from tests.regraft.canned_run import START_MS, empty_run, ring_run, scot_run, small_plan, small_run, small_shadow

KEYS = (
    "notifications_published deliveries_expected deliveries lost repeated out_of_order windows_closed "
    "windows_incomplete plans_completed plans_aborted plans_completed_after_regime_change cost_initial cost_final "
    "cost_reduction_share window_close_to_command_ms_p50 window_close_to_command_ms_p95 telemetry_records seed "
    "restarts memory_bytes_max duration_s"
)


def test_the_summary_has_every_figure_that_operators_are_promised() -> None:
    """It has all its keys, whether anything happened or not."""
    for record in (small_run(), empty_run()):
        assert set(KEYS.split()) <= set(summarise(record))


def test_the_cost_reduction_is_that_of_the_same_traffic() -> None:
    """Both costs are of the same windows, so a quieter end of the run saves nothing by itself."""
    summary = summarise(small_run())
    # Bootstrap: 16 notifications cross b00-b03 (30) and b03-b01 (20) and three brokers; final: b00-b01 (10), and 2 of
    # them b01-b03 (20).
    assert summary["cost_initial"] == pytest.approx((16 * (30 + 20) + 16 * 3 * 0.5) / 5, abs=0.01)
    assert summary["cost_final"] == pytest.approx((16 * 10 + 2 * 20 + (16 + 16 + 2) * 0.5) / 5, abs=0.01)
    assert summary["cost_reduction_share"] == pytest.approx(1 - 43.4 / 164.8, abs=1e-4)


def test_a_machine_that_was_too_slow_is_named_before_what_follows_from_it() -> None:
    """Only if something failed: a run that fell behind and still succeeded shows what it was to show."""
    summary = summarise(small_run())
    assert failures({**summary, "emulator_behind_ms_max": 112_327.0}) == []
    first, *others = failures({**summary, "emulator_behind_ms_max": 112_327.0, "plans_completed": 0})
    assert first == "this machine was too slow: the emulator fell 112 s behind; stop other work on it"
    assert others == failures({**summary, "plans_completed": 0})


def test_bursts_are_reported_by_routing_and_only_disorder_on_detours_is_no_error() -> None:
    """What was not measured is None."""
    summary = summarise(scot_run())
    assert (summary["delay_ms_p95_static"], summary["delay_ms_p95_dynamic"]) == (900.0, 800.0)
    assert (summary["drain_s_static"], summary["drain_s_dynamic"]) == (3.5, None)
    assert summary["clusters_diverted"] == 12
    assert failures(summary) == []
    assert failures({**summary, "out_of_order_on_detours": 3}) == ["2 deliveries out of order: there must be none"]


def test_bursts_answered_by_a_plan_are_counted_once() -> None:
    """A plan that moves publishers off congested links answers the burst before it; other plans answer none."""
    plan = small_plan()
    relief = [structs.replace(one, planner=RELIEF) for one in plan.proposals]
    bursts = BurstFigures(None, None, None, None, 0, 0, (1_000, 2_000, 3_000))

    def made_at(*times_ms: int) -> list[Plan]:
        return [structs.replace(plan, window_end_ms=time_ms, proposals=tuple(relief)) for time_ms in times_ms]

    assert bursts.answered_by([plan, *made_at(2_500, 2_900)]) == 1
    assert bursts.answered_by(made_at(500, 1_500, 3_500)) == 2
    assert summarise(scot_run())["bursts"] == 2


def test_figures_that_were_not_measured_are_none() -> None:
    """A run without windows and plans claims no cost, no gain and no latency."""
    summary = summarise(empty_run())
    assert summary["cost_initial"] is None
    assert summary["cost_reduction_share"] is None
    assert summary["window_close_to_command_ms_p95"] is None


def test_a_plan_counts_as_after_the_shift_only_if_it_began_after_it() -> None:
    """A plan that was chosen before the interests shifted is no answer to the shift."""
    early = replace(small_run(), plans=(small_plan(time_ms=START_MS + 10_000),))
    assert summarise(small_run())["plans_completed_after_regime_change"] == 1
    assert summarise(early)["plans_completed_after_regime_change"] == 0


def test_a_run_that_keeps_its_promises_has_no_failures() -> None:
    """Nothing was lost, windows closed and a plan was executed."""
    assert failures(summarise(small_run())) == []


@pytest.mark.parametrize("error", ["lost", "repeated", "out_of_order"])
def test_one_wrong_delivery_fails_the_run(error: str) -> None:
    """A single lost, repeated or reordered notification is a failure."""
    ledger = LedgerSnapshot(published=16, expected=34, delivered=34, final=True, **{error: 1})
    (reason,) = failures(summarise(replace(small_run(), ledger=ledger)))
    assert reason.startswith("1 deliveries")


def test_a_run_that_ended_with_a_service_names_it() -> None:
    """What was measured until then is reported."""
    summary = summarise(replace(small_run(), given_up=("valkey exited with code 1 and will not be restarted",)))
    assert summary["deliveries"] == 34
    assert failures(summary) == ["valkey exited with code 1 and will not be restarted"]


def test_a_run_in_which_nothing_happened_names_everything_missing() -> None:
    """All reasons are reported at once."""
    reasons = " / ".join(failures(summarise(empty_run())))
    for what in ("no final ledger", "no notification", "no window", "no plan", "not compared", "never shifted"):
        assert what in reasons
    assert reasons.count(" / ") == 5


def test_a_run_that_owed_no_deliveries_proves_nothing() -> None:
    """Notifications without a subscriber are no success."""
    ledger = LedgerSnapshot(published=16, final=True)
    (reason,) = failures(summarise(replace(small_run(), ledger=ledger)))
    assert reason.startswith("no delivery was due")


def test_a_final_overlay_that_costs_more_than_the_first_fails_the_run() -> None:
    """Plans that made it worse are no success, nor are those that saved nothing after a shift."""
    comparison = small_run().comparison
    assert comparison is not None
    worse = replace(comparison, before=comparison.after, after=comparison.before)
    (reason,) = failures(summarise(replace(small_run(), comparison=worse)))
    assert reason.startswith("the final overlay costs 164.8 per second, the first 43.4")
    same = replace(small_run(), comparison=replace(comparison, after=comparison.before))
    (reason,) = failures(summarise(same))
    assert reason.startswith("nothing was saved")
    assert failures(summarise(replace(same, expects_regime_change=False, regime_change_ms=None))) == []


def test_overlays_that_could_not_be_compared_fail_the_run() -> None:
    """An unmeasured cost does not count as a good one."""
    (reason,) = failures(summarise(replace(small_run(), comparison=None)))
    assert "was not compared" in reason


def test_a_shift_that_no_plan_followed_fails_the_run() -> None:
    """A plan before the shift of interests does not show that the overlay follows them."""
    unmoved = replace(small_run(), plans=(small_plan(time_ms=START_MS + 10_000),), traffic_end_ms=START_MS + 90_000)
    (reason,) = failures(summarise(unmoved))
    assert reason.startswith("no plan that was to save and began after the shift of the interests was completed: see")


def _planned_by(planner: str, **changes: Any) -> Plan:
    plan = small_plan(time_ms=START_MS + 50_000)
    proposals = tuple(structs.replace(one, planner=planner) for one in plan.proposals)
    return structs.replace(plan, proposals=proposals, **changes)


@pytest.mark.parametrize("planner", [REPAIR, MEMBERSHIP])
def test_a_repair_is_no_answer_to_the_shift(planner: str) -> None:
    """With a death in the scenario a repair is always completed; it saves nothing, and is counted apart."""
    before = small_plan(time_ms=START_MS + 10_000)
    record = replace(small_run(), plans=(before, _planned_by(planner)), traffic_end_ms=START_MS + 90_000)
    summary = summarise(record)
    assert (summary["plans_completed"], summary["plans_to_save"], summary["plans_of_members"]) == (2, 1, 1)
    assert (summary["links_exchanged"], summary["links_repaired"]) == (1, 1)
    (reason,) = failures(summary)
    assert reason.startswith("no plan that was to save and began after the shift")
    alone = failures(summarise(replace(record, plans=(_planned_by(planner),))))
    assert any(reason.startswith("no plan that was to save was completed, only 1 repairs") for reason in alone)


@pytest.mark.parametrize("observed_per_s", [None, 95.0])
def test_a_plan_that_is_not_known_to_have_saved_is_no_answer(observed_per_s: float | None) -> None:
    """Neither one that could not be verified nor one that saved nothing shows that the overlay follows interests."""
    plan = _planned_by("swap_links_cost", cost_observed_per_s=observed_per_s)
    summary = summarise(replace(small_run(), plans=(plan,)))
    assert (summary["plans_to_save"], summary["plans_saved"]) == (1, 0)
    (reason,) = failures(summary)
    assert "is known to have saved anything" in reason


def test_a_rollback_is_neither_to_save_nor_a_repair() -> None:
    """It is counted by itself."""
    undoing = structs.replace(_planned_by("undo"), undoes="plan-1")
    summary = summarise(replace(small_run(), plans=(small_plan(), undoing)))
    assert (summary["plans_to_save"], summary["plans_undoing"], summary["plans_of_members"]) == (1, 1, 0)


def test_a_run_whose_traffic_was_withheld_shows_nothing() -> None:
    """Up to half may be missing on a busy machine; with more, the run fails and says why."""
    assert failures(summarise(replace(small_run(), withheld_count=16))) == []
    (reason,) = failures(summarise(replace(small_run(), withheld_count=48)))
    assert reason.startswith(
        "48 of 64 notifications that were due (75%) were not sent because the machine was too busy"
    )
    assert "proves nothing" in reason


def test_a_run_too_short_to_follow_the_shift_says_so() -> None:
    """It failed nothing and showed nothing: the sentence gives the time that there was and the time needed."""
    short = replace(small_run(), plans=(small_plan(time_ms=START_MS + 10_000),), traffic_end_ms=START_MS + 47_500)
    (reason,) = failures(summarise(short))
    assert "10 s of traffic after it are too few to show one" in reason
    assert "--duration" in reason


def test_a_run_without_a_shift_needs_no_plan_after_it() -> None:
    """On a ring interests always move, so no shift is expected; on a tree a missing one is reported."""
    assert failures(summarise(replace(small_run(), expects_regime_change=False, regime_change_ms=None))) == []
    (reason,) = failures(summarise(replace(small_run(), regime_change_ms=None)))
    assert reason.startswith("the interests never shifted")


def test_aborted_plans_do_not_count_as_completed() -> None:
    """A run whose only plan was aborted did not adapt."""
    summary = summarise(replace(small_run(), plans=(small_plan(PlanPhase.ABORTED),)))
    assert (summary["plans_completed"], summary["plans_aborted"]) == (0, 1)
    assert failures(summary)


def test_percentiles_are_values_that_occurred() -> None:
    """The nearest-rank percentile never interpolates between two measured values."""
    values = [5.0, 1.0, 4.0, 2.0, 3.0]
    assert (percentile(values, 50), percentile(values, 95), percentile([], 50)) == (3.0, 5.0, None)


def test_the_table_of_seeds_is_sorted_and_has_dashes_for_missing_figures() -> None:
    """The table is made of the summaries alone."""
    lines = seeds_table([summarise(small_run()), summarise(empty_run())]).splitlines()
    assert lines[2].startswith("| 1 |")
    assert "–" in lines[2]
    assert lines[3].startswith(
        "| 7 | 16 | 34 | 0 | 0 | 0 | 14 (1) | 1 (1) | 1 | 0 | 165 | 43 | 73.7% | 2,300 / 2,300 | 1,500 |"
    )


def test_the_table_of_seeds_refuses_a_file_that_is_no_summary(tmp_path, capsys) -> None:  # type: ignore[no-untyped-def]
    """A wrong file ends with code 2 and its name."""
    assert main([str(tmp_path / "absent.json")]) == 2
    assert "absent.json" in capsys.readouterr().err


def test_the_summary_has_what_each_shadow_planner_would_have_saved() -> None:
    """Shadow and acting planner are compared with the same overlay on the same windows."""
    summary = summarise(small_run())
    figures = summary["shadows"]["swap_links_ci"]
    assert (figures["cost_final"], figures["plans"], figures["errors"]) == (60.0, 2, 0)
    assert figures["cost_reduction_share"] == pytest.approx(1 - 60 / 164.8, abs=1e-4)
    assert (summary["planner"], summary["horizon_windows"], summary["subscription_lifetime_s"]) == (
        "swap_links_cost", 6, 20.25,
    )  # fmt: skip


def test_a_shadow_without_compared_windows_has_no_cost() -> None:
    """The cost is None, not 0."""
    record = replace(empty_run(), shadows=(small_shadow(None),))
    assert summarise(record)["shadows"]["swap_links_ci"]["cost_reduction_share"] is None
    assert summarise(record)["subscription_lifetime_s"] is None


def test_a_ring_has_users_and_ids_instead_of_publishers() -> None:
    """The saving of moves is relative to the changes without them; it is None if it was not reported."""
    summary = summarise(ring_run())
    assert (summary["users_moved"], summary["id_moves"]) == (2, 2)
    assert summary["subscription_changes_cut"] == pytest.approx(0.25)
    assert "publishers_moved" not in summary
    unknown = summarise(replace(ring_run(), users=None))
    assert unknown["subscription_changes_cut"] is None
    assert summarise(small_run())["publishers_moved"] == 0
    assert "users_moved" not in summarise(small_run())


def test_the_table_of_rings_has_users_and_ids() -> None:
    """The same command has other columns; interests on a ring shift all the time, so no plan is after the shift."""
    heads, _, row = seeds_table([summarise(ring_run())]).splitlines()
    assert "users moved | IDs reassigned | brokers' subscription changes cut" in heads
    assert "publishers moved" not in heads
    assert "| 1 | 2 | 2 | 25.0% |" in row
