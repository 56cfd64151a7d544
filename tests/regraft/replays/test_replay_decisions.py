"""Deciding again: the stored recording gives its stored plans, and what happens if something differs."""

import random
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from regraft.controller.planners.ring.place_users_dynatops import PlacementSettings
from regraft.controller.planners.shared_settings import ReassignmentSettings
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.infra.process.stack_error import StackError
from regraft.producers.recordings.read_recording import Recording, open_recording
from regraft.replays.read_inputs import read_inputs, recorded_settings
from regraft.replays.replay_decisions import (
    DecisionInputs,
    decide_again,
    first_difference,
    plan_difference,
    plans_json,
)
from regraft.schemas.plan import Plan, PlanPhase
from regraft.schemas.state import StateRow, WindowClosed
from regraft.settings.recorded_settings import settings_of
from tests.producers.recorded_messages import telemetry, write
from tests.regraft.make_small_recording import SMALL, SMALL_PLANS, decided_on, reference_rows
from tests.schemas.packed_rows import packed_window

SMALL_BYTES_MAX = 600_000


@cache
def small() -> Recording:
    return open_recording(SMALL)


@cache
def small_rows() -> tuple[StateRow | WindowClosed, ...]:
    return tuple(reference_rows(small(), recorded_settings(small(), {}, None)[0]))


@cache
def small_inputs() -> DecisionInputs:
    return read_inputs(small())


def settings(**changes: Any) -> ControllerSettings:
    return recorded_settings(small(), {"controller": changes}, None)[0].controller


def decide(rows: Any = None, inputs: DecisionInputs | None = None, **changes: Any) -> Any:
    return decide_again(
        small_rows() if rows is None else rows,
        small_inputs() if inputs is None else inputs,
        small().info.inventory,
        settings(**changes),
        1_000,
    )


def recorded() -> list[Plan]:
    return sorted(small_inputs().recorded.values(), key=lambda plan: plan.epoch_to)


def test_the_stored_recording_gives_its_stored_plans_byte_for_byte() -> None:
    """Reference rows and the recording's settings give the stored plans, which are those recorded live."""
    decided = decided_on(small())
    assert plans_json(decided.plans) == SMALL_PLANS.read_bytes()
    assert first_difference(decided.plans, recorded()) == (len(recorded()), "")
    assert (decided.simulated_from_ms, decided.windows_cut) == (None, 0)
    assert len(decided.plans) >= 2
    assert all(plan.phase is PlanPhase.COMPLETED for plan in decided.plans)
    assert SMALL.stat().st_size < SMALL_BYTES_MAX
    assert small().warnings == []


def test_the_order_and_repetition_of_rows_change_nothing() -> None:
    """Rows in any order, some of them twice, give the same plans byte for byte."""
    rng = random.Random(7)
    rows = [*small_rows(), *rng.sample(small_rows(), 200)]
    rng.shuffle(rows)
    again = decide_again(rows, small_inputs(), small().info.inventory, settings(), 1_000)
    assert plans_json(again.plans) == SMALL_PLANS.read_bytes()


def packed_rows() -> list[StateRow | WindowClosed]:
    """Return the rows of the recording as the job writes them: deliveries packed, in small records."""
    rows: dict[int, list[StateRow]] = {}
    for row in small_rows():
        if isinstance(row, StateRow):
            rows.setdefault(row.window_start_ms, []).append(row)
    found: list[StateRow | WindowClosed] = []
    for marker in small_rows():
        if isinstance(marker, WindowClosed):
            packed, counted = packed_window(rows.get(marker.window_start_ms, []), marker, bytes_max=1_000)
            found += [*packed, counted]
    return found


def test_packed_rows_give_the_same_plans() -> None:
    """Deliveries by columns give the decisions of single rows, with recorded answers and with simulated brokers."""
    assert any(isinstance(row, StateRow) and row.kind == "packed_deliveries" for row in packed_rows())
    assert plans_json(decide(packed_rows()).plans) == SMALL_PLANS.read_bytes()
    simulated = replace(small_inputs(), results=None, recorded={})
    again, expected = (
        decide(rows, simulated, planner="relocate_publishers_joint") for rows in (packed_rows(), small_rows())
    )
    assert any(plan.moves for plan in again.plans)
    assert plans_json(again.plans) == plans_json(expected.plans)


def test_without_recorded_answers_brokers_are_simulated() -> None:
    """Telemetry alone gives the same changes at the same windows, executed at once on a separate overlay."""
    decided = decide(inputs=replace(small_inputs(), results=None, recorded={}, markers_ms={}))
    assert decided.simulated_from_ms == 0
    assert first_difference(decided.plans, recorded())[1] == ""
    assert all(plan.phase is PlanPhase.COMPLETED for plan in decided.plans)


def test_simulated_brokers_publish_where_their_own_plans_put_publishers() -> None:
    """Moved publishers stay moved although telemetry shows otherwise: no plan moves them there again."""
    decided = decide(inputs=replace(small_inputs(), results=None, recorded={}), planner="relocate_publishers_joint")
    moves = [move for plan in decided.plans for move in plan.moves]
    assert moves
    assert all(not plan.links_added for plan in decided.plans)
    at: dict[str, str] = {}
    for move in moves:
        assert at.get(move.client, move.home_from) == move.home_from
        at[move.client] = move.home_to


def test_other_settings_depart_from_the_recorded_answers_at_the_first_other_plan() -> None:
    """With a planner that decides differently the plans continue, and a note says since when brokers are simulated."""
    decided = decide(planner="swap_links_lmst")
    same, text = first_difference(decided.plans, recorded())
    assert same < len(recorded())
    assert text.startswith("plan-1: ")
    assert decided.simulated_from_ms is not None
    assert decided.simulated_from_ms > 0
    assert all(plan.phase is not PlanPhase.ABORTED for plan in decided.plans)


def test_a_recorded_plan_that_is_not_made_again_is_reported() -> None:
    """A controller that plans nothing keeps seeing windows of one epoch, not those of the recorded plans."""
    decided = decide(decision={"gain_share_min": 0.99})
    assert decided.plans == ()
    assert decided.simulated_from_ms is not None
    assert first_difference(decided.plans, recorded()) == (0, "plan-1: was proposed then, but not now")


def test_the_window_in_which_the_recording_begins_is_left_out() -> None:
    """If brokers had sent batches in that window before the recording, it is incomplete."""
    first = next(row for row in small_rows() if isinstance(row, WindowClosed))
    begun = msgspec.structs.replace(
        first, brokers=tuple(msgspec.structs.replace(one, sequence_min=3) for one in first.brokers)
    )
    early = (row for row in small_rows() if row.window_start_ms < first.window_start_ms + 20_000)
    rows = [begun if row is first else row for row in early]
    assert (decide(rows=rows).windows_cut, decide(rows=[]).windows) == (1, 0)
    before = msgspec.structs.replace(first, window_start_ms=first.window_start_ms - 4_000, brokers=())
    assert decide(rows=[before, *rows]).windows_cut == 2


def test_plans_from_before_the_recording_are_known() -> None:
    """Earlier plans, and plans from earlier windows, are known and not made again."""
    begin_ms = recorded()[1].history[0].time_ms - 2_000
    inputs = read_inputs(small(), from_ms=begin_ms)
    assert [plan.plan for plan in inputs.plans_known] == ["plan-1"]
    rows = [row for row in small_rows() if row.window_start_ms >= begin_ms]
    decided = decide(rows=rows, inputs=inputs)
    assert decided.windows >= 10
    assert decided.plans == ()  # As recorded: no other change was worth a plan.
    certain = settings(decision={"noise_factor": 0.0})
    eager = decide_again(rows, inputs, small().info.inventory, certain, 1_000)
    # The second one depends on a missing window: what is found now comes after it, on its overlay.
    first = eager.plans[0]
    assert (first.plan, first.epoch_from, first.window_end_ms > recorded()[1].window_end_ms) == ("plan-3", 2, True)
    assert set(first.links_removed) <= set(recorded()[1].links_target)


def test_differences_between_two_plans_are_reported() -> None:
    """The first difference is named with both values; times and observed costs do not count."""
    plan = recorded()[0]
    assert plan_difference(plan, msgspec.structs.replace(plan, history=(), cost_observed_per_s=None)) == ""
    other = msgspec.structs.replace(plan, links_added=(("b0", "b9"),))
    assert plan_difference(other, plan).startswith("links added b0-b9 instead of ")
    assert first_difference([plan], [])[1] == "plan-1: was not proposed then"


def test_settings_come_from_the_recording_and_flags_override_them() -> None:
    """Recorded settings are used, a flag overrides them, and a settings file replaces them."""
    found, unknown = recorded_settings(small(), {"controller": {"decision": {"users_per_plan_max": 3}}}, None)
    assert (found.streaming.window_ms, found.run.seed, unknown) == (4_000, 4, [])
    assert found.controller.decision.users_per_plan_max == 3
    assert found.controller.decision.changes_per_plan_max == 4
    assert found.controller.decision.cool_down_windows == 1  # A setting when it was recorded.


def test_a_settings_file_replaces_the_recorded_ones(tmp_path: Path) -> None:
    """Nothing is mixed: settings that the file does not name have their defaults."""
    (tmp_path / "own.toml").write_text("[streaming]\ngrace_ms = 1500\n")
    found, _ = recorded_settings(small(), {}, tmp_path / "own.toml")
    assert (found.streaming.grace_ms, found.streaming.window_ms) == (1_500, 5_000)


def test_obsolete_settings_are_reported() -> None:
    """A recording of another version may contain removed settings; they are left out and named."""
    obsolete = {"controller": {"planner": "swap_links_cost", "wisdom": 3, "decision": {"luck": 1}}}
    recording = open_recording(SMALL)
    recording.info = replace(recording.info, settings=obsolete)
    found, unknown = recorded_settings(recording, {}, None)
    assert found.controller.planner == "swap_links_cost"
    assert unknown == ["controller.wisdom", "controller.decision.luck"]


def test_recorded_settings_of_planners_are_read() -> None:
    """Those that this version does not know are left out and named, as whole planners are."""
    recording = open_recording(SMALL)
    own = {"reassign_ids_ssbr": {"ring_free_s": 61.0}, "place_users_dynatops": {"users_moved_max": 7, "luck": 1}}
    recording.info = replace(recording.info, settings={"planners": {**own, "roll_dice": {}}})
    found, unknown = recorded_settings(recording, {}, None)
    assert unknown == ["planners.place_users_dynatops.luck", "planners.roll_dice"]
    for loaded in (found, settings_of(recording.info, {}, ["swap_links_cost"])):
        assert loaded.controller.planners["reassign_ids_ssbr"] == ReassignmentSettings(ring_free_s=61.0)
        assert loaded.controller.planners["place_users_dynatops"] == PlacementSettings(users_moved_max=7)


def test_a_run_at_another_clock_cannot_be_decided_again() -> None:
    """If Kafka's times are not event times, it is unknown what was known when."""
    recording = open_recording(SMALL)
    recording.info = replace(recording.info, settings={"run": {"clock_speed": 60.0}})
    with pytest.raises(StackError, match="was recorded at clock speed 60"):
        read_inputs(recording)


def test_a_recording_without_clients_can_be_decided_on(tmp_path: Path) -> None:
    """Telemetry alone gives empty inputs, and brokers are simulated."""
    write(tmp_path / "few.avro", telemetry(range(4)), topics=("telemetry",))
    inputs = read_inputs(open_recording(tmp_path / "few.avro"))
    assert inputs == DecisionInputs(clients=[], orders=[], plans_known=[], members_known=[])
    assert decide(inputs=inputs).simulated_from_ms == 0
