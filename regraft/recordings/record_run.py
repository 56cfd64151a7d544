"""Record a run: Kafka's topics into files, with progress, until asked to stop.

In: settings and options. Out: files, each with a description of the run, and what was recorded. Reading Kafka and
writing files belong to ``producers``.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

import regraft
from regraft.infra.process.check_disk import DiskFullError
from regraft.infra.process.end_on_sigterm import stop_on_signals
from regraft.infra.process.find_port import LOOPBACK
from regraft.infra.process.serve_metrics import serve_metrics
from regraft.infra.process.stack_error import StackError
from regraft.overlay.inventory.inventory import InventoryError
from regraft.overlay.read_inventory import load_inventory
from regraft.producers.recordings.record_topics import RECORD_TYPES, RecorderMetrics, RecordingProgress, TopicRecorder
from regraft.producers.recordings.write_recording import RecordedRun, RecordingCounts, RecordingLimits, RecordingWriter
from regraft.run_records.describe_run import find_commit
from regraft.schemas.parse_text import parse_json_object
from regraft.schemas.remote_registry import use_registry
from regraft.schemas.topics import CLIENTS, MEMBERS, ORDERS, TELEMETRY, Topic
from regraft.settings.place_demo import agents_of
from regraft.settings.run_settings import Settings
from regraft.stages.run_stage import SETTINGS_FILE

RECORDED_SECTIONS = ("run", "demo", "emulator", "streaming", "controller")  # Without secrets and machine names.
DEFAULT_TOPICS = (TELEMETRY, CLIENTS, ORDERS, MEMBERS)
LINE_INTERVAL_S = 10.0


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """Options that are not settings.

    ``topics``: what to record, by default telemetry and registers. ``is_all``: also the topics derived from these.
    ``to_end``: stop at the newest record. ``metrics_port``, ``metrics_host``: where /metrics, /health and /ready are
    served, None for no port.
    """

    out: Path
    is_all: bool = False
    from_start: bool = False
    to_end: bool = False
    duration_s: float | None = None
    limits: RecordingLimits = field(default_factory=RecordingLimits)
    metrics_port: int | None = None
    metrics_host: str = LOOPBACK
    topics: tuple[Topic, ...] = DEFAULT_TOPICS


def record_run(settings: Settings, options: RecordOptions, console: Console) -> dict[str, Any]:
    """Record until Ctrl-C, SIGTERM or the end of the set time; return what was recorded. Raises StackError."""
    use_registry(namespace=settings.kafka.namespace)
    topics = tuple(RECORD_TYPES) if options.is_all else options.topics
    writer = RecordingWriter(
        options.out,
        recorded_run(settings, topics),
        {topic.suffix: RECORD_TYPES[topic] for topic in topics},
        options.limits,
        time.time_ns() // 1_000_000,
    )
    kafka = settings.kafka
    began_s = time.monotonic()
    full = ""
    recorder = TopicRecorder(
        kafka.access,
        kafka.namespace,
        topics,
        writer,
        from_start=options.from_start,
        to_end=options.to_end,
        agents=agents_of(settings),
    )
    with closing(recorder), stop_on_signals() as stop, ExitStack() as held:
        metrics = RecorderMetrics()
        if options.metrics_port is not None:
            held.enter_context(
                serve_metrics(metrics.registry, options.metrics_host, options.metrics_port, recorder.health)
            )
        recorder.connect()
        try:
            writer.begin(time.monotonic())
            with _RecordScreen(console) as screen:

                def show(progress: RecordingProgress) -> None:
                    screen.show(progress)
                    _measure(metrics, progress, recorder)

                recorder.run(stop, options.duration_s, show)
            writer.close()
        except DiskFullError as error:
            full = str(error)
    return _outcome(writer.counts, recorder, options.out, time.monotonic() - began_s, full)


def recorded_run(settings: Settings, topics: tuple[Topic, ...]) -> RecordedRun:
    """Return the description of the run for the files: its topics, settings, inventory and version."""
    file = settings.controller.inventory_path
    try:
        inventory = load_inventory(file)
    except InventoryError as error:
        raise StackError(
            f"{error}: a recording needs the inventory of the run; name its directory with --set run.directory=DIR."
        ) from error
    return RecordedRun(
        namespace=settings.kafka.namespace,
        topics=tuple(topic.suffix for topic in topics),
        settings=_run_settings(settings),
        inventory=replace(inventory, agent_of={}).to_json(),  # The recording merges the topics of all agents.
        version=regraft.__version__,
        commit=find_commit(Path(__file__).parent) or "unknown",
    )


def _run_settings(settings: Settings) -> dict[str, Any]:
    """Return the run's settings: those in its directory, else the recorder's."""
    file = settings.run.directory / SETTINGS_FILE
    try:
        stored = parse_json_object(file.read_text(encoding="utf-8"))
        return {name: dict(stored[name]) for name in RECORDED_SECTIONS if name in stored}
    except (OSError, ValueError, TypeError):
        stored = settings.to_record()
    return {name: stored[name] for name in RECORDED_SECTIONS}


def _measure(metrics: RecorderMetrics, progress: RecordingProgress, recorder: TopicRecorder) -> None:
    metrics.records.set(progress.records)
    metrics.bytes.set(progress.bytes)
    metrics.stalled.set(len(recorder.health.stalled))
    for topic, count in recorder.missed.items():
        metrics.missed.labels(topic).set(count)


def _outcome(counts: RecordingCounts, recorder: TopicRecorder, out: Path, seconds: float, full: str) -> dict[str, Any]:
    warnings = [full] if full else []
    for topic, count in counts.unread.items():
        warnings.append(f"{count} records of {topic} could not be decoded: they are kept unchanged.")
    for topic, count in recorder.missed.items():
        warnings.append(f"{count} records of {topic} were deleted by Kafka before they were read.")
    for topic in sorted(recorder.stalls):
        read_on = "they may be missing" if topic in recorder.health.stalled else "another consumer read them"
        warnings.append(f"Records of {topic} did not arrive for some time, although Kafka had them: {read_on}.")
    return {
        "file": str(out),
        "parts": counts.parts,
        "records": counts.records,
        "topics": dict(sorted(counts.messages.items())),
        "bytes": counts.bytes,
        "seconds": round(seconds, 3),
        "unread": dict(counts.unread),
        "missed": dict(recorder.missed),
        "unchecked": counts.unchecked,
        "is_disk_full": bool(full),
        "warnings": warnings,
    }


class _RecordScreen:
    """One live line on a terminal, else a plain line every LINE_INTERVAL_S."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(Text("recording"), console=console, transient=True, auto_refresh=False)
        self._shown_s = -LINE_INTERVAL_S

    def __enter__(self) -> _RecordScreen:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live.is_started:
            self._live.stop()

    def show(self, progress: RecordingProgress) -> None:
        """Show the recording's progress."""
        away = ", Kafka is unavailable" if progress.is_kafka_away else ""
        text = (
            f"{progress.file_name}: {progress.records} records, {progress.bytes / 1e6:.1f} MB, "
            f"{progress.records_per_s:.0f} records/s, {progress.seconds:.0f} s{away}"
        )
        if self._live.is_started:
            self._live.update(Text(text), refresh=True)
        elif progress.seconds - self._shown_s >= LINE_INTERVAL_S:
            self._shown_s = progress.seconds
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)
