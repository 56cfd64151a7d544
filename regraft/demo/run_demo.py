"""Run the whole loop on this machine, show it, stop it in order, and write the results.

In: settings. Out: ``summary.json``, ``run.json`` and ``report.html`` in the output directory, and the summary. The
servers belong to ``infra``, the stages to their packages, the figures to ``collect_run`` and ``summary``.
"""

from __future__ import annotations

import json
import random
import secrets
import shutil
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import structlog
from rich.console import Console

from regraft.controller.kinds.find_kind import kind_of
from regraft.demo.demo_flags import chaos_flags, demo_flags
from regraft.demo.disturb_services import DisturbSchedule, disturbances
from regraft.demo.print_dashboard import print_dashboard
from regraft.infra.local.local_stack import BOOTSTRAP_VARIABLE, LocalStack, RunDirInUseError
from regraft.infra.local.service import ServiceEvent, ServiceEventKind
from regraft.infra.local.supervise import Supervisor
from regraft.infra.process.hold_lock import LockHeldError, hold_lock
from regraft.infra.process.show_progress import show_progress
from regraft.infra.process.write_private import write_private
from regraft.overlay.inventory.inventory import Inventory
from regraft.producers.recordings.write_recording import check_out
from regraft.recordings.record_run import RecordOptions, record_run
from regraft.run_records.collect_run import (
    StoredRun,
    bills_of,
    changes_found_ms,
    compare_overlays,
    cost_shadows,
    first_full_window_cost,
    plan_outcomes,
    read_stored_run,
    window_costs,
)
from regraft.run_records.describe_run import describe_run
from regraft.run_records.run_record import RunRecord, ServiceUse
from regraft.run_records.summary import summarise
from regraft.schemas.status_file import replace_file
from regraft.settings.place_demo import check_brokers, ensure_inventory
from regraft.settings.read_sources import Flags, merged
from regraft.settings.run_settings import Settings, SettingsError, load_settings
from regraft.settings.scenarios import CHORD, scenario_of
from regraft.settings.settings_example import servers_text
from regraft.settings.shape_topics import create_run_topics
from regraft.stages.loop_services import (
    ALERTS,
    CONTROLLER,
    DASHBOARD,
    EMULATOR,
    SHOWN_NAMES,
    STREAMING,
    start_fresh,
)
from regraft.stages.observe_run import RunObserver
from regraft.stages.report_restarts import report_restarts
from regraft.stages.show_run import RunScreen

TICK_S = 0.5
SETTLE_POLL_S = 0.2
EXTENSION_S_MAX = 300.0
FOLLOWED_S_MAX = 60.0  # What a busy machine needs on top of `--quick` until a plan has followed the shift.
START_STEPS = ("Kafka and Valkey", "topics", *SHOWN_NAMES.values())
SECRET_BYTES = 32
CLIENT_FILE = "client.toml"
KAFKA = "kafka"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Options that are not settings: where results go, and what is disturbed, shown, secured and recorded.

    ``kills``: disturb services, brokers and links. ``dashboard``: serve it, with a secret made for this run if the
    settings have none. ``secure``: run the servers with TLS, logins and access lists. ``recording``: the file to which
    all topics are written at the end.
    """

    out_directory: Path = Path("out/demo")
    kills: bool = False
    quiet: bool = False
    dashboard: bool = False
    secure: bool = False
    recording: Path | None = None


def run_demo(flags: Flags, settings_file: Path | None, options: DemoOptions, console: Console) -> dict[str, Any]:
    """Run the demo and return its summary; everything it started has ended when this returns or raises.

    Raises SettingsError and RecordingFileError before it starts anything, StackError if something cannot run,
    KeyboardInterrupt on Ctrl-C.
    """
    if options.recording is not None:
        check_out(options.recording)
    wanted = load_settings(flags, settings_file)
    flags = demo_flags(flags, wanted)
    if options.dashboard and not (wanted.dashboard.secret or wanted.dashboard.secret_file):
        flags = merged(flags, {"dashboard": {"secret": secrets.token_urlsafe(SECRET_BYTES)}})
    if options.kills:
        flags = chaos_flags(flags, wanted)
    _check_rate(flags, wanted)
    _check_shift(check_brokers(load_settings(flags, settings_file)))
    out = options.out_directory
    with ExitStack() as held:
        try:
            held.enter_context(hold_lock(out / "demo.lock"))
        except LockHeldError as error:
            raise RunDirInUseError(
                f"A demo is running in {out} (process {error.holder_pid or 'unknown'}): "
                "wait for it, or choose another directory with --out."
            ) from error
        shutil.rmtree(out / "run", ignore_errors=True)
        for name in ("summary.json", "run.json", "report.html"):
            (out / name).unlink(missing_ok=True)
        record, settings = _run(flags, settings_file, options, console)
    from regraft.report_page.report import build_report  # Matplotlib must not delay the start.

    summary = summarise(record)
    facts = describe_run(settings)
    _write_json(out / "run.json", facts)
    replace_file(out / "report.html", build_report(record, facts))
    _write_json(out / "summary.json", summary)
    return summary


def _run(
    flags: Flags, settings_file: Path | None, options: DemoOptions, console: Console
) -> tuple[RunRecord, Settings]:
    events: list[ServiceEvent] = []
    with ExitStack() as running:
        with show_progress("Starting", len(START_STEPS), Console(stderr=True, quiet=options.quiet)) as advance:
            advance(START_STEPS[0], 0)
            stack = running.enter_context(_local_stack(load_settings(flags, settings_file), options, events))
            settings = load_settings(_stack_flags(flags, stack), settings_file)
            if options.secure:  # The file holds no passwords, only the names of files that do.
                write_private(stack.run_dir / "security" / CLIENT_FILE, servers_text(settings).encode())
            inventory = ensure_inventory(settings)
            advance(START_STEPS[1], 1)
            create_run_topics(settings)
            names = [CONTROLLER, STREAMING, ALERTS, *[DASHBOARD] * options.dashboard]
            start_fresh(stack.add, names, settings, lambda name: advance(SHOWN_NAMES[name], _step_of(name)))
        if options.dashboard and not options.quiet:
            print_dashboard(settings, console)
        reporter = running.enter_context(report_restarts(settings.kafka.access, settings.kafka.namespace))
        stack.supervisor.listen(reporter.take)
        kills = _disturb_schedule(settings, stack.supervisor) if options.kills else None
        run = _DemoRun(settings, inventory, stack.supervisor, events, kills)
        screen = running.enter_context(RunScreen(console, quiet=options.quiet))
        record = run.run(screen)
        if options.recording is not None:
            every = RecordOptions(options.recording, is_all=True, from_start=True, to_end=True)
            record_run(settings, every, Console(stderr=True, quiet=True))
        return record, settings


def _step_of(stage: str) -> int:
    return START_STEPS.index(SHOWN_NAMES[stage])


def _local_stack(settings: Settings, options: DemoOptions, events: list[ServiceEvent]) -> LocalStack:
    return LocalStack(
        options.out_directory / "run",
        on_event=events.append,
        secure=options.secure,
        kafka_security=settings.kafka.security,
        redis_security=settings.redis.security,
        patience=settings.run.patience,
    )


def _check_rate(flags: Flags, settings: Settings) -> None:
    """Raise SettingsError if a rate of publishers is given for a scenario that has none."""
    rate_per_s = flags.get("emulator", {}).get("workload", {}).get("notifications_per_s")
    if rate_per_s is not None and settings.demo.scenario == CHORD:
        what = f"emulator.workload.notifications_per_s (--rate) is {rate_per_s}"
        raise SettingsError([f"{what}: the scenario chord replays check-ins at a fixed rate, so leave it out"])


def _check_shift(settings: Settings) -> None:
    if not scenario_of(settings.demo.scenario).has_shift:
        return
    shift_s = settings.emulator.workload.regime_change_s
    if shift_s is not None and shift_s >= settings.demo.running_s:
        raise SettingsError(
            [
                f"emulator.workload.regime_change is at {shift_s:g} s, but the demo runs {settings.demo.running_s:g} "
                "s: shift the interests earlier, or increase demo.running_s"
            ]
        )


def _disturb_schedule(settings: Settings, supervisor: Supervisor) -> DisturbSchedule:
    """Return a schedule of disturbances, drawn by this run's seed, that lasts as long as random outages do."""
    demo, rng = settings.demo, random.Random(f"disturbances {settings.run.seed}")
    kinds = disturbances(supervisor.memory_bytes_max)
    until_s = settings.emulator.chaos_until_s or demo.running_s
    return DisturbSchedule(supervisor, demo.kill_every_s, kinds, rng, until_s)


def _stack_flags(flags: Flags, stack: LocalStack) -> Flags:
    """Return the flags with this stack's addresses and directory; as flags, no file or variable overrides them."""
    kafka = {"bootstrap": stack.bootstrap, "security": asdict(stack.kafka_security)}
    redis = {"url": stack.redis_url, "security": asdict(stack.redis_security)}
    if stack.environment().get(BOOTSTRAP_VARIABLE) and not (stack.run_dir / "kafka").exists():
        # An external Kafka may hold the windows and plans of earlier runs, from which this run's must stay separate.
        kafka["namespace"] = f"regraft-demo-{int(time.time())}"
    return merged(flags, {"run": {"directory": str(stack.run_dir)}, "kafka": kafka, "redis": redis})


class _DemoRun:
    """The demo from the moment that all services run until the results are collected."""

    def __init__(
        self,
        settings: Settings,
        inventory: Inventory,
        supervisor: Supervisor,
        events: list[ServiceEvent],
        kills: DisturbSchedule | None,
    ) -> None:
        self._settings = settings
        self._inventory = inventory
        self._kind = kind_of(inventory, settings.controller)
        self._supervisor = supervisor
        self._events = events
        self._events_shown = len(events)
        self._observer = RunObserver(settings.run.directory)
        self._is_shift_shown = False
        self._outages_shown = 0
        self._expects_shift = scenario_of(settings.demo.scenario).has_shift
        self._use: dict[str, ServiceUse] = {}
        self._ended_services: dict[str, str] = {}  # A service that has ended for good -> how it ended.
        self._started_s = time.time()
        self._running_s = settings.demo.running_s
        self._kills = kills

    def run(self, screen: RunScreen) -> RunRecord:
        """Let traffic run, stop the loop in order, and collect what it stored."""
        # A service that ends for good ends the run.
        while not self._ended_services and self._is_to_run() and self._supervisor.wait_end(EMULATOR, TICK_S) is None:
            if self._kills is not None and (text := self._kills.act(self._elapsed_s, self._newest_window_ms)):
                screen.report(text, self._elapsed_s)
            self._show(screen, "running")
        if self._kills is not None and (text := self._kills.resume()):
            screen.report(text, self._elapsed_s)
        # The controller stops first: it completes the transition in progress, which needs the brokers.
        self._show(screen, "finishing the plan in progress")
        self._stop(CONTROLLER)
        traffic_end_ms = int(time.time() * 1000)
        self._show(screen, "draining")
        self._stop(EMULATOR)
        self._await_last_window(screen)
        self._stop(STREAMING)
        self._show(screen, "collecting")
        self._measure()
        kafka, controller, stored = self._settings.kafka, self._settings.controller, StoredRun()
        if KAFKA not in self._ended_services:
            stored = read_stored_run(kafka.access, kafka.namespace, self._kind, controller.assembly, controller.links)
        return self._record(stored, traffic_end_ms)

    def _is_to_run(self) -> bool:
        """Return True while traffic continues: for as long as set, then until the loop shows what the run is to show.

        That is a plan after the shift, and recovery from disturbances, outages and bursts; the extra time is bounded.
        """
        if self._elapsed_s < self._running_s:
            return True
        emulator = self._settings.emulator
        has_outages = bool(emulator.outages) or emulator.chaos_every_s is not None
        has_bursts = emulator.workload.burst_count is not None
        has_shown = self._observer.has_followed_shift or not self._expects_shift
        if has_bursts:
            has_shown &= not self._observer.is_congested
        if self._kills is not None:
            has_shown &= self._kills.is_over(self._elapsed_s, self._newest_window_ms)
        if has_outages:
            has_shown &= self._observer.is_whole
        extension_s_max = EXTENSION_S_MAX if self._kills is not None or has_outages or has_bursts else FOLLOWED_S_MAX
        pause_s = max(self._observer.returns_ms / 1000 - self._started_s - self._running_s, 0.0)
        pause_s_max = self._settings.controller.members.return_pause_ms_max / 1000
        end_s_max = self._running_s + min(pause_s, pause_s_max) + extension_s_max
        return not has_shown and self._elapsed_s < end_s_max

    @property
    def _newest_window_ms(self) -> int:
        return max(self._observer.windows, default=0)

    @property
    def _elapsed_s(self) -> float:
        return time.time() - self._started_s

    def _await_last_window(self, screen: RunScreen) -> None:
        """Wait, within a bound, until the last window that the brokers' last batches can close is written."""
        streaming = self._settings.streaming
        closable_ms = int(time.time() * 1000) - streaming.grace_ms - int(self._settings.emulator.flush_ms)
        last_end_ms = closable_ms // streaming.window_ms * streaming.window_ms
        patience_s = (2 * streaming.window_ms + streaming.grace_ms) / 1000
        deadline_s = self._elapsed_s + min(patience_s, self._settings.demo.drain_s_max)
        while self._elapsed_s < deadline_s and self._observer.written_until_ms < last_end_ms:
            time.sleep(SETTLE_POLL_S)
            self._show(screen, "closing the last window")

    def _stop(self, name: str) -> None:
        self._measure()  # the supervisor forgets a service once it has stopped it
        self._supervisor.stop_service(name)
        self._observer.refresh()

    def _measure(self) -> None:
        for name, memory_bytes_max in self._supervisor.memory_bytes_max.items():
            self._use[name] = ServiceUse(name, self._supervisor.restarts(name), memory_bytes_max)

    def _show(self, screen: RunScreen, stage: str) -> None:
        for event in self._observer.refresh():
            screen.report(event.text, max(event.time_ms / 1000 - self._started_s, 0.0))
        if not self._is_shift_shown and self._observer.regime_change_ms is not None:
            self._is_shift_shown = True
            screen.report("the interests shift", self._observer.regime_change_ms / 1000 - self._started_s)
        for time_ms, text in self._observer.outage_notes[self._outages_shown :]:
            screen.report(str(text), max(int(str(time_ms)) / 1000 - self._started_s, 0.0))
            self._outages_shown += 1
        while self._events_shown < len(self._events):
            self._report_service(self._events[self._events_shown], screen)
            self._events_shown += 1
        self._measure()
        screen.show(self._observer.frame(stage, self._elapsed_s, self._running_s, tuple(self._use.values())))

    def _report_service(self, event: ServiceEvent, screen: RunScreen) -> None:
        if event.kind is ServiceEventKind.GAVE_UP:
            how = f"{event.service} exited with code {event.exit_code} and will not be restarted"
            self._ended_services[event.service] = f"{how}: see {self._settings.run.directory}/logs/{event.service}.log"
        elif event.kind in (ServiceEventKind.DIED, ServiceEventKind.RESTARTED):
            screen.report(event.text, event.time_s - self._started_s)

    def _record(self, stored: StoredRun, traffic_end_ms: int) -> RunRecord:
        observer = self._observer
        shadow_costs = {end_ms: window.shadows_per_s for end_ms, window in observer.windows.items()}
        windows = window_costs(stored, self._kind, shadow_costs)
        return RunRecord(
            seed=self._settings.run.seed,
            inventory=self._inventory,
            started_ms=int(self._started_s * 1000),
            ended_ms=int(time.time() * 1000),
            traffic_end_ms=traffic_end_ms,
            expects_regime_change=self._expects_shift,
            ledger=observer.ledger,
            windows=windows,
            windows_incomplete=sum(not window.complete for window in windows),
            plans=stored.plans,
            plan_outcomes=plan_outcomes(stored.events),
            planner=self._settings.controller.planner,
            shadows=cost_shadows(observer.shadows, stored, self._kind, traffic_end_ms),
            decision_times=observer.decision_times,
            horizon=observer.horizon,
            users=observer.users,
            bursts=observer.bursts,
            mobile=observer.mobile,
            first_window_cost_per_s=first_full_window_cost(stored, self._kind, observer.traffic_start_ms),
            bills=bills_of(stored, self._kind, observer.traffic_start_ms, traffic_end_ms),
            comparison=compare_overlays(stored, self._kind, traffic_end_ms),
            regime_change_ms=observer.regime_change_ms,
            changes_found_ms=changes_found_ms(stored.events),
            links_corrected=stored.links_corrected(),
            refusals=observer.refusals,
            latencies_ms=tuple(observer.latencies_ms.values()),
            emulator_behind_ms_max=observer.behind_ms_max,
            withheld_count=int(observer.emulator.get("not_published", 0)),
            telemetry_records=stored.telemetry_records,
            services=tuple(self._use.values()),
            memory_total_bytes_max=self._supervisor.memory_total_bytes_max,
            given_up=tuple(self._ended_services.values()),
            outages=observer.timeline(stored.events, stored.plans, self._kills.counts if self._kills else {}),
        )


def _write_json(file: Path, document: Mapping[str, Any]) -> None:
    replace_file(file, json.dumps(document, indent=2) + "\n")
