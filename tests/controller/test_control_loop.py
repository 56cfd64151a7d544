"""The whole loop in memory: windows in, plans and commands out, with restarts and outages."""

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from regraft.controller.kinds.tree.tree_state import TreeContext, TreeState
from regraft.controller.loop.compose_loop import compose_loop
from regraft.controller.loop.show_state import BOUND_EVERY_MS
from regraft.controller.report.loop_metrics import LoopMetrics
from regraft.controller.settings.decision_settings import DecisionSettings
from regraft.infra.process.stack_error import StackError
from regraft.overlay.overlay_configuration import LinkError
from regraft.overlay.tree.overlay_cost import overlay_cost
from regraft.overlay.tree.tree_costs import LinkSwap
from regraft.schemas.command import CommandPhase, CommandResult, Outcome
from regraft.schemas.event import EventKind
from regraft.schemas.plan import PhaseChange, Plan, PlanPhase, Proposal, Verdict
from tests.controller.scripted_overlay import ScriptedOverlay, settings_of
from tests.controller.scripted_windows import WINDOW_MS
from tests.overlay.small_overlays import inventory_of, line_of

TREE = line_of(5)
CHEAP = {("b00", "b04"): 2.0, ("b01", "b03"): 2.0}
INVENTORY = inventory_of(TREE, CHEAP)


def far_ends(start_ms: int) -> list[set[str]]:
    """The ends of the line want the same."""
    return [{"b00", "b04"}] * 40


def overlay_of(**changes: object) -> ScriptedOverlay:
    return ScriptedOverlay(INVENTORY, far_ends, settings_of(**changes))


def test_bad_tree_becomes_a_good_one() -> None:
    """The loop finds the swap, executes it in all phases, verifies it and then leaves the overlay unchanged."""
    overlay = overlay_of()
    overlay.run_windows(20)
    assert overlay.phases == [PlanPhase.COMPLETED]
    (plan,) = overlay.plans
    assert plan.links_added == (("b00", "b04"),)
    assert [change.phase for change in plan.history] == [
        PlanPhase.PREPARING,
        PlanPhase.ACTIVATING,
        PlanPhase.DRAINING,
        PlanPhase.RETIRING,
        PlanPhase.VERIFYING,
        PlanPhase.COMPLETED,
    ]
    assert plan.cost_observed_per_s == pytest.approx(plan.cost_predicted_per_s)
    assert plan.control_messages == 3 * 5
    assert overlay.epoch == 1


def test_status_shows_what_happened() -> None:
    """The view has windows, plans, the cost of both trees on each window, latencies and refusals."""
    overlay = overlay_of()
    overlay.run_windows(12)
    shown = overlay.ports.view.shown
    assert (shown.windows_closed, shown.windows_incomplete) == (12, 0)
    assert (shown.plans_completed, shown.plans_aborted, shown.plans_undone) == (1, 0, 0)
    assert shown.configuration.epoch == 1
    first, last = shown.cost[0], shown.cost[-1]
    assert first.cost_per_s == first.cost_bootstrap_per_s == last.cost_bootstrap_per_s
    assert last.cost_per_s < first.cost_per_s
    assert (first.epoch, last.epoch) == (0, 1)
    assert first.cost_counted_per_s == 5 * 5.0
    assert shown.window_close_to_command_ms == {"plan-1": 0}
    assert shown.events[0].kind == EventKind.CONTROLLER_STARTED
    assert shown.plans[0].plan == "plan-1"


def test_one_window_a_minute_has_the_lower_bound_of_cost() -> None:
    """If published and delivered are reported separately, about one single-epoch window a minute has the bound."""
    overlay = overlay_of()
    overlay.run_windows(40)
    shown = overlay.ports.view.shown
    bounded = [point for point in shown.cost if point.cost_least_per_s is not None]
    ends = [point.window_end_ms for point in bounded]
    assert bounded
    assert all(later - earlier >= BOUND_EVERY_MS for earlier, later in pairwise(ends))
    for point in bounded:
        assert point.is_one_epoch
        assert 0 < point.cost_least_per_s <= point.cost_per_s


@pytest.mark.parametrize("restarted", [set(TREE.brokers[1:]), set(TREE.brokers)], ids=["most brokers", "all brokers"])
def test_brokers_that_return_at_an_earlier_epoch_are_reported_while_it_lasts(restarted: set[str]) -> None:
    """Nothing is decided meanwhile, the event names them and is repeated; afterwards all continues."""
    overlay = ScriptedOverlay(
        INVENTORY, lambda start_ms: far_ends(0) if start_ms < 70_000 else [{"b01", "b03"}] * 40, settings_of()
    )
    overlay.run_windows(20)
    assert overlay.phases == [PlanPhase.COMPLETED]
    overlay.restarted_brokers = restarted
    overlay.run_windows(40)
    first, again = overlay.events_of(EventKind.EPOCH_MISMATCH)
    assert first == again
    assert "epoch 1 is in force, but b0" in first
    assert overlay.ports.view.shown.refusals[Verdict.EPOCH_MISMATCH] == 40
    assert Verdict.STALE_STATE not in overlay.ports.view.shown.refusals
    overlay.restarted_brokers = set()
    overlay.run_windows(30)
    assert overlay.phases == [PlanPhase.COMPLETED] * 2
    assert len(overlay.events_of(EventKind.EPOCH_MISMATCH)) == 2


def test_overlay_adapts_again_when_interests_shift() -> None:
    """A second plan follows when other brokers want the same."""
    overlay = ScriptedOverlay(
        INVENTORY, lambda start_ms: far_ends(0) if start_ms < 8000 else [{"b01", "b03"}] * 40, settings_of()
    )
    overlay.run_windows(30)
    assert len(overlay.plans) >= 2
    assert set(overlay.phases) == {PlanPhase.COMPLETED}
    assert ("b01", "b03") in overlay.plans[-1].links_target
    assert [plan.epoch_to for plan in overlay.plans] == list(range(1, len(overlay.plans) + 1))


def shifting_overlay(**changes: object) -> ScriptedOverlay:
    """Return an overlay whose interests shift once the first plan is in force."""
    decision = DecisionSettings(cool_down_windows=1, pay_back_s=600.0, window_age_ms_max=5000)
    settings = settings_of(decision=decision, horizon_windows_max=2, **changes)
    return ScriptedOverlay(
        INVENTORY, lambda start_ms: far_ends(0) if start_ms < 5000 else [{"b01", "b03"}] * 40, settings
    )


def entered_ms(plan: Plan, phase: PlanPhase) -> int:
    return next(change.time_ms for change in plan.history if change.phase is phase)


def test_the_next_plan_begins_while_the_one_before_is_verified() -> None:
    """Deliveries do not depend on the overlay, so the first plan is also verified on windows of the second."""
    overlay = shifting_overlay(verify_windows=12)
    overlay.run_windows(30)
    first, second = overlay.plans[:2]
    assert entered_ms(first, PlanPhase.VERIFYING) < entered_ms(second, PlanPhase.PREPARING)
    assert entered_ms(second, PlanPhase.VERIFYING) < entered_ms(first, PlanPhase.COMPLETED)
    assert first.cost_observed_per_s is not None
    assert set(overlay.phases) == {PlanPhase.COMPLETED}


def test_a_plan_that_made_things_worse_is_not_rolled_back_if_another_has_followed() -> None:
    """It is reported, and planners decide what to do: a rollback would undo the later plan, too."""
    overlay = shifting_overlay(verify_windows=12)
    overlay.wanted = lambda start_ms: far_ends(0) if start_ms < 4000 else [set(overlay.plans[0].links_removed[0])] * 90
    overlay.run_windows(30)
    assert [plan.undoes for plan in overlay.plans] == [""] * len(overlay.plans)
    (text,) = [text for text in overlay.events_of(EventKind.GAIN_MISSED) if "plan-1:" in text]
    assert "plan-2 followed, so the planners decide what to do" in text


def test_the_window_that_ends_a_verification_is_decided_on() -> None:
    """What else is wanted since the plan, from its first window on, gets a plan as soon as the cool-down is over."""
    overlay = overlay_of(verify_windows=3)
    overlay.wanted = lambda start_ms: far_ends(0) + [{"b01", "b03"}] * (40 if overlay.epoch else 0)
    overlay.run_windows(20)
    first, second = overlay.plans[:2]
    closed_ms = entered_ms(first, PlanPhase.COMPLETED)
    assert second.window_end_ms == closed_ms // WINDOW_MS * WINDOW_MS
    assert set(overlay.phases) == {PlanPhase.COMPLETED}


def test_dry_run_stops_before_the_transition() -> None:
    """The plan is decided, stored and shown, but no command is sent."""
    overlay = overlay_of(dry_run=True)
    overlay.run_windows(6)
    assert overlay.phases == [PlanPhase.PROPOSED]
    assert overlay.events_of(EventKind.PLAN_STARTED) == []
    assert not overlay.loop.is_transition_running
    assert overlay.ports.view.shown.plan_in_review == "plan-1"
    assert overlay.ports.view.shown.plans[0].links_added == (("b00", "b04"),)


def test_nothing_is_done_on_incomplete_windows() -> None:
    """While batches of a broker are missing no plan is made; one event names it."""
    overlay = overlay_of()
    overlay.lost_batches = {"b03": 2}
    overlay.run_windows(8)
    assert overlay.plans == []
    assert overlay.ports.view.shown.windows_incomplete == 8
    assert overlay.ports.view.shown.refusals == {Verdict.INCOMPLETE_STATE: 8}
    (text,) = overlay.events_of(EventKind.WINDOW_INCOMPLETE)
    assert "b03 (2 of 4)" in text
    overlay.lost_batches = {}
    overlay.run_windows(4)
    assert len(overlay.plans) == 1


def test_a_broker_that_does_not_prepare_aborts_the_plan_without_effect() -> None:
    """The plan is aborted, the overlay stays, and after the cool-down the next plan has a new epoch."""
    overlay = overlay_of()
    overlay.silent_brokers = {"b02"}
    overlay.run_windows(9)
    assert overlay.epoch == 0
    assert overlay.phases[0] in (PlanPhase.ABORTING, PlanPhase.ABORTED)
    overlay.silent_brokers = set()
    overlay.run_windows(15)
    assert overlay.phases == [PlanPhase.ABORTED, PlanPhase.COMPLETED]
    assert overlay.epoch == 2
    assert len(overlay.events_of(EventKind.PLAN_ABORTED)) == 1


def test_cool_down_separates_plans() -> None:
    """No plan follows another within the cool-down, and the refusals for it are counted."""
    overlay = ScriptedOverlay(
        INVENTORY,
        lambda start_ms: [{"b00", "b04"}, {"b01", "b03"}, {"b00", "b04"}] * 20,
        settings_of(
            decision=DecisionSettings(
                changes_per_plan_max=1, cool_down_windows=4, pay_back_s=600.0, window_age_ms_max=5000
            )
        ),
    )
    overlay.run_windows(40)
    assert len(overlay.plans) == 2
    ended_ms = overlay.plans[0].history[4].time_ms
    assert overlay.plans[1].history[0].time_ms - ended_ms >= 4 * WINDOW_MS
    assert overlay.ports.view.shown.refusals[Verdict.COOL_DOWN] >= 1


def worsening(state: TreeState, context: TreeContext, rng: random.Random) -> list[Proposal]:
    """A planner that promises a gain and removes the good link."""
    swap = LinkSwap(("b02", "b03"), ("b00", "b04"))
    if swap.added in state.configuration.links:
        return []
    cost = state.tree_costs.cost_per_s
    return [Proposal("worsening", (swap.removed,), (swap.added,), cost, cost / 2, 0.0, "trust me")]


def turning(start_ms: int) -> list[set[str]]:
    """The far ends want the same until the plan is made; then the brokers in the middle do."""
    return far_ends(0) if start_ms < 1000 else [{"b02", "b03"}] * 40


def worsening_overlay() -> ScriptedOverlay:
    decision = DecisionSettings(pay_back_s=600.0, window_age_ms_max=5000, mute_ms=20_000)
    return ScriptedOverlay(INVENTORY, turning, settings_of(decision=decision), worsening)


def test_plan_that_made_things_worse_is_undone_once_and_its_planner_muted() -> None:
    """The tree before it returns at a new epoch, the loss is reported, and the planner is muted for a while."""
    overlay = worsening_overlay()
    overlay.run_windows(18)
    first, undo = overlay.plans
    assert (undo.undoes, undo.epoch_to) == ("plan-1", 2)
    assert undo.links_target == TREE.links
    assert overlay.phases == [PlanPhase.COMPLETED, PlanPhase.COMPLETED]
    assert first.cost_observed_per_s is not None
    assert first.cost_observed_per_s > first.cost_predicted_per_s
    assert "rolled back by plan-2" in first.history[-1].reason
    assert overlay.ports.view.shown.refusals[Verdict.MUTED] >= 1
    assert len(overlay.events_of(EventKind.GAIN_MISSED)) == 1
    assert overlay.ports.view.shown.plans_undone == 1


def test_muting_survives_a_restart_and_ends() -> None:
    """A restarted controller derives from the plans who is muted; afterwards the planner may propose again."""
    overlay = worsening_overlay()
    overlay.run_windows(18)
    overlay.wanted = far_ends
    overlay.new_loop()
    overlay.run_windows(3)
    assert len(overlay.plans) == 2
    overlay.run_windows(20)
    assert len(overlay.plans) == 3


@pytest.mark.parametrize("steps", range(0, 60, 3))
def test_controller_may_be_killed_after_any_step(steps: int) -> None:
    """Whenever it is killed and restarted, the same plan is executed once and completed."""
    overlay = overlay_of()
    for _ in range(steps):
        overlay.tick()
    overlay.new_loop()
    overlay.run_windows(25)
    assert overlay.phases == [PlanPhase.COMPLETED]
    assert overlay.epoch == 1
    assert overlay.plans[0].links_target == TREE.replaced(1, *_swap(overlay)).links


def _swap(overlay: ScriptedOverlay) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    return overlay.plans[0].links_removed, overlay.plans[0].links_added


class KilledError(Exception):
    """The controller died in the middle of a step."""


def kill_at_effect(overlay: ScriptedOverlay, number: int, *, is_done_first: bool) -> None:
    """Make the loop die at its n-th effect from now on, before or after that effect has reached the world."""
    left = [number]

    def dying(act: Callable[..., Any]) -> Callable[..., Any]:
        def perform(*values: object) -> object:
            left[0] -= 1
            if left[0] == 0 and not is_done_first:
                raise KilledError
            result = act(*values)
            if left[0] == 0:
                raise KilledError
            return result

        return perform

    overlay.ports.plans.commit = dying(overlay.ports.plans.commit)  # type: ignore[method-assign]
    overlay.ports.events.emit = dying(overlay.ports.events.emit)  # type: ignore[method-assign]


@pytest.mark.parametrize("is_done_first", [False, True])
@pytest.mark.parametrize("number", range(1, 13))
def test_controller_may_be_killed_at_any_single_effect(number: int, is_done_first: bool) -> None:
    """Killed before or after storing any phase or emitting any event, the next controller ends the same way."""
    overlay = overlay_of()
    kill_at_effect(overlay, number, is_done_first=is_done_first)
    for _ in range(100):
        try:
            overlay.tick()
        except KilledError:
            overlay.new_loop()
    assert overlay.phases == [PlanPhase.COMPLETED]
    assert (overlay.epoch, overlay.plans[0].epoch_to) == (1, 1)
    assert overlay.plans[0].links_target == TREE.replaced(1, *_swap(overlay)).links


def test_metrics_match_the_status() -> None:
    """Windows, plans, epoch, cost and refusals are exported."""
    metrics = LoopMetrics()
    overlay = overlay_of()
    overlay.loop = compose_loop(overlay.settings, INVENTORY, overlay.ports.ports, metrics=metrics)
    overlay.silent_brokers = {"b02"}
    overlay.run_windows(3)
    overlay.silent_brokers = set()
    overlay.run_windows(9)
    value = metrics.registry.get_sample_value
    assert value("regraft_controller_windows_total", {"complete": "true"}) == 12
    assert value("regraft_controller_plans", {"phase": "completed"}) == 1
    assert value("regraft_controller_changes", {"what": "links"}) == len(overlay.plans[0].links_added)
    assert value("regraft_controller_changes", {"what": "publishers"}) == 0
    assert value("regraft_controller_epoch") == 1
    assert value("regraft_controller_commands_total", {"phase": "activate"}) == 5
    assert value("regraft_controller_window_close_to_command_ms_count") == 1
    shown = overlay.ports.view.shown
    assert value("regraft_controller_cost_per_s", {"tree": "present"}) == shown.cost[-1].cost_per_s
    refused = shown.refusals[Verdict.PLAN_RUNNING]
    assert refused >= 1
    assert value("regraft_controller_refusals_total", {"verdict": "plan_running"}) == refused


def test_undo_survives_a_kill_between_undoing_and_closing() -> None:
    """The next controller closes a plan that is being rolled back, and does not roll it back twice."""
    for steps in range(16, 48, 2):
        overlay = worsening_overlay()
        for _ in range(steps):
            overlay.tick()
        overlay.new_loop()
        overlay.run_windows(20 - steps // 4)
        assert [plan.undoes for plan in overlay.plans] == ["", "plan-1"]
        assert overlay.phases == [PlanPhase.COMPLETED, PlanPhase.COMPLETED]


def test_no_command_is_sent_before_its_plan_is_stored() -> None:
    """While the plan store is away nothing is sent; when it is back the plan continues from where it was."""
    overlay = overlay_of()
    overlay.tick()
    overlay.ports.plans.is_unavailable = True
    overlay.run_windows(6)
    assert overlay.plans == []
    assert overlay.epoch == 0
    overlay.ports.plans.is_unavailable = False
    overlay.run_windows(10)
    assert overlay.phases == [PlanPhase.COMPLETED]


@pytest.mark.parametrize("away_after", range(8, 30, 2))
def test_store_outage_in_any_phase_only_delays(away_after: int) -> None:
    """The store may be away for a while in any phase of a plan."""
    overlay = overlay_of()
    for _ in range(away_after):
        overlay.tick()
    overlay.ports.plans.is_unavailable = True
    versions = len(overlay.ports.plans.versions)
    overlay.run_windows(3)
    assert len(overlay.ports.plans.versions) == versions
    overlay.ports.plans.is_unavailable = False
    overlay.run_windows(15)
    assert overlay.phases == [PlanPhase.COMPLETED]
    assert overlay.epoch == 1


def test_loop_waits_for_the_plan_store_at_its_start() -> None:
    """Without the stored plans nothing is read or decided; the first step that can load them begins."""
    overlay = overlay_of()
    overlay.ports.plans.is_unavailable = True
    overlay.run_windows(3)
    assert not overlay.ports.view.text
    assert len(overlay.ports.state.records) > 0
    overlay.ports.plans.is_unavailable = False
    overlay.run_windows(10)
    assert overlay.phases == [PlanPhase.COMPLETED]


def test_restarted_controller_rebuilds_its_horizon_and_view_from_the_topics() -> None:
    """After reading the same state records again, counts, cost series and present configuration are as before.

    Only the lower bounds of old windows are not computed again.
    """
    overlay = overlay_of()
    overlay.run_windows(12)
    before = overlay.ports.view.shown
    overlay.new_loop()
    for start_ms in range(0, overlay.now_ms, WINDOW_MS):
        overlay.epoch, epoch = before.cost[start_ms // WINDOW_MS].epoch, overlay.epoch
        overlay.write_window(start_ms)
        overlay.epoch = epoch
    overlay.loop.step(overlay.now_ms + 1)
    after = overlay.ports.view.shown
    series = [[msgspec.structs.replace(one, cost_least_per_s=None) for one in view.cost] for view in (before, after)]
    assert series[0] == series[1]
    for part in ("windows_closed", "configuration", "plans", "plans_completed", "window_close_to_command_ms"):
        assert getattr(after, part) == getattr(before, part)


def test_same_windows_give_the_same_plans() -> None:
    """Two runs of the same script store the same plans, version by version."""
    runs = []
    for _ in range(2):
        overlay = overlay_of()
        overlay.run_windows(12)
        runs.append(overlay.ports.plans.versions)
    assert runs[0] == runs[1]


def test_late_answers_to_finished_plans_change_nothing() -> None:
    """Answers that arrive when no plan is under way are read and dropped."""
    overlay = overlay_of()
    overlay.run_windows(12)
    late = CommandResult("plan-1", CommandPhase.PREPARE, "b00", 1, Outcome.PREPARED, "", 3, 0)
    overlay.ports.results.records.extend([late] * 10)
    overlay.run_windows(2)
    assert not overlay.ports.results.records
    assert overlay.phases == [PlanPhase.COMPLETED]


def test_plan_without_windows_after_it_is_closed_unverified() -> None:
    """If no complete window of the new epoch comes in time the plan is closed with that reason."""
    overlay = overlay_of(verify_ms_max=3000)
    while not overlay.plans or overlay.phases[0] is not PlanPhase.VERIFYING:
        overlay.tick()
    overlay.lost_batches = {"b01": 4}
    overlay.run_windows(6)
    (plan,) = overlay.plans
    assert plan.phase is PlanPhase.COMPLETED
    assert plan.cost_observed_per_s is None
    assert "not verified" in plan.history[-1].reason


def test_stale_windows_are_refused() -> None:
    """Windows that arrive long after their end start no plan and are reported once."""
    overlay = overlay_of()
    overlay.now_ms = 60_000
    for start_ms in range(0, 5000, WINDOW_MS):
        overlay.write_window(start_ms)
    overlay.tick()
    assert overlay.plans == []
    (text,) = overlay.events_of(EventKind.WINDOW_STALE)
    assert "60250" not in text
    assert "the limit is 5000 ms" in text


def test_of_windows_that_come_late_together_only_the_newest_is_decided_on() -> None:
    """After an outage of Kafka, all windows since then close at once; the old ones are history, not the present."""
    overlay = overlay_of()
    overlay.now_ms = 12_250
    for start_ms in range(0, 12_000, WINDOW_MS):
        overlay.write_window(start_ms)
    overlay.tick()
    (plan,) = overlay.plans
    assert plan.window_end_ms == 12_000
    assert overlay.ports.view.shown.last_decision.window_end_ms == 12_000
    assert overlay.events_of(EventKind.WINDOW_STALE) == []


def test_old_windows_before_a_gap_do_not_count() -> None:
    """After a long silence the horizon starts again, so a single window with few notifications starts no plan."""
    overlay = ScriptedOverlay(INVENTORY, lambda start_ms: far_ends(0)[:3], settings_of())
    overlay.write_window(0)
    overlay.loop.step(1000)
    overlay.now_ms = 600_000
    overlay.run_windows(1)
    assert overlay.loop.state.horizon is not None
    assert overlay.loop.state.horizon.windows == 1
    assert overlay.plans == []
    overlay.run_windows(2)
    assert len(overlay.plans) == 1
    without_gap = ScriptedOverlay(INVENTORY, lambda start_ms: far_ends(0)[:3], settings_of())
    without_gap.run_windows(2)
    without_gap.tick()
    assert len(without_gap.plans) == 1


def test_unfinished_plan_of_an_earlier_controller_is_resumed_first() -> None:
    """The commands of a plan stored as preparing are repeated, and no second plan is made next to it."""
    overlay = overlay_of()
    other = TREE.replaced(4, [("b01", "b02")], [("b01", "b03")])
    overlay.run_windows(20)
    stored = overlay.plans[0]
    fresh = overlay_of()
    left = msgspec.structs.replace(
        stored,
        plan="plan-4",
        epoch_to=4,
        links_removed=(("b01", "b02"),),
        links_added=(("b01", "b03"),),
        links_target=other.links,
        phase=PlanPhase.PREPARING,
        history=(PhaseChange(PlanPhase.PREPARING, 0, "chosen"),),
        cost_observed_per_s=None,
    )
    fresh.ports.plans.commit(left, ())
    fresh.run_windows(2)
    assert fresh.epoch == 4
    assert list(fresh.ports.plans.stored) == ["plan-4"]
    fresh.run_windows(25)
    assert fresh.plans[0].phase is PlanPhase.COMPLETED
    assert [plan.epoch_to for plan in fresh.plans] == sorted({plan.epoch_to for plan in fresh.plans})
    assert fresh.plans[-1].epoch_to >= 5


def test_costs_of_windows_are_those_of_the_tree_in_force() -> None:
    """Each point of the series is the cost of its epoch's tree on that window's notifications."""
    overlay = overlay_of()
    overlay.run_windows(10)
    trees = {0: TREE, 1: TREE.replaced(1, *_swap(overlay))}
    for point in overlay.ports.view.shown.cost:
        window = overlay.loop.state.newest
        assert window is not None
        expected = overlay_cost(trees[point.epoch], INVENTORY, window.sets).total_per_s
        assert point.cost_per_s == pytest.approx(expected)


def test_a_window_with_a_transition_charges_each_tree_for_its_time() -> None:
    """Savings count from when all brokers publish on the new tree, not from the window's start."""
    overlay = overlay_of()
    while overlay.phases != [PlanPhase.VERIFYING]:
        overlay.tick()
    overlay.restarted_brokers = {"b02"}  # It still stamped the old epoch: the window has both.
    while overlay.now_ms % WINDOW_MS:
        overlay.tick()
    point = overlay.ports.view.shown.cost[-1]
    window, (plan,) = overlay.loop.state.newest, overlay.plans
    assert window is not None
    used_ms = next(change.time_ms for change in plan.history if change.phase is PlanPhase.DRAINING)
    old_share = (used_ms - window.start_ms) / WINDOW_MS
    assert 0 < old_share < 1
    old, new = (
        overlay_cost(tree, INVENTORY, window.sets).total_per_s for tree in (TREE, TREE.replaced(1, *_swap(overlay)))
    )
    assert not point.is_one_epoch
    assert point.cost_per_s == pytest.approx(old_share * old + (1 - old_share) * new)


def test_refusals_are_reported_when_they_change() -> None:
    """A proposal refused window after window for the same reason is one event, and all refusals are counted.

    A first window with few notifications cannot separate a gain from noise; later even fewer do not pay the price.
    """
    decision = replace(settings_of().decision, pay_back_s=3.0)
    overlay = ScriptedOverlay(
        INVENTORY, lambda start_ms: far_ends(0)[: 3 if start_ms < 1000 else 1], settings_of(decision=decision)
    )
    overlay.run_windows(12)
    assert overlay.plans == []
    texts = overlay.events_of(EventKind.PROPOSAL_REFUSED)
    words = [one.value.replace("_", " ") for one in (Verdict.GAIN_WITHIN_NOISE, Verdict.GAIN_BELOW_PRICE)]
    assert [words[0] in texts[0], words[1] in texts[1], len(texts)] == [True, True, 2]
    assert overlay.ports.view.shown.refusals[Verdict.GAIN_BELOW_PRICE] >= 11


@pytest.mark.parametrize("phase", [PlanPhase.RETIRING, PlanPhase.VERIFYING, PlanPhase.PROPOSED])
def test_a_plan_whose_history_does_not_lead_to_its_phase_stops_the_start(phase: PlanPhase) -> None:
    """No controller could resume it, and if it were ignored its epoch would be used again."""
    overlay = ScriptedOverlay(INVENTORY, far_ends, settings_of())
    overlay.run_windows(6)
    (plan, *_) = overlay.plans
    stored = overlay.ports.plans.stored
    for history, error in (((), "its history is empty"), (plan.history[:1], "its history ends with preparing")):
        stored[plan.plan] = msgspec.structs.replace(plan, phase=phase, history=history)
        overlay.new_loop()
        with pytest.raises(StackError, match=f"{plan.plan} is {phase}, but {error}: it cannot be resumed"):
            overlay.tick()


def test_a_stored_plan_whose_target_is_not_a_tree_stops_the_start() -> None:
    """Nor does a plan with a link from a broker to itself: the stage ends with that message."""
    overlay = ScriptedOverlay(INVENTORY, far_ends, settings_of())
    overlay.run_windows(6)
    (plan, *_) = overlay.plans
    for links, error in (((("b00", "b00"),), "a link joins two brokers"), ((), "tree")):
        overlay.ports.plans.stored[plan.plan] = msgspec.structs.replace(plan, links_target=links)
        overlay.new_loop()
        with pytest.raises(LinkError, match=error):
            overlay.tick()
