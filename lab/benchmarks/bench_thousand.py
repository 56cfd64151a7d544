"""Run a thousand brokers live: emulator, Kafka, Spark job and controller on this machine, with windows of 5 s.

    python -m lab.benchmarks.bench_thousand [--brokers 1000] [--rate R] [--seconds S] [--json FILE]

One run of the demo without shadow planners. Prints the latency from a window's end until it was in Kafka, at the
controller and, if it led to a plan, at the plan's first command; CPU and memory of each stage after the warm-up; and
what was late or incomplete. Asserts that nothing was lost, repeated or out of order, that the emulator kept pace, that
no row was late, and that each window after the one in which the brokers start was complete and in time for a decision.

The emulator is one process: brokers in different processes could not link, and a second process would have to emulate
the whole overlay again.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks.stage_meter import (
    MB,
    STAGES,
    MarkerReader,
    StageSample,
    cores_taken,
    percentile,
    rss_bytes_max,
    sample_stages,
)
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.process.measured_figures import Figure, run_facts, write_figures
from regraft.schemas.live_view import decode_view
from regraft.schemas.state import WindowClosed

SEED = 1
WARM_UP_WINDOWS = 4  # Spark compiles during its first batches, and all clients connect at once.
PUBLISHERS = 49
BEHIND_MS_MAX = 2_000.0  # Of the emulator: further behind, it is not realistic.
WAIT_S_MAX = 180.0


@dataclass(frozen=True, slots=True)
class Run:
    """The results of one run: samples from the warm-up to its end, markers with their time in Kafka, its documents."""

    samples: list[StageSample]
    markers: list[tuple[WindowClosed, int]]
    behind_ms: list[float]
    batch_ms: list[int]
    folder: Path

    def document(self, *names: str) -> dict[str, Any]:
        """Return one of the run's JSON files."""
        document: dict[str, Any] = json.loads(self.folder.joinpath(*names).read_text(encoding="utf-8"))
        return document


def run_demo(brokers: int, rate_per_s: float, seconds: float, folder: Path) -> Run:
    """Run the demo and watch it; raise AssertionError if it did not start or wrote no summary."""
    command = [sys.executable, "-m", "regraft", "demo", "--json", "--out", str(folder), "--duration", str(seconds)]
    command += ["--rate", str(rate_per_s), "--set", f"demo.brokers={brokers}"]
    command += ["--set", "controller.shadow_planners=[]"]
    log = folder / "demo.log"
    folder.mkdir(parents=True, exist_ok=True)
    with (
        log.open("wb") as out,
        subprocess.Popen(command, cwd=Path(__file__).parents[1], stdout=out, stderr=out) as demo,
    ):
        try:
            run = _watch(demo, folder)
            demo.wait(WAIT_S_MAX)
        finally:
            demo.terminate()
    assert (folder / "summary.json").exists(), f"the demo ended with {demo.returncode}: see {log}"
    return run


def _watch(demo: subprocess.Popen[bytes], folder: Path) -> Run:
    """Sample stages and read the markers while brokers run: Kafka is gone once the demo has ended."""
    run = Run([], [], [], [], folder)
    properties, emulator = folder / "run" / "kafka" / "server.properties", folder / "run" / "emulator.json"
    while demo.poll() is None and not emulator.exists():
        time.sleep(0.5)
    assert demo.poll() is None, f"the demo ended with {demo.returncode} before its brokers ran: see {folder}/demo.log"
    listeners = next(line for line in properties.read_text().splitlines() if line.startswith("advertised.listeners="))
    process = psutil.Process(demo.pid)
    with closing(MarkerReader(KafkaAccess(listeners.split("://")[1]))) as reader:
        while demo.poll() is None and (status := json.loads(emulator.read_text()))["phase"] == "running":
            run.markers.extend(reader.read())
            if len(run.markers) < WARM_UP_WINDOWS:
                continue
            run.samples.append(sample_stages(process))
            run.behind_ms.append(status["behind_ms"])
            run.batch_ms.append(run.document("run", "streaming.json")["batch_ms"])
    return run


def check(run: Run, brokers: int, seconds: float) -> None:
    """Raise AssertionError if the run was not clean or did not keep up."""
    summary, view = run.document("summary.json"), decode_view((run.folder / "run" / "controller.json").read_bytes())
    assert (summary["lost"], summary["repeated"], summary["out_of_order"]) == (0, 0, 0), summary
    assert run.behind_ms, f"fewer than {WARM_UP_WINDOWS} windows closed: give more --seconds"
    behind_ms = median(run.behind_ms)
    assert behind_ms <= BEHIND_MS_MAX, f"the emulator was {behind_ms:,.0f} ms behind: take a lower --rate"
    late = sum(marker.late_rows for marker, _ in run.markers)
    assert late == 0, f"{late} rows were late"
    starts = [marker.window_start_ms for marker, _ in run.markers]
    assert starts == sorted(set(starts)), "a window was written twice or out of order"
    window_ms = run.markers[0][0].window_end_ms - starts[0]
    assert starts[-1] - starts[0] == (len(starts) - 1) * window_ms, "a window is missing"
    assert len(starts) >= seconds * 1_000 / window_ms / 2, f"only {len(starts)} windows were closed in {seconds:g} s"
    assert all(len(marker.brokers) == brokers for marker, _ in run.markers[1:]), "a window lacks a broker"
    assert all(point.is_complete for point in view.cost[1:]), "a window after the first is incomplete"


def figures_of(run: Run, brokers: int, rate_per_s: float) -> list[Figure]:
    """Return the figures of a run."""
    where: dict[str, str | int | float] = {"brokers": brokers, "notifications_per_s": PUBLISHERS * rate_per_s}
    view, streaming = (
        decode_view((run.folder / "run" / "controller.json").read_bytes()),
        run.document("run", "streaming.json"),
    )
    kafka_ms = [kafka_ms - marker.window_end_ms for marker, kafka_ms in run.markers[WARM_UP_WINDOWS:]]
    state_ms, command_ms = view.window_end_to_state_ms[WARM_UP_WINDOWS:], list(view.window_close_to_command_ms.values())
    figures: list[Figure] = []
    for name, values in (("kafka", kafka_ms), ("state", state_ms), ("command", command_ms)):
        shares = (("p50", 0.5), ("p95", 0.95)) if values else ()
        figures += [
            Figure(f"window_end_to_{name}_ms_{rank}", where, percentile(values, share), "ms") for rank, share in shares
        ]
    acting = [times for name, times in view.decision_ms.items() if name.startswith("acting:")]
    figures += [
        Figure("decision_ms_mean", where, round(acting[0].mean_ms) if acting else 0, "ms"),
        Figure("micro_batch_ms_median", where, median(run.batch_ms), "ms"),
        Figure("windows_measured", where, len(kafka_ms), "windows"),
        Figure("windows_incomplete_after_the_first", where, sum(not point.is_complete for point in view.cost[1:]), "1"),
        Figure("late_rows", where, streaming["late_rows"], "rows"),
        Figure("records_per_cell", where, round(streaming["records"] / max(streaming["cells"], 1), 2), "1"),
        Figure("emulator_behind_ms_median", where, median(run.behind_ms), "ms"),
    ]
    for stage in STAGES:
        figures += [
            Figure(f"cores_{stage}", where, round(cores_taken(run.samples, stage), 3), "cores"),
            Figure(f"rss_mb_{stage}", where, rss_bytes_max(run.samples, stage) // MB, "MB"),
        ]
    return [
        *figures,
        Figure("rss_mb_streaming_java", where, rss_bytes_max(run.samples, "streaming", "java") // MB, "MB"),
        Figure("rss_mb_streaming_python", where, rss_bytes_max(run.samples, "streaming", "python") // MB, "MB"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, default=1_000, help="emulated brokers")
    parser.add_argument("--rate", type=float, default=0.5, help="notifications per second of each of 49 publishers")
    parser.add_argument("--seconds", type=float, default=120.0, help="running time")
    parser.add_argument("--json", type=Path, help="file for the figures")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-thousand-") as folder:
        run = run_demo(given.brokers, given.rate, given.seconds, Path(folder))
        figures = figures_of(run, given.brokers, given.rate)
        for figure in figures:
            print(f"{given.brokers:>5} brokers  {figure.name:<36} {figure.value:>10,.6g} {figure.unit}")
        check(run, given.brokers, given.seconds)
    if not any(figure.name.startswith("window_end_to_command") for figure in figures):
        print("No plan was made: there is no time to a first command. Give more --rate or --seconds.")
    if given.json is not None:
        write_figures(given.json, run_facts({"seconds": given.seconds, "rate_per_s": given.rate}, SEED), figures)


if __name__ == "__main__":
    main()
