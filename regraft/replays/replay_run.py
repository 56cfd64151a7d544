"""Replay a recording: play it to Kafka and, on request, aggregate it with Spark and decide on it again.

In: a file, settings and options. Out: topics, ``plans.json`` and ``replay.json``, and the outcome. Sending
messages to Kafka belongs to ``producers``, deciding to :mod:`regraft.replays.replay_decisions`.
"""

from __future__ import annotations

import json
import secrets
import shutil
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from regraft.infra.local.supervise import Supervisor
from regraft.infra.process.end_on_sigterm import stop_on_signals
from regraft.infra.process.hold_lock import hold_lock
from regraft.infra.process.show_progress import show_progress
from regraft.infra.process.stack_error import StackError
from regraft.producers.recordings.read_recording import Recording, open_recording
from regraft.producers.recordings.record_topics import RECORD_TYPES
from regraft.producers.recordings.recorded_members import recorded_inventory
from regraft.producers.recordings.replay_recording import (
    INPUTS,
    RecordingReplayer,
    ReplayProgress,
    check_replay_namespace,
    create_replay_topics,
)
from regraft.replays.read_inputs import read_inputs, recorded_settings
from regraft.replays.replay_decisions import (
    Decided,
    DecisionInputs,
    decide_again,
    first_difference,
    plan_difference,
    plans_json,
)
from regraft.replays.watch_replay import StreamedReplay, last_closable_ms
from regraft.run_records.read_topics import read_whole
from regraft.schemas.remote_registry import use_registry
from regraft.schemas.state import StateRow, WindowClosed
from regraft.schemas.status_file import replace_file
from regraft.schemas.topics import STATE, WINDOWS
from regraft.settings.read_sources import Flags
from regraft.settings.run_settings import Settings
from regraft.stages.loop_services import STREAMING, loop_service
from regraft.stages.run_loop import require_kafka

TAIL_MS_MAX = 500  # Held back until the rest is aggregated, to close the last windows.
RECORDS_PER_TRIGGER_MIN = 100
READ_S_MAX = 120.0


@dataclass(frozen=True)
class ReplayOptions:
    """Options that are not settings; ``speed`` None is as fast as possible, times are ms since 1970.

    ``is_all``: also play topics derived from telemetry. ``is_run``: aggregate with Spark and decide again.
    """

    file: Path
    out: Path = Path("out/replay")
    namespace: str = ""
    speed: float | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    is_all: bool = False
    is_run: bool = False


@dataclass
class ReplayOutcome:
    """The outcome of a replay; ``document`` is for programs, ``plans`` for people, ``errors`` lead to exit code 1."""

    document: dict[str, Any]
    plans: list[dict[str, Any]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def replay_run(flags: Flags, settings_file: Path | None, options: ReplayOptions, console: Console) -> ReplayOutcome:
    """Replay and return the outcome. Raises StackError, SettingsError, and KeyboardInterrupt on Ctrl-C."""
    recording = open_recording(options.file)
    given, unknown = recorded_settings(recording, flags, settings_file)
    namespace = options.namespace or f"replay-{secrets.token_hex(4)}"
    require_kafka(given.kafka.access)
    check_replay_namespace(given.kafka.access, namespace, recording, given.kafka.namespace)
    use_registry(namespace=namespace)
    create_replay_topics(given.kafka.access, namespace)
    replayer = RecordingReplayer(
        recording,
        given.kafka.access,
        namespace,
        topics=tuple(RECORD_TYPES) if options.is_all else INPUTS,
        speed=options.speed,
        from_ms=options.from_ms,
        to_ms=options.to_ms,
    )
    with ExitStack() as held:
        if options.is_run:
            held.enter_context(hold_lock(options.out / "replay.lock"))
        run = _ReplayRun(recording, replayer, options, namespace, console)
        with stop_on_signals() as stop:
            outcome = run.put_only(stop) if not options.is_run else run.put_and_run(stop, flags, settings_file, given)
    outcome.errors += recording.warnings
    outcome.document["warnings"] = [
        *outcome.errors,
        *replayer.done.warnings,
        *(f"{name} was recorded but is no longer a setting: it was ignored." for name in unknown),
    ]
    if options.is_run:
        replace_file(options.out / "replay.json", json.dumps(outcome.document, indent=2) + "\n")
    return outcome


class _ReplayRun:
    """One replay, whose namespace has been checked and whose topics exist."""

    def __init__(
        self,
        recording: Recording,
        replayer: RecordingReplayer,
        options: ReplayOptions,
        namespace: str,
        console: Console,
    ) -> None:
        self._recording, self._replayer = recording, replayer
        self._options, self._namespace, self._console = options, namespace, console

    def put_only(self, stop: threading.Event) -> ReplayOutcome:
        """Play everything to Kafka."""
        began_s = time.monotonic()
        self._put(stop, 0)
        return ReplayOutcome(self._document(time.monotonic() - began_s, stop))

    def put_and_run(
        self, stop: threading.Event, flags: Flags, settings_file: Path | None, given: Settings
    ) -> ReplayOutcome:
        """Play everything to Kafka, aggregate it with Spark, and decide on the state rows again.

        Spark reads the backlog with a wide grace, so that no row is late even if partitions are read unevenly. The last
        messages follow, and close the windows that a live run would have closed.
        """
        options = self._options
        inputs = read_inputs(self._recording, options.from_ms, options.to_ms)
        began_s = time.monotonic()
        tail_ms = min(TAIL_MS_MAX, given.streaming.grace_ms) or 1
        tail = self._put(stop, tail_ms)
        put_s = time.monotonic() - began_s
        if stop.is_set():
            raise KeyboardInterrupt
        settings = self._streaming_settings(flags, settings_file, given, len(tail))
        closable_ms = last_closable_ms(self._recording, settings.streaming, options.to_ms)
        run_directory = settings.run.directory
        recorded_inventory(self._recording).save(run_directory / "inventory.json")  # The job accepts only its brokers.
        with Supervisor(patience=settings.run.patience) as supervisor:
            supervisor.start(loop_service(STREAMING, settings))
            streamed = StreamedReplay(supervisor, run_directory, stop)
            done = self._replayer.done
            span_ms = max(closable_ms - done.first_ms, 1)
            with show_progress("Aggregating", span_ms, self._console) as advance:
                streamed.wait_read(done.records, settings.streaming.grace_ms, advance, done.first_ms)
                self._replayer.put_held(tail)
                streamed.wait_closed(closable_ms, advance, done.first_ms)
        late_rows = streamed.late_rows
        decided = self._decide(settings, inputs)
        replace_file(options.out / "plans.json", plans_json(decided.plans).decode())
        outcome = _compared(decided, inputs, self._document(put_s, stop))
        outcome.document["window_end_ms_last"] = closable_ms
        if late_rows:
            outcome.errors.append(
                f"{late_rows} rows arrived too late for their windows: give a longer grace, "
                "--set streaming.catch_up_grace_ms=300000, and replay again."
            )
        return outcome

    def _put(self, stop: threading.Event, hold_back_ms: int) -> list[Any]:
        done = self._replayer.done
        span_ms = max(done.last_ms - done.first_ms, 1)
        with show_progress("Replaying", 100, self._console) as advance:

            def show(progress: ReplayProgress) -> None:
                advance(progress.text, int(progress.done_share * 100))

            tail = self._replayer.put(stop, show, hold_back_ms)
            advance(f"{span_ms / 1000:.0f} s of events", 100)
        return tail

    def _streaming_settings(
        self, flags: Flags, settings_file: Path | None, given: Settings, tail_count: int
    ) -> Settings:
        """Return the settings of the Spark job of this replay, in a fresh run directory."""
        options = self._options
        run_directory = options.out / "run"
        shutil.rmtree(run_directory, ignore_errors=True)
        run_directory.mkdir(parents=True)
        merged: dict[str, dict[str, Any]] = {section: dict(values) for section, values in flags.items()}
        merged.setdefault("run", {})["directory"] = str(run_directory)
        merged.setdefault("kafka", {})["namespace"] = self._namespace
        # The replay must exceed one micro-batch, so that the job treats it as a backlog; the tail must not.
        half = self._replayer.done.records["telemetry"] // 2
        least = max(RECORDS_PER_TRIGGER_MIN, tail_count)
        merged["streaming"] = {
            **merged.get("streaming", {}),
            "records_per_trigger_max": max(least, min(given.streaming.records_per_trigger_max, half)),
            "records_per_broker_max": 0,
            "create_time": True,
        }
        return recorded_settings(self._recording, merged, settings_file)[0]

    def _decide(self, settings: Settings, inputs: DecisionInputs) -> Decided:
        kafka = settings.kafka
        records = read_whole(kafka.access, kafka.namespace, {STATE: StateRow, WINDOWS: WindowClosed}, READ_S_MAX)
        done = self._replayer.done
        with show_progress("Deciding", max(done.last_ms - done.first_ms, 1), self._console) as advance:
            return decide_again(
                records,
                inputs,
                self._recording.info.inventory,
                settings.controller,
                settings.streaming.grace_ms,
                lambda now_ms, plans: advance(f"{plans} plans", max(now_ms - done.first_ms, 0)),
            )

    def _document(self, seconds: float, stop: threading.Event) -> dict[str, Any]:
        done = self._replayer.done
        total = done.records.total()
        return {
            "file": str(self._options.file),
            "namespace": self._namespace,
            "records": total,
            "topics": dict(sorted(done.records.items())),
            "first_ms": done.first_ms,
            "last_ms": done.last_ms,
            "seconds": round(seconds, 3),
            "records_per_s": round(total / seconds) if seconds else None,
            "is_whole": not stop.is_set(),
        }


def _compared(decided: Decided, inputs: DecisionInputs, document: dict[str, Any]) -> ReplayOutcome:
    """Return the outcome, with each plan compared to the recorded one."""
    before = {plan.plan for plan in inputs.plans_known}
    recorded = sorted(
        (plan for plan in inputs.recorded.values() if plan.plan not in before), key=lambda plan: plan.epoch_to
    )
    same, difference = first_difference(decided.plans, recorded)
    plans = [
        {
            "plan": plan.plan,
            "phase": str(plan.phase),
            "window_end_ms": plan.window_end_ms,
            "links": len(plan.links_added),
            "clients": len(plan.moves),
            "ring_ids": len(plan.id_moves),
            "cost_before_per_s": plan.cost_before_per_s,
            "cost_predicted_per_s": plan.cost_predicted_per_s,
            "cost_observed_per_s": plan.cost_observed_per_s,
            "difference": _difference_text(plan.plan, plan, inputs),
        }
        for plan in decided.plans
    ]
    costs = {
        **document,
        "windows": decided.windows,
        "windows_cut": decided.windows_cut,
        "plans": plans,
        "plans_recorded": len(recorded),
        "plans_same": same if inputs.recorded else None,
        "first_difference": difference,
        "brokers_imagined_from_ms": decided.simulated_from_ms,
    }
    return ReplayOutcome(costs, plans)


def _difference_text(name: str, plan: Any, inputs: DecisionInputs) -> str:
    if not inputs.recorded:
        return "nothing recorded"
    other = inputs.recorded.get(name)
    return "not proposed then" if other is None else plan_difference(plan, other) or "the same"


def require_span(from_ms: int | None, to_ms: int | None) -> None:
    """Raise StackError if the span of time is empty."""
    if from_ms is not None and to_ms is not None and from_ms >= to_ms:
        raise StackError("--from must be earlier than --to.")
