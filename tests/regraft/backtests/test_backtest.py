"""What planners would have achieved on a recording, by the controller's own rules, reproducibly."""

from __future__ import annotations

import csv
import io
import json
import random
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fastavro import schemaless_writer
from rich.console import Console
from typer.testing import CliRunner

from regraft.backtests.backtest_outcome import BOOTSTRAP, LEAST, RECORDED, Mode, Outcome
from regraft.backtests.run_backtest import Backtest, BacktestError, BacktestOptions, run_backtest
from regraft.backtests.show_backtest import figures_document
from regraft.cli import app
from regraft.overlay.read_inventory import parse_inventory
from regraft.producers.emulator import emit_telemetry
from regraft.producers.emulator.place_overlay import place_overlay
from regraft.producers.recordings import recording_format
from regraft.producers.recordings.read_recording import open_recording
from regraft.recordings import aggregate_recording as aggregating
from regraft.recordings.aggregate_recording import AggregatedRecording, read_changes_of, read_plans_of, read_windows_of
from regraft.schemas.client import Client, Role
from regraft.schemas.registry import schema_by_id
from regraft.schemas.state import StateRow
from regraft.settings.fixed_settings import with_recorded
from regraft.settings.place_demo import ensure_inventory
from regraft.settings.run_settings import Settings, load_settings
from regraft.streaming.reference_aggregator import ReferenceAggregator
from regraft.streaming.streaming_settings import EventBounds
from regraft.virtual_runs.virtual_loop import VirtualLoop
from tests.record_virtual import record_virtual
from tests.streaming.random_telemetry import BEGIN_MS, as_dicts, random_telemetry
from tests.streaming.random_telemetry import BROKERS as TELEMETRY_BROKERS

PLANNER, PEER = "swap_links_cost+relocate_publishers_joint", "swap_links_ci"
RECORDED_S, CLOSED_S = 50, 25
WINDOW_MS = 5_000
KINDS = ("delivery", "rtt", "churn")
BOUNDS = EventBounds(60_000, 3_600_000)
QUIET = Console(quiet=True)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, VirtualLoop, Settings]:
    """Return a recording of fifty seconds of ten brokers, and the loop that made it."""
    folder = tmp_path_factory.mktemp("recorded")
    settings = load_settings(
        {
            "run": {"directory": str(folder / "run"), "seed": 3},
            "demo": {"brokers": 10},
            "controller": {"dry_run": False, "planner": PLANNER, "horizon_lifetimes": 1.0},
            "emulator": {"workload": {"publisher_count": 12, "notifications_per_s": 2.0}},
        }
    )
    file = folder / "rec.avro"
    return file, record_virtual(settings, ensure_inventory(settings), RECORDED_S, file), settings


@pytest.fixture(scope="module")
def tested(recorded: tuple[Path, VirtualLoop, Settings]) -> Backtest:
    """Return a backtest of two planners in both modes."""
    return run_backtest(BacktestOptions(recorded[0], (PLANNER, PEER), closed_loop_s=CLOSED_S), QUIET)


def outcome(found: Backtest, planner: str, mode: Mode = Mode.OPEN_LOOP) -> Outcome:
    """Return the outcome of one planner."""
    return next(each for each in found.outcomes if (each.planner, each.mode) == (planner, mode))


def without_times(found: Backtest) -> list[Any]:
    """Return all outcomes except how long decisions took."""
    return [msgspec.to_builtins(msgspec.structs.replace(each, decision_time=None)) for each in found.outcomes]


def test_windows_of_a_recording_are_those_of_the_reference(
    recorded: tuple[Path, VirtualLoop, Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deliveries, client changes and markers equal the reference's for any division of the work, without duplicates."""
    recording = open_recording(recorded[0])
    first_ms = -(-(recording.first_ms or 0) // WINDOW_MS) * WINDOW_MS
    end_ms = (recording.last_ms or 0) // WINDOW_MS * WINDOW_MS
    reference = ReferenceAggregator(WINDOW_MS, 0)
    for batch in recording.batches():
        reference.take(batch)
    expected = {
        window.marker.window_start_ms: (
            [row for row in window.rows if row.kind in KINDS],
            window.marker,
        )
        for window in reference.finish()
    }
    for records, lag_ms in ((150_000, 30_000), (700, 0)):
        monkeypatch.setattr(aggregating, "SPAN_RECORDS", records)
        monkeypatch.setattr(aggregating, "LAG_MS", lag_ms)  # Too short: the brokers' deliveries are older than that.
        folder = tmp_path / str(records)
        folder.mkdir()
        found = aggregating.aggregate_recording(recording, folder, first_ms, end_ms, WINDOW_MS, BOUNDS)
        windows = list(read_windows_of(found))
        assert [window.marker.window_start_ms for window in windows] == list(range(first_ms, end_ms, WINDOW_MS))
        for window in windows:
            rows, marker = expected[window.marker.window_start_ms]
            assert list(window.rows) == rows
            assert window.marker.brokers == marker.brokers
        recorded_changes = list(recording.messages(("clients",)))
        assert [change.name for change in read_changes_of(found)] == [
            message.key.decode() for message in recorded_changes
        ]
        assert [version.plan for version in read_plans_of(found)] == recorded[1].ports.plans.versions
        assert (found.spans > 1) == (records == 700)


def test_the_overlay_as_recorded_costs_what_the_controller_saw(
    recorded: tuple[Path, VirtualLoop, Settings], tested: Backtest
) -> None:
    """The yardsticks are the controller's own series of costs, window by window."""
    seen = {point.window_end_ms: point for point in recorded[1].loop.state.cost_points if point.is_complete}
    points = outcome(tested, RECORDED).points
    assert len(points) >= RECORDED_S * 1000 // WINDOW_MS - 3
    for point in points:
        assert point.cost_per_s == pytest.approx(seen[point.end_ms].cost_per_s)
        assert point.cost_bootstrap_per_s == pytest.approx(seen[point.end_ms].cost_bootstrap_per_s)
    assert outcome(tested, BOOTSTRAP).saved_share == 0.0


def test_nothing_costs_less_than_the_bound(tested: Backtest) -> None:
    """Both modes have a yardstick that bounds all costs on the same windows from below."""
    bounds = [one for one in tested.outcomes if one.planner == LEAST]
    assert [one.mode for one in bounds] == list(Mode)
    for bound in bounds:
        least_per_s = {point.end_ms: point.cost_per_s for point in bound.points}
        assert least_per_s
        for other in tested.outcomes:
            if other.mode is bound.mode:
                assert all(point.cost_per_s >= least_per_s.get(point.end_ms, 0.0) for point in other.points)


def test_planners_save_on_the_recorded_traffic(tested: Backtest) -> None:
    """Both planners change links of the random tree and save; only one of them moves publishers.

    They begin with the overlay at the start of the first window, not with that of the plan that came into force in it.
    """
    ours, peer = outcome(tested, PLANNER), outcome(tested, PEER)
    for found in (ours, peer):
        assert found.saved_share is not None
        assert found.saved_share > 0.1
        assert found.links_exchanged > 0
        assert found.deliveries is None
        assert found.decision_time.count == len(found.points)
        assert found.points[0].cost_per_s == pytest.approx(outcome(tested, BOOTSTRAP).points[0].cost_per_s)
        assert found.refusals
    assert ours.moves > 0
    assert peer.moves == 0


def test_the_recorded_planner_acts_again_as_recorded(
    recorded: tuple[Path, VirtualLoop, Settings], tested: Backtest
) -> None:
    """The emulator and the controller of the recording, run again, make the same plans and lose nothing."""
    again = outcome(tested, PLANNER, Mode.CLOSED_LOOP)
    assert again.deliveries is not None
    assert (again.deliveries.lost, again.deliveries.repeated, again.deliveries.out_of_order) == (0, 0, 0)
    assert again.deliveries.published > 300
    made = {(plan.plan, plan.time_ms, plan.links, plan.moves) for plan in again.plans}
    recorded_plans = outcome(tested, RECORDED).plans
    until_ms = again.points[-1].end_ms
    before = {(plan.plan, plan.time_ms, plan.links, plan.moves) for plan in recorded_plans if plan.time_ms < until_ms}
    assert made
    assert made == before
    costs = {point.end_ms: point.cost_per_s for point in again.points}
    for point in outcome(tested, RECORDED).points:
        assert costs.get(point.end_ms, point.cost_per_s) == pytest.approx(point.cost_per_s)


def test_the_same_recording_and_settings_give_the_same_results(
    recorded: tuple[Path, VirtualLoop, Settings], tested: Backtest
) -> None:
    """Costs, plans, refusals and deliveries are the same in another run, except how long decisions took."""
    again = run_backtest(BacktestOptions(recorded[0], (PLANNER, PEER), closed_loop_s=CLOSED_S), QUIET)
    assert without_times(again) == without_times(tested)


def test_given_settings_override_recorded_ones(recorded: tuple[Path, VirtualLoop, Settings], tested: Backtest) -> None:
    """A dead band that no gain exceeds leaves the overlay as it is; the other recorded settings stay."""
    flags = {"controller": {"decision": {"gain_share_min": 0.99}}}
    found = run_backtest(BacktestOptions(recorded[0], flags=flags, closed_loop_s=0), QUIET)
    idle = outcome(found, PLANNER)  # The planner of the recording.
    assert (idle.plans, idle.saved_share) == ((), 0.0)
    assert found.settings.controller.horizon_lifetimes == 1.0
    assert not any(each.mode is Mode.CLOSED_LOOP for each in found.outcomes)
    assert any("--closed-loop-s 0" in note for note in found.notes)


def test_a_part_of_the_recording_can_be_backtested(
    recorded: tuple[Path, VirtualLoop, Settings], tested: Backtest
) -> None:
    """The planner starts at the overlay in force at the given time."""
    recording = open_recording(recorded[0])
    from_ms = (recording.last_ms or 0) - 25_000
    found = run_backtest(BacktestOptions(recorded[0], (PEER,), from_ms=from_ms, closed_loop_s=0), QUIET)
    points = outcome(found, PEER).points
    assert points[0].end_ms >= from_ms + WINDOW_MS
    in_force = next(point for point in outcome(tested, RECORDED).points if point.end_ms == points[0].end_ms)
    assert points[0].cost_per_s == pytest.approx(in_force.cost_per_s)


def test_brokers_that_the_emulator_did_not_place_are_not_emulated(
    recorded: tuple[Path, VirtualLoop, Settings], tmp_path: Path
) -> None:
    """Such a recording is backtested only in an open loop, with a note why, unless --resimulate is given."""
    _, loop, settings = recorded
    others = replace(loop.inventory, processing_cost=loop.inventory.processing_cost * 2)
    strange = tmp_path / "strange.avro"
    record_virtual(settings, parse_inventory(others.to_json(), "test"), 20, strange)
    found = run_backtest(BacktestOptions(strange, (PEER,), closed_loop_s=5), QUIET)
    assert {each.mode for each in found.outcomes} == {Mode.OPEN_LOOP}
    assert any("may be real brokers" in note for note in found.notes)
    forced = run_backtest(BacktestOptions(strange, (PEER,), closed_loop_s=5, is_emulation_forced=True), QUIET)
    assert outcome(forced, PEER, Mode.CLOSED_LOOP).deliveries is not None


def test_where_clients_stay_a_note_says_how_many_subscribers_could_have_moved(
    recorded: tuple[Path, VirtualLoop, Settings], tested: Backtest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of which the register says so; where all clients may move there is no such note."""
    _, loop, settings = recorded

    def client(name: str, role: Role, *facts: Any) -> Client:
        return Client(name, role, *facts, may_move=role is Role.SUBSCRIBER and name.endswith("1"))

    monkeypatch.setattr(emit_telemetry, "Client", client)
    staying = tmp_path / "staying.avro"
    record_virtual(settings, replace(loop.inventory, clients_stay=True), 20, staying)
    found = run_backtest(BacktestOptions(staying, (PEER,), closed_loop_s=0), QUIET)
    assert outcome(found, PEER).moves == 0
    (told,) = [note for note in found.notes if "Clients stay" in note]
    movable, subscribers = map(int, re.findall(r"[0-9]+", told))
    assert 0 < movable < subscribers / 5
    assert not [note for note in tested.notes if "Clients stay" in note]


def test_a_span_without_reports_of_brokers_is_an_error(
    recorded: tuple[Path, VirtualLoop, Settings], tmp_path: Path
) -> None:
    """A recording has no windows in a gap: a backtest of the gap alone says so."""
    file = tmp_path / "gap.avro"
    blocks = open_recording(recorded[0]).blocks()
    data = recorded[0].read_bytes()
    file.write_bytes(data[: blocks[12].at + blocks[12].size + 16] + data[blocks[35].at + blocks[35].size + 16 :])
    gap_ms = blocks[12].span.last_ms + 3_000, blocks[35].span.last_ms - 3_000
    with pytest.raises(BacktestError, match="no complete window"):
        run_backtest(BacktestOptions(file, (PEER,), from_ms=gap_ms[0], to_ms=gap_ms[1], closed_loop_s=0), QUIET)
    over_it = outcome(run_backtest(BacktestOptions(file, (PEER,), closed_loop_s=0), QUIET), PEER)
    assert any(late.end_ms - early.end_ms > WINDOW_MS for early, late in pairwise(over_it.points))


def test_all_errors_of_a_call_are_reported_at_once(recorded: tuple[Path, VirtualLoop, Settings]) -> None:
    """An unknown planner, a wrong setting, a time outside the recording and a negative duration: four sentences."""
    options = BacktestOptions(
        recorded[0], ("nobody", PEER), {"controller": {"review_ms_max": 0}}, from_ms=1 << 42, closed_loop_s=-1
    )
    with pytest.raises(BacktestError) as raised:
        run_backtest(options, QUIET)
    errors = "\n".join(raised.value.errors)
    for part in ("'nobody' is unknown", "review_ms_max is 0", "--closed-loop-s is -1", "no complete window"):
        assert part in errors


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--planner", "place_users_dynatops"], "does not plan for this overlay's kind (tree)"),
        (["--planner", PEER, "--planner", PEER], "name each once"),
        (["--from", "2099-01-01"], "there is no complete window"),
        (["--from", "soon"], "--from soon is not a time"),
        (["--set", "tick_ms=3"], "write section.name=value"),
    ],
)
def test_a_wrong_call_ends_with_2_and_a_sentence(
    recorded: tuple[Path, VirtualLoop, Settings], arguments: list[str], text: str
) -> None:
    """Impossible requests are reported before anything runs."""
    ended = CliRunner().invoke(app, ["backtest", str(recorded[0]), *arguments])
    assert ended.exit_code == 2
    assert text in ended.stderr


def test_a_file_that_is_no_recording_ends_with_2(tmp_path: Path) -> None:
    """A wrong file is a wrong call."""
    file = tmp_path / "rec.avro"
    file.write_text("no recording")
    ended = CliRunner().invoke(app, ["backtest", str(file)])
    assert ended.exit_code == 2
    assert "is not a recording" in ended.stderr


def test_the_command_writes_table_figures_and_drawing(
    recorded: tuple[Path, VirtualLoop, Settings], tmp_path: Path
) -> None:
    """The table names each planner, the figures name planner and mode, the drawing has a line for each."""
    out = tmp_path / "out"
    arguments = ["backtest", str(recorded[0]), "--planner", PEER, "--closed-loop-s", "0", "--out", str(out)]
    csv_file = tmp_path / "tables" / "figures.csv"
    ended = CliRunner().invoke(app, [*arguments, "--json", str(tmp_path / "figures.json"), "--csv", str(csv_file)])
    assert ended.exit_code == 0, ended.output
    assert PEER in ended.stdout
    assert "Open loop: each planner decided on the recorded windows" in ended.stdout
    document = json.loads((tmp_path / "figures.json").read_text())
    assert document == json.loads((out / "figures.json").read_text())
    with csv_file.open(newline="") as lines:
        rows = [(row["planner"], row["name"], float(row["value"])) for row in csv.DictReader(lines)]
    assert rows == [(one["where"]["planner"], one["name"], one["value"]) for one in document["figures"]]
    saved = [figure for figure in document["figures"] if figure["name"] == "saved_share"]
    assert {(figure["where"]["planner"], figure["where"]["mode"]) for figure in saved} == {
        (RECORDED, "open_loop"),
        (BOOTSTRAP, "open_loop"),
        (LEAST, "open_loop"),
        (PEER, "open_loop"),
    }
    assert document["run"]["seed"] == 3
    assert PEER in (out / "backtest.svg").read_text()
    assert "<svg" in (out / "backtest.html").read_text()


def test_on_a_ring_the_register_of_clients_is_replayed(tmp_path: Path) -> None:
    """A ring's costs depend on the users' topics and homes at the time: as recorded they equal the controller's."""
    planners = "place_users_dynatops+reassign_ids_assignment"
    chosen = load_settings(
        {
            "run": {"directory": str(tmp_path / "run"), "seed": 2},
            "demo": {"brokers": 8, "scenario": "chord"},
            "controller": {"dry_run": False, "planner": planners, "horizon_lifetimes": 1.0},
            "planners": {"reassign_ids_assignment": {"ring_free_s": 60.0}},
        }
    )
    few = {
        "streaming": {"trigger_ms": 100},  # On the virtual clock a window is assembled one step after its grace.
        "emulator": {"checkins": {"user_count": 100, "notifications_per_s": 60.0}},
    }
    settings = with_recorded(chosen, few)
    file = tmp_path / "ring.avro"
    loop = record_virtual(settings, ensure_inventory(settings), 45, file)
    found = run_backtest(BacktestOptions(file, (planners, "reassign_ids_ssbr"), closed_loop_s=20), QUIET)
    seen = {point.window_end_ms: point.cost_per_s for point in loop.loop.state.cost_points if point.is_complete}
    points = outcome(found, RECORDED).points
    assert len(points) >= 6
    for point in points:
        assert point.cost_per_s == pytest.approx(seen[point.end_ms])
    assert outcome(found, planners).moves > 0
    assert outcome(found, "reassign_ids_ssbr").id_moves > 0
    again = outcome(found, planners, Mode.CLOSED_LOOP)
    assert again.deliveries is not None
    assert (again.deliveries.lost, again.deliveries.repeated) == (0, 0)


def windows_and_reference(file: Path, folder: Path) -> tuple[AggregatedRecording, list[list[StateRow]]]:
    """Return a file's windows, and the reference's on what its own reader reads."""
    recording = open_recording(file)
    first_ms, end_ms = recording.first_ms or 0, (recording.last_ms or 0) + WINDOW_MS
    first_ms -= first_ms % WINDOW_MS + WINDOW_MS
    found = aggregating.aggregate_recording(recording, folder, first_ms, end_ms, WINDOW_MS, EventBounds(None, None))
    reference = ReferenceAggregator(WINDOW_MS, 0)
    for batch in recording.batches():
        if batch["broker"] in recording.info.inventory.brokers:
            reference.take(batch)
    expected = [[row for row in window.rows if row.kind in KINDS] for window in reference.finish()]
    return found, expected


def test_the_readable_parts_of_a_damaged_recording_are_used(
    recorded: tuple[Path, VirtualLoop, Settings], tmp_path: Path
) -> None:
    """A block with a wrong byte is left out, a cut file is read up to the cut, and both are reported."""
    damaged = bytearray(recorded[0].read_bytes())
    block = open_recording(recorded[0]).blocks()[20]
    damaged[block.at + block.size // 2] ^= 0xFF
    file = tmp_path / "damaged.avro"
    file.write_bytes(damaged[: len(damaged) * 9 // 10])
    found, expected = windows_and_reference(file, tmp_path)
    assert [list(window.rows) for window in read_windows_of(found)] == expected
    assert any("is damaged" in warning for warning in found.warnings)
    tested = run_backtest(BacktestOptions(file, (PEER,), closed_loop_s=0), QUIET)
    assert any("is cut" in warning for warning in tested.warnings)
    assert outcome(tested, PEER).windows_incomplete == 1  # Those of the missing block.


def test_telemetry_of_an_older_schema_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file from before telemetry was packed gives the windows of its own reader.

    Other bytes, and telemetry of a broker that is not in the inventory, are counted.
    """
    sync = b"s" * recording_format.SYNC_BYTES
    builder = recording_format.BlockBuilder(sync)
    first = schema_by_id(102)
    branch = recording_format.recorded_names().index("TelemetryBatch") + 2
    inventory = place_overlay(4, 3, random.Random(1))
    known = dict(zip(TELEMETRY_BROKERS, inventory.brokers, strict=False))
    batches = as_dicts(random_telemetry(random.Random(1)))
    batches = [batch | {"broker": known[batch["broker"]]} for batch in batches]
    for offset, batch in enumerate([*batches, batches[0] | {"broker": "invented"}]):
        body = io.BytesIO()
        schemaless_writer(body, first.parsed, batch)
        builder.add("telemetry", batch["time_ms"], 0, offset, b"b", branch, body.getvalue())
    builder.add("telemetry", BEGIN_MS, 0, 1_000, b"b", branch, b"no telemetry")
    info = {"format": 1, "recording": "r", "namespace": "n", "created_ms": 0, "version": "0", "commit": "c"}
    info |= {"topics": ["telemetry"], "settings": {}, "part": 1, "previous": ""}
    with monkeypatch.context() as older:
        newest = recording_format.latest_schema
        older.setattr(recording_format, "latest_schema", lambda name: first if name == first.record else newest(name))
        recording_format.container_schema.cache_clear()
        header = recording_format.encode_header(info, inventory.to_json(), sync)
    recording_format.container_schema.cache_clear()
    file = tmp_path / "old.avro"
    file.write_bytes(header + builder.take())
    found, expected = windows_and_reference(file, tmp_path)
    assert [list(window.rows) for window in read_windows_of(found)] == expected
    assert expected
    assert found.refused == 2


def test_auto_compares_all_planners_and_chooses_one(
    recorded: tuple[Path, VirtualLoop, Settings],
) -> None:
    """Every candidate has run on every window, and the figures have the choice, which is one of them."""
    from_ms = (open_recording(recorded[0]).last_ms or 0) - 25_000
    options = BacktestOptions(recorded[0], ("auto",), from_ms=from_ms)
    found = run_backtest(options, QUIET)
    assert found.choice is not None
    candidates = [outcome for outcome in found.outcomes if not outcome.is_yardstick]
    assert {one.name for one in found.choice.compared} == {outcome.planner for outcome in candidates}
    assert {len(outcome.points) for outcome in candidates} == {found.choice.windows}
    assert all(outcome.mode is Mode.OPEN_LOOP for outcome in candidates)
    assert found.choice.compared[0].above_share == 0
    figures = figures_document(found, options)["figures"]
    chosen = [figure for figure in figures if figure["name"] == "is_taken" and figure["value"] == 1]
    assert [figure["where"]["planner"] for figure in chosen] == [found.choice.chosen.name]
    assert run_backtest(BacktestOptions(recorded[0], (PLANNER,), closed_loop_s=0), QUIET).choice is None
