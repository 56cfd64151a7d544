"""Run planners over a recording on the virtual clock, and measure what each would have achieved.

In: a recording, planners, settings. Out: an Outcome of each planner in each mode, figures and drawings in a folder.
The open loop always runs: planners decide on recorded windows. The closed loop runs if the emulator made the recording:
planners act on the emulator again. Decisions are made by the controller's own code; showing them belongs to
``show_backtest``.
"""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
from rich.console import Console

from regraft.backtests.backtest_outcome import BOOTSTRAP, LEAST, RECORDED, CostPoint, Outcome
from regraft.backtests.choose_settings import AUTO, Candidate, Choice, candidates_for, choose
from regraft.backtests.run_closed_loop import ClosedLoopTask, duration_s_max, run_closed_loop
from regraft.backtests.run_open_loop import OpenLoopTask, run_open_loop
from regraft.controller.kinds.find_kind import kind_of
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.infra.process.run_tasks import divide_work
from regraft.infra.process.show_progress import show_progress
from regraft.producers.recordings.read_recording import Recording, RecordingError, open_recording
from regraft.recordings.aggregate_recording import AggregatedRecording, aggregate_recording, work_count
from regraft.schemas.texts import iso_text
from regraft.schemas.topics import CLIENTS, MEMBERS
from regraft.schemas.units import SECOND_MS
from regraft.settings.read_sources import Flags
from regraft.settings.recorded_settings import settings_of, why_not_emulated
from regraft.settings.run_settings import Settings, SettingsError

CLOSED_LOOP_S = 180
SMALL_WINDOWS = 50  # A few seconds of work at most.
SMALL_CLOSED_S = 60
OPEN_LOOP_ONLY = "candidates are compared in the open loop only"


class BacktestError(ValueError):
    """The backtest cannot be run as requested; ``errors`` lists everything to fix, one sentence each."""

    def __init__(self, errors: Sequence[str]) -> None:
        super().__init__("\n".join(errors))
        self.errors = tuple(errors)


@dataclass(frozen=True)
class BacktestOptions:
    """The options of `regraft backtest`.

    ``planners``: those to run; none for the recorded one, AUTO alone to compare all that suit the overlay.
    ``from_ms``, ``to_ms``: the part of the recording, None for its start and end. ``closed_loop_s``: how many seconds
    of the run to emulate again, 0 for none. ``is_emulation_forced``: do so even if the emulator did not make the
    recording.
    """

    file: Path
    planners: tuple[str, ...] = ()
    flags: Flags = field(default_factory=dict)
    from_ms: int | None = None
    to_ms: int | None = None
    closed_loop_s: int = CLOSED_LOOP_S
    is_emulation_forced: bool = False


@dataclass(frozen=True)
class Backtest:
    """The results of a backtest.

    ``outcomes``: of each mode the yardsticks, then the planners. ``notes`` explain how the results were obtained and
    what is missing; ``warnings`` describe errors of the recording. ``first_ms`` and ``end_ms`` bound the windows.
    """

    settings: Settings
    outcomes: tuple[Outcome, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    first_ms: int
    end_ms: int
    records: int
    windows: int
    choice: Choice | None = None

    @property
    def errors(self) -> tuple[str, ...]:
        """What went wrong in the run, one sentence each."""
        failed = [
            f"{outcome.planner} failed {outcome.errors} times ({outcome.error_text})"
            for outcome in self.outcomes
            if outcome.errors
        ]
        stuck = [
            f"the closed loop of {outcome.planner} did not settle"
            for outcome in self.outcomes
            if not outcome.is_settled
        ]
        return (*failed, *stuck)


def run_backtest(options: BacktestOptions, console: Console) -> Backtest:
    """Run all planners. Raises BacktestError, before it runs any, with everything that is wrong with the options."""
    try:
        recording = open_recording(options.file)
    except RecordingError as error:
        raise BacktestError([str(error)]) from error
    candidates, is_auto = _candidates(options, recording), options.planners == (AUTO,)
    named = [one.planner for one in candidates]
    options = replace(options, planners=tuple(dict.fromkeys(named) if is_auto else named))
    settings, first_ms, end_ms = _checked(options, recording)
    notes = [_open_note(recording)]
    why_not = OPEN_LOOP_ONLY if is_auto else _why_not_closed(options, recording, settings)
    tasks = [] if why_not else _closed_tasks(options, recording, settings)
    notes.append(_closed_note(why_not, tasks, settings))
    with tempfile.TemporaryDirectory(prefix="regraft-backtest-") as folder:
        with show_progress("Reading the recording", work_count(recording), console) as advance:
            window_ms, bounds = settings.streaming.window_ms, settings.streaming.bounds
            aggregated = aggregate_recording(recording, Path(folder), first_ms, end_ms, window_ms, bounds, advance)
        if not aggregated.windows:
            raise BacktestError([_empty_text(recording, first_ms, end_ms)])
        opened = _run_open(candidates, recording, settings, aggregated, console)
    closed: list[Outcome] = []
    if tasks:
        with show_progress("Emulating seconds", sum(task.work_count for task in tasks), console) as advance:
            closed = divide_work(tasks, run_closed_loop, Outcome, advance, "planners", SMALL_CLOSED_S)
    return Backtest(
        settings,
        (*opened, *([_bootstrap(closed[0]), *_least(closed[0])] if closed else []), *closed),
        tuple(note for note in (*notes, *_bound_notes(opened), *_unknown_notes(opened, recording, aggregated)) if note),
        (*recording.warnings, *aggregated.warnings),
        first_ms,
        end_ms,
        aggregated.records,
        aggregated.windows,
        choose(one for one in opened if not one.is_yardstick) if is_auto else None,
    )


def _candidates(options: BacktestOptions, recording: Recording) -> tuple[Candidate, ...]:
    """Return the planners that were named, all that suit the overlay for AUTO, else the recorded (or default) one."""
    acting = str(recording.info.settings.get("controller", {}).get("planner", ControllerSettings.planner))
    if options.planners == (AUTO,):
        return candidates_for(recording.info.inventory.bootstrap.KIND, acting)
    return tuple(Candidate(planner) for planner in options.planners or (acting,))


def _checked(options: BacktestOptions, recording: Recording) -> tuple[Settings, int, int]:
    """Return the settings and the span of whole windows. Raises BacktestError with everything that is wrong."""
    errors: list[str] = []
    settings: Settings | None = None
    try:
        settings = settings_of(recording.info, options.flags, tuple(dict.fromkeys(options.planners)))
    except SettingsError as error:
        errors += error.errors
    errors += [
        f"--planner {name} is given {count} times: name each once"
        for name, count in Counter(options.planners).items()
        if count > 1
    ]
    if options.closed_loop_s < 0:
        errors.append(f"--closed-loop-s is {options.closed_loop_s}: must be at least 0; 0 runs no closed loop")
    if settings is not None and options.closed_loop_s > duration_s_max(settings.streaming.window_ms):
        limit_s = duration_s_max(settings.streaming.window_ms)
        errors.append(
            f"--closed-loop-s is {options.closed_loop_s}: must be at most {limit_s}, because costs are kept for that "
            "long"
        )
    if settings is not None and settings.run.clock_speed != 1.0:
        errors.append(
            f"the recorded run had run.clock_speed {settings.run.clock_speed:g}: its event times differ from Kafka's, "
            "by which a recording is read; use a recording of a run at speed 1"
        )
    errors += _recording_errors(recording, settings)
    first_ms, end_ms = _span(options, recording, 5_000 if settings is None else settings.streaming.window_ms, settings)
    if first_ms >= end_ms and any(block.span.telemetry for block in recording.blocks()):
        errors.append(_empty_text(recording, first_ms, end_ms))
    if errors or settings is None:
        raise BacktestError(list(dict.fromkeys(errors)))
    return settings, first_ms, end_ms


def _recording_errors(recording: Recording, settings: Settings | None) -> list[str]:
    errors = []
    if not any(block.span.telemetry for block in recording.blocks()):
        errors.append(f"{recording.path} holds no telemetry: record a run that has brokers")
    inventory = recording.info.inventory
    needs_register = settings is not None and kind_of(inventory, settings.controller).NEEDS_REGISTER
    if needs_register and CLIENTS.suffix not in recording.info.topics:
        errors.append(
            f"{recording.path} holds no clients, which plans for a {inventory.bootstrap.KIND} need: record the "
            "topic clients as well"
        )
    return errors


def _span(options: BacktestOptions, recording: Recording, window_ms: int, settings: Settings | None) -> tuple[int, int]:
    """Return the start of the first and the end of the last window that lie entirely in the requested part."""
    spans = [block.span for block in recording.blocks() if block.span.telemetry]
    grace_ms = 0 if settings is None else settings.streaming.grace_ms
    first_ms = min((span.first_ms for span in spans), default=0)
    last_ms = max((span.last_ms for span in spans), default=0) - grace_ms
    begin_ms = max(first_ms, first_ms if options.from_ms is None else options.from_ms)
    end_ms = min(last_ms, last_ms if options.to_ms is None else options.to_ms)
    return -(-begin_ms // window_ms) * window_ms, end_ms // window_ms * window_ms


def _empty_text(recording: Recording, first_ms: int, end_ms: int) -> str:
    return (
        f"there is no complete window between {iso_text(first_ms)} and {iso_text(end_ms)}: the recording goes "
        f"from {iso_text(recording.first_ms or 0)} to {iso_text(recording.last_ms or 0)}, so choose --from and "
        "--to within it, at least a window and its grace apart"
    )


def _run_open(
    candidates: Sequence[Candidate],
    recording: Recording,
    settings: Settings,
    aggregated: AggregatedRecording,
    console: Console,
) -> list[Outcome]:
    streaming = settings.streaming
    known_after_ms = streaming.grace_ms + streaming.trigger_ms
    tasks = [
        OpenLoopTask(planner, str(recording.path), aggregated, controller, known_after_ms, name)
        for planner, controller, name in (
            *((one.planner, one.applied_to(settings.controller), one.name) for one in candidates),
            (RECORDED, settings.controller, RECORDED),
        )
    ]
    with show_progress("Planning windows", sum(task.work_count for task in tasks), console) as advance:
        *planned, recorded = divide_work(tasks, run_open_loop, Outcome, advance, "planners", SMALL_WINDOWS)
    firsts = {point.end_ms: point.cost_bootstrap_per_s for point in recorded.points}
    planned = [_with_bootstrap_costs(outcome, firsts) for outcome in planned]
    costed = tuple(point for point in recorded.points if not math.isnan(point.cost_per_s))
    yardsticks = [msgspec.structs.replace(recorded, points=costed)] if costed else []
    return [*yardsticks, _bootstrap(planned[0]), *_least(recorded), *planned]


def _with_bootstrap_costs(outcome: Outcome, firsts_per_s: Mapping[int, float]) -> Outcome:
    """Return the outcome with the bootstrap overlay's costs on its windows."""
    points = tuple(CostPoint(point.end_ms, point.cost_per_s, firsts_per_s[point.end_ms]) for point in outcome.points)
    return msgspec.structs.replace(outcome, points=points)


def _bootstrap(outcome: Outcome) -> Outcome:
    """Return the outcome of the bootstrap overlay on the windows of another outcome."""
    points = [
        CostPoint(point.end_ms, point.cost_bootstrap_per_s, point.cost_bootstrap_per_s) for point in outcome.points
    ]
    return Outcome(BOOTSTRAP, outcome.mode, tuple(points), windows_incomplete=outcome.windows_incomplete)


def _least(outcome: Outcome) -> list[Outcome]:
    """Return the lower bound as an outcome, on the windows that have one; empty if none has."""
    points = [
        CostPoint(point.end_ms, point.cost_least_per_s, point.cost_bootstrap_per_s)
        for point in outcome.points
        if point.cost_least_per_s is not None
    ]
    return [Outcome(LEAST, outcome.mode, tuple(points))] if points else []


def _why_not_closed(options: BacktestOptions, recording: Recording, settings: Settings) -> str:
    if options.closed_loop_s == 0:
        return "it was switched off (--closed-loop-s 0)"
    if options.is_emulation_forced:
        return ""
    return why_not_emulated(recording.info, settings)


def _closed_tasks(options: BacktestOptions, recording: Recording, settings: Settings) -> list[ClosedLoopTask]:
    first_ms, last_ms = recording.first_ms or 0, recording.last_ms or 0
    duration_s = min(options.closed_loop_s, max((last_ms - first_ms) // SECOND_MS, 1))
    return [
        ClosedLoopTask(
            planner,
            str(recording.path),
            replace(settings.controller, planner=planner, shadow_planners=(), redis_url=None, status_file=None),
            settings.emulator,
            first_ms - first_ms % SECOND_MS,
            duration_s,
            settings.streaming.window_ms,
            settings.streaming.grace_ms,
        )
        for planner in options.planners
    ]


def _open_note(recording: Recording) -> str:
    note = (
        "Open loop: each planner decided on the recorded windows, on its own overlay. Its costs are exact; what its "
        "transitions would have lost or repeated is unknown."
    )
    if MEMBERS.suffix in recording.info.topics:
        note += " Brokers that joined or died during the recording do not change which brokers that overlay has."
    if CLIENTS.suffix not in recording.info.topics:
        note += (
            " The recording holds no clients, so the lifetime of a subscription is unknown and decisions look back "
            "as far as allowed."
        )
    return note


def _closed_note(why_not: str, tasks: Sequence[ClosedLoopTask], settings: Settings) -> str:
    if why_not:
        return f"Closed loop: not run, {why_not}."
    return (
        f"Closed loop: the emulator ran the first {tasks[0].duration_s} s again with seed {settings.run.seed}, and "
        "each planner acted on it."
    )


def _unknown_notes(outcomes: Sequence[Outcome], recording: Recording, aggregated: AggregatedRecording) -> list[str]:
    notes = []
    recorded = next((outcome for outcome in outcomes if outcome.planner == RECORDED), None)
    if recorded is None:
        notes.append(
            f"The cost of the overlay {RECORDED} is unknown: the plans that led to it are not in the recording "
            "(regraft record --all)."
        )
    if recorded is not None and recorded.windows_unknown:
        notes.append(
            f"{recorded.windows_unknown} of {aggregated.windows} windows are of overlays that no recorded plan led to, "
            f"and are not counted for the overlay {RECORDED}."
        )
    if recorded is not None:
        notes += _condition_notes(recorded)
    if aggregated.refused:
        notes.append(
            f"{aggregated.refused} records of telemetry were not used: they could not be decoded, their clock is "
            "wrong, or their broker is neither in the inventory nor was added."
        )
    return notes


def _bound_notes(outcomes: Sequence[Outcome]) -> list[str]:
    """Explain the row of the lower bound if there is one."""
    if not any(outcome.planner == LEAST for outcome in outcomes):
        return []
    return [
        f'The row "{LEAST}": on the same windows no tree can cost less, whatever its links and publishers\' homes; '
        "even the best tree may cost more."
    ]


def _condition_notes(recorded: Outcome) -> list[str]:
    """Return notes that apply to all planners: clients that stay, measured costs of links, changes of traffic."""
    notes = []
    if recorded.subscribers:
        notes.append(
            f"Clients stay by the inventory: an agent could have moved {recorded.movable} of {recorded.subscribers} "
            "subscribers, in a live run; in the open loop planners move none."
        )
    if recorded.links_corrected:
        notes.append(
            f"{recorded.links_corrected} links cost what recorded round trips say, as they do for the controller; the "
            "others cost what the inventory says."
        )
    if recorded.changes_found_ms:
        times = ", ".join(iso_text(time_ms) for time_ms in recorded.changes_found_ms)
        notes.append(f"Traffic changed: planners look back no further than {times}.")
    return notes
