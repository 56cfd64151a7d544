"""Run the whole loop for hours of its own clock and check that nothing grows without bound and the ledger stays clean.

Kafka, Spark, Valkey, controller and emulator run for real on this machine, on a clock that is ``--speed`` times as
fast: subscriptions come and go, interests shift every 20 minutes of the clock, bursts at three times the rate come
every 7. Everything that may grow is sampled every two seconds: memory of each process, records and bytes of each topic
(retention is scaled with the run), Valkey, Spark's state and checkpoint, logs, queues. Exits with 1 if something grows,
if the ledger is not clean, or if no plan was executed.

Give it at least ten minutes of wall time: until then Spark's checkpoint (100 micro-batches are kept) and Java's heap
are still filling up. On two idle cores the emulator bounds the speed: it needs half a core at 24 times the speed.

    python -m benchmarks.soak --hours 2 --speed 20 [--brokers 20] [--json FILE] [--chart FILE.svg]
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.soak_chart import draw_soak
from benchmarks.soak_growth import FLAT, GROWS, Growth, measure_growth
from benchmarks.soak_samples import CPU, Row, SoakSampler
from benchmarks.soak_settings import HEAP_MB, SoakPlan, kafka_properties, soak_flags, soak_topics
from regraft.infra.kafka.create_topics import create_topics
from regraft.infra.local.kafka_server import HEAP_MB as KAFKA_HEAP_MB
from regraft.infra.local.local_stack import LocalStack
from regraft.infra.local.service import ServiceEventKind
from regraft.infra.process.find_port import choose_ports
from regraft.infra.process.measured_figures import Figure, run_facts, write_figures
from regraft.infra.process.show_progress import show_progress
from regraft.infra.process.stack_error import StackError
from regraft.schemas.live_view import LiveView, LiveViewError
from regraft.settings.place_demo import ensure_inventory
from regraft.settings.run_settings import Settings, load_settings
from regraft.stages.loop_services import CONTROLLER, EMULATOR, STREAMING, loop_service
from regraft.stages.observe_run import parse_ledger, read_status, read_view

SAMPLE_EVERY_S = 2.0
WARM_UP_SHARE = 0.4  # Caches fill, Java compiles, the first retention passes.
NATIVE_MB = 512  # Memory of a Java process outside its heap: code, metaspace, threads, buffers.
MB = 1_000_000
LIVE_HEAP = "streaming: live heap bytes"
# By kind of series: unit, and the share of the mean and the amount below which growth over the run is ignored.
TOLERANCES = {
    "memory": ("bytes", 0.03, 2.0 * MB),
    "topic bytes": ("bytes", 0.15, 2.0 * MB),
    "topic records": ("records", 0.15, 2_000.0),
    "valkey": ("", 0.05, 0.5 * MB),
    "checkpoint": ("", 0.10, 100.0),
    "spark local": ("bytes", 0.25, 8.0 * MB),
    "valkey files": ("bytes", 0.10, 2.0 * MB),
    "logs": ("bytes", 0.50, 1.0 * MB),
    "kafka logs": ("bytes", 0.50, 48.0 * MB),
    "streaming": ("", 0.10, 5_000.0),
    "controller": ("", 0.50, 1_000.0),
    "emulator": ("", 0.50, 5_000.0),
}
BOUNDS = {
    "memory: streaming/java": (HEAP_MB + NATIVE_MB) * 1024.0 * 1024,
    "memory: kafka/java": (KAFKA_HEAP_MB + NATIVE_MB) * 1024.0 * 1024,
    LIVE_HEAP: HEAP_MB * 1024.0 * 1024 * 0.4,  # Live objects settle between 80 and 150 MB.
    "topic bytes: plans": 64.0 * MB,
    "valkey files: bytes": 192.0 * MB,  # Valkey rewrites its append-only file once that exceeds 64 MB and has doubled.
}


@dataclass
class SoakRun:
    """Observations of a run: rows by hours of its clock since the start, and the documents at its end."""

    plan: SoakPlan
    rows: list[tuple[float, Row]] = field(default_factory=list)
    unhealthy: dict[str, int] = field(default_factory=dict)
    restarts: dict[str, int] = field(default_factory=dict)
    emulator: Mapping[str, Any] = field(default_factory=dict)
    streaming: Mapping[str, Any] = field(default_factory=dict)
    view: LiveView | None = None

    @property
    def hours(self) -> float:
        """How many hours of the clock were sampled."""
        return self.rows[-1][0] if self.rows else 0.0

    def counted(self, name: str) -> int:
        """Return one of the controller's counts; 0 if there is no live view yet."""
        return 0 if self.view is None else int(getattr(self.view, name))

    def growths(self) -> list[Growth]:
        """Return the growth of each series after the warm-up."""
        begin_h = WARM_UP_SHARE * self.hours
        names = dict.fromkeys(name for _, row in self.rows for name in row if not name.startswith(CPU))
        return [self._growth(name, begin_h) for name in names]

    def cores(self) -> dict[str, float]:
        """Return how many cores each service used on average after the warm-up."""
        rows = [(hours, row) for hours, row in self.rows if hours >= WARM_UP_SHARE * self.hours]
        used: dict[str, float] = {}
        for name in dict.fromkeys(name for _, row in rows for name in row if name.startswith(CPU)):
            seen = [(hours, row[name]) for hours, row in rows if name in row]
            wall_s = (seen[-1][0] - seen[0][0]) * 3_600 / self.plan.speed
            used[name.removeprefix(CPU)] = (seen[-1][1] - seen[0][1]) / wall_s if wall_s else 0.0
        return used

    def _growth(self, name: str, begin_h: float) -> Growth:
        samples = [(hours, row[name]) for hours, row in self.rows if hours >= begin_h and name in row]
        unit, share, amount = TOLERANCES[name.split(":")[0]]
        unit = unit or name.rsplit(" ", 1)[-1]
        return measure_growth(name, unit, samples, tolerance_share=share, tolerance=amount, bound=BOUNDS.get(name))

    def errors(self, growths: Sequence[Growth]) -> list[str]:
        """Return why the run failed, one sentence each."""
        ledger = parse_ledger(self.emulator)
        errors = [
            f"{each.name} grew by {_amount(each.growth, each)} while it was measured"
            for each in growths
            if each.verdict == GROWS
        ]
        wrong = {"lost": ledger.lost, "repeated": ledger.repeated, "out of order": ledger.out_of_order}
        errors += [f"{count} notifications {what}" for what, count in wrong.items() if count]
        if ledger.unexpected:
            errors.append(f"{ledger.unexpected} unexpected deliveries")
        if not ledger.final:
            errors.append("the ledger is not final: the emulator did not settle")
        if not self.counted("plans_completed"):
            errors.append("no plan was executed")
        errors += [f"{service} was restarted {count} times" for service, count in self.restarts.items() if count]
        return errors + [f"unhealthy {count} times: {what}" for what, count in self.unhealthy.items()]


def main() -> None:
    arguments = _arguments()
    plan = SoakPlan(arguments.hours, arguments.speed, arguments.brokers, arguments.seed, arguments.rate)
    print(
        f"{plan.hours:g} h of the clock at {plan.speed:g} times the speed: {plan.wall_s / 60:.1f} min, windows of "
        f"{plan.window_ms / 1000:g} s, topics kept for {plan.retention_s:.0f} s of wall time"
    )
    try:
        if arguments.keep:
            run = soak(plan, arguments.keep)
        else:
            with tempfile.TemporaryDirectory() as folder:
                run = soak(plan, Path(folder) / "run")
    except StackError as error:
        sys.exit(str(error))
    growths = run.growths()
    _print(run, growths)
    if arguments.json:
        facts = run_facts({**asdict(plan), "window_ms": plan.window_ms, "retention_s": plan.retention_s}, plan.seed)
        write_figures(arguments.json, facts, figures(run, growths))
    if arguments.keep:
        lines = (json.dumps({"hours": hours, **row}) for hours, row in run.rows)
        (arguments.keep / "rows.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    if arguments.chart:
        draw_soak(arguments.chart, run.rows, () if run.view is None else run.view.cost, WARM_UP_SHARE * run.hours)
    errors = run.errors(growths)
    for wrong in errors:
        print(f"Failed: {wrong}.")
    sys.exit(1 if errors else 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=2.0, help="hours of the run's clock")
    parser.add_argument("--speed", type=float, default=20.0, help="seconds of the clock in one of wall time")
    parser.add_argument("--brokers", type=int, default=20)
    parser.add_argument("--rate", type=float, default=0.5, help="notifications per second of each of 49 publishers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--chart", type=Path, help="draw the series into this SVG")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="run in this directory, leave it, and keep all rows")
    return parser.parse_args()


def soak(plan: SoakPlan, directory: Path) -> SoakRun:
    """Run the loop to its end and return the observations.

    Raises StackError if a service ends for good. Everything started has ended when this returns or raises.
    """
    run = SoakRun(plan)
    ports = dict(zip((EMULATOR, STREAMING, CONTROLLER), choose_ports(3), strict=True))
    with LocalStack(directory, kafka_properties=kafka_properties(plan)) as stack:
        flags = soak_flags(plan, int(time.time() * 1000), ports)
        flags["run"]["directory"] = str(stack.run_dir)
        flags |= {"kafka": {"bootstrap": stack.bootstrap}, "redis": {"url": stack.redis_url}}
        settings = load_settings(flags)
        ensure_inventory(settings)
        create_topics(settings.kafka.access, soak_topics(plan), settings.kafka.namespace)
        for name in (CONTROLLER, STREAMING, EMULATOR):
            stack.add(loop_service(name, settings))
        sampler = SoakSampler(stack, settings.kafka.namespace, ports)
        try:
            _watch(run, stack, sampler, settings)
        finally:
            sampler.close()
        run.unhealthy = dict(sampler.unhealthy)
        run.restarts = {name: stack.supervisor.restarts(name) for name in (CONTROLLER, STREAMING, EMULATOR)}
        # In the demo's order: the controller first, so that it can finish the plan in progress while brokers still run.
        for name in (CONTROLLER, EMULATOR, STREAMING):
            stack.supervisor.stop_service(name)
        _read_documents(run, settings)
    return run


def _watch(run: SoakRun, stack: LocalStack, sampler: SoakSampler, settings: Settings) -> None:
    clock, wall_s = settings.run.clock, run.plan.wall_s
    started_s, started_ms = time.monotonic(), clock.now_ms()
    with show_progress("Soak", int(wall_s), Console(stderr=True)) as advance:
        while (elapsed_s := time.monotonic() - started_s) < wall_s:
            hours = (clock.now_ms() - started_ms) / 3_600_000
            run.rows.append((hours, sampler.sample()))
            _read_documents(run, settings)
            advance(_progress_text(run, hours), int(elapsed_s))
            gone = [event for event in stack.supervisor.events if event.kind is ServiceEventKind.GAVE_UP]
            if gone:
                raise StackError(f"{gone[0].service} ended and is no longer restarted: see {stack.run_dir / 'logs'}.")
            time.sleep(max(SAMPLE_EVERY_S - (time.monotonic() - started_s - elapsed_s), 0.1))


def _read_documents(run: SoakRun, settings: Settings) -> None:
    directory = settings.run.directory
    run.emulator = read_status(directory / f"{EMULATOR}.json") or run.emulator
    run.streaming = read_status(directory / f"{STREAMING}.json") or run.streaming
    with suppress(LiveViewError):  # An unreadable view is skipped, like the other status files.
        run.view = read_view(directory / f"{CONTROLLER}.json") or run.view


def _progress_text(run: SoakRun, hours: float) -> str:
    behind_s = float(run.emulator.get("behind_ms", 0.0)) / 1000
    plans, windows = run.counted("plans_completed"), run.counted("windows_closed")
    return f"{hours:.2f} h, {windows} windows, {plans} plans, {behind_s:.1f} s behind"


def figures(run: SoakRun, growths: Sequence[Growth]) -> list[Figure]:
    """Return every measured value as a figure."""
    figures = []
    for each in growths:
        where: dict[str, str | int | float] = {"series": each.name, "verdict": each.verdict}
        for name, value in (
            ("mean", each.mean),
            ("max", each.maximum),
            ("slope_per_h", each.slope_per_h),
            ("slope_error_per_h", each.slope_error_per_h),
            ("slope_per_wall_h", each.slope_per_h * run.plan.speed),
            ("growth", each.growth),
        ):
            figures.append(Figure(name, where, value, each.unit))
    ledger = run.emulator.get("ledger", {})
    for name in ("published", "expected", "delivered", "lost", "repeated", "out_of_order", "unexpected"):
        figures.append(Figure(f"ledger_{name}", {}, float(ledger.get(name, 0)), "pairs"))
    for name in (
        "windows_closed",
        "windows_incomplete",
        "late_rows",
        "plans_completed",
        "plans_aborted",
        "plans_undone",
    ):
        figures.append(Figure(name, {}, float(run.counted(name)), name.split("_")[0]))
    figures += [Figure("cores_used", {"service": name}, cores, "cores") for name, cores in run.cores().items()]
    behind = [row["emulator: behind ms"] for _, row in run.rows if "emulator: behind ms" in row]
    figures.append(Figure("hours", {}, run.hours, "h"))
    figures.append(Figure("behind_wall_s_max", {}, max(behind, default=0.0) / 1000 / run.plan.speed, "s"))
    return figures


def _print(run: SoakRun, growths: Sequence[Growth]) -> None:
    ledger = run.emulator.get("ledger", {})
    print(f"{run.hours:.2f} h of the clock, the first {WARM_UP_SHARE:.0%} taken as warm-up")
    print(f"{'series':<34}{'mean':>12}{'max':>12}{'slope per h':>14}{'± error':>12}{'per h of wall':>15}  verdict")
    for each in growths:
        values = (each.mean, each.maximum, each.slope_per_h, each.slope_error_per_h, each.slope_per_h * run.plan.speed)
        cells = [_amount(value, each) for value in values]
        widths = (12, 12, 14, 12, 15)
        row = "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        print(f"{each.name:<34}{row}  {each.verdict}")
    flat = sum(each.verdict == FLAT for each in growths)
    print(f"{flat} of {len(growths)} series are flat")
    print(
        f"ledger: {ledger.get('published', 0):,} published, {ledger.get('delivered', 0):,} delivered, "
        f"{ledger.get('lost', 0)} lost, {ledger.get('repeated', 0)} repeated, "
        f"{ledger.get('out_of_order', 0)} out of order, {ledger.get('unexpected', 0)} unexpected"
    )
    print("cores used: " + ", ".join(f"{name} {cores:.2f}" for name, cores in run.cores().items()))
    print(
        f"{run.counted('windows_closed')} windows, {run.counted('windows_incomplete')} incomplete, "
        f"{run.counted('late_rows')} late rows; plans: {run.counted('plans_completed')} completed, "
        f"{run.counted('plans_aborted')} aborted, {run.counted('plans_undone')} undoing"
    )


def _amount(value: float, each: Growth) -> str:
    return f"{value / MB:,.2f} MB" if each.unit == "bytes" else f"{value:,.1f}"


if __name__ == "__main__":
    main()
