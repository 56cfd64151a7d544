"""Time the real stack from the end of a window to its state and to the first command, and measure its resources.

Each size is one run of the demo (real Kafka, Spark, Valkey, emulator and controller on this machine). Asserts that the
run was clean: nothing lost, repeated or out of order, and no window incomplete but the one in which the brokers start.
Exits with 1 if a size made no plan.

    python -m benchmarks.bench_loop_latency [--sizes 40,400] [--seconds 240] [--warm-up-s 60] [--json FILE]

Sizes are 40, 100, 400 or 1000 brokers. Figures cover the windows after the warm-up, in which Java compiles; those of
the warm-up itself, without its first three windows, end in ``_at_start``. The latency from a window's end to its state
is also split into consecutive parts (``PARTS``, medians). ``fixed_work_ms`` is the time of a fixed computation in
Python and numpy on this otherwise idle machine: use it to compare figures of two machines.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from regraft.infra.process.measured_figures import Figure, run_facts, write_figures
from regraft.schemas.live_view import LiveView, decode_view

# Notifications per second of each of 49 publishers. The rate falls with the size: with 400 brokers a notification
# crosses many more links, and the emulator shares the cores with the stages measured.
SIZES = {40: 4.0, 100: 2.0, 400: 1.0, 1_000: 0.5}
SERVICES = ("kafka", "streaming", "controller", "emulator")
# The time, from the job's log or the live view, that ends each part; the first part begins at the window's end.
PARTS = {
    "settle": "the longest time for which publications of a window were still reported, in the last windows",
    "batch_wait": "until all brokers have gone past that, by telemetry and Kafka, and the next micro-batch begins",
    "micro_batch": "until the rows of all shards are acknowledged",
    "markers": "until the driver's marker is acknowledged",
    "poll": "until the controller has read it",
}
WINDOW_MS = 5_000
SKIPPED_WINDOWS = 3  # Brokers start, and Spark runs its first micro-batches.


def main() -> int:
    arguments = _arguments()
    figures = [Figure("fixed_work_ms", {"brokers": 0}, _fixed_work_ms(), "ms")]
    _show(figures)
    sizes = {int(size): SIZES[int(size)] for size in arguments.sizes.split(",")}
    without_plan = []
    for brokers, rate_per_s in sizes.items():
        print(f"{brokers} brokers, {rate_per_s:g} notifications/s of each publisher, {arguments.seconds:g} s ...")
        with tempfile.TemporaryDirectory() as folder:
            measurement = _measure(brokers, rate_per_s, arguments.seconds, arguments.warm_up_s, Path(folder))
        _show(measurement)
        figures += measurement
        if not any(figure.name.startswith("window_end_to_command_ms") for figure in measurement):
            without_plan.append(brokers)
    if arguments.json:
        settings = {"seconds": arguments.seconds, "rate_per_s": {str(size): rate for size, rate in sizes.items()}}
        write_figures(arguments.json, run_facts(settings, seed=1), figures)
    for brokers in without_plan:
        print(f"no plan was made with {brokers} brokers, so there is no time to a command: give more --seconds")
    return int(bool(without_plan))


def _show(figures: list[Figure]) -> None:
    for figure in figures:
        brokers, value = figure.where["brokers"], figure.value
        print(f"{brokers:>4} brokers  {figure.name:<32} {value:>12,.0f} {figure.unit}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="40,400", help="numbers of brokers, with commas")
    parser.add_argument("--seconds", type=float, default=240.0, help="running time of each size")
    parser.add_argument("--warm-up-s", type=float, default=60.0, help="how much of it comes before what is measured")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    return parser.parse_args()


def _measure(brokers: int, rate_per_s: float, seconds: float, warm_up_s: float, folder: Path) -> list[Figure]:
    command = [sys.executable, "-m", "regraft", "demo", "--json", "--out", str(folder), "--duration", str(seconds)]
    command += ["--rate", str(rate_per_s), "--set", f"demo.brokers={brokers}"]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr[-2000:]  # 1 also means that there was no plan.
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    view = decode_view((folder / "run" / "controller.json").read_bytes())
    assert (summary["lost"], summary["repeated"], summary["out_of_order"]) == (0, 0, 0), summary
    assert all(point.is_complete for point in view.cost[1:]), "a window after the first is incomplete"
    windows_before = max(int(warm_up_s * 1_000 / WINDOW_MS), SKIPPED_WINDOWS)
    where: dict[str, str | int | float] = {"brokers": brokers, "notifications_per_s": 49 * rate_per_s}
    state_ms, command_ms = _state_ms(view), _command_ms(view)
    assert len(state_ms) > windows_before, "no window was closed after the warm-up: give more --seconds"
    first_ms = view.cost[windows_before].window_end_ms
    early = [ms for end_ms, ms in command_ms if end_ms < first_ms]
    late = [ms for end_ms, ms in command_ms if end_ms >= first_ms]
    state_ms, at_start_ms = state_ms[windows_before:], state_ms[SKIPPED_WINDOWS:windows_before]
    return [
        *_percentiles("window_end_to_state_ms", where, state_ms, at_start_ms),
        *_percentiles("window_end_to_command_ms", where, late, early),
        Figure("command_after_state_ms_p50", where, median(_after_state_ms(view) or [0]), "ms"),
        *(
            Figure("decision_ms_mean", where, times.mean_ms, "ms")
            for name, times in view.decision_ms.items()
            if name.startswith("acting")
        ),
        *(
            Figure(f"part_{name}_ms_p50", where, value, "ms")
            for name, value in _parts_ms(folder, view, windows_before).items()
        ),
        Figure("windows_measured", where, len(state_ms), "windows"),
        Figure("deliveries", where, summary["deliveries"], "deliveries"),
        Figure("memory_bytes_max", where, summary["memory_bytes_max"]["total"], "bytes"),
        *(Figure(f"memory_bytes_max_{name}", where, summary["memory_bytes_max"][name], "bytes") for name in SERVICES),
        Figure("telemetry_records_per_s", where, summary["telemetry_records"] / summary["duration_s"], "1/s"),
        *(
            Figure(f"{suffix}_bytes_per_s", where, _kafka_bytes(folder, suffix) / summary["duration_s"], "bytes/s")
            for suffix in ("telemetry", "state")
        ),
    ]


def _percentiles(
    name: str, where: dict[str, str | int | float], late_ms: list[int], early_ms: list[int]
) -> list[Figure]:
    """Return median, p95 and count of the values after and during the warm-up; without values only the count."""
    figures = []
    for values, suffix in ((sorted(late_ms), ""), (sorted(early_ms), "_at_start")):
        if values:
            figures.append(Figure(f"{name}_p50{suffix}", where, median(values), "ms"))
            figures.append(Figure(f"{name}_p95{suffix}", where, _percentile(values, 0.95), "ms"))
        figures.append(Figure(f"{name}_count{suffix}", where, len(values), "times"))
    return figures


def _state_ms(view: LiveView) -> list[int]:
    """Return the time from the end of each window until its state was assembled, oldest window first."""
    return list(view.window_end_to_state_ms[-len(view.cost) :])


def _command_ms(view: LiveView) -> list[tuple[int, int]]:
    """Return for each plan the end of its window, and the time from there to its first command."""
    took_ms = view.window_close_to_command_ms
    return [(plan.window_end_ms, took_ms[plan.plan]) for plan in view.plans if plan.plan in took_ms]


def _parts_ms(folder: Path, view: LiveView, windows_before: int) -> dict[str, float]:
    """Return the median of each part over the windows that both the job's log and the live view contain."""
    state_at_ms = _state_at_ms(view, windows_before)
    by_part: dict[str, list[int]] = {name: [] for name in PARTS}
    for line in (folder / "run" / "logs" / "streaming.log").read_text(encoding="utf-8").splitlines():
        logged: dict[str, Any] = json.loads(line) if line.startswith("{") else {}
        if logged.get("event") != "windows_closed":
            continue
        for end_ms in (end_ms for end_ms in logged["window_ends_ms"] if end_ms in state_at_ms):
            settled_ms = end_ms + logged["settle_ms"]
            times = (
                end_ms,
                settled_ms,
                logged["began_ms"],
                logged["rows_ms"],
                logged["markers_ms"],
                state_at_ms[end_ms],
            )
            for name, (begin_ms, until_ms) in zip(PARTS, pairwise(times), strict=True):
                by_part[name].append(until_ms - begin_ms)
    return {name: median(values) for name, values in by_part.items()}


def _state_at_ms(view: LiveView, windows_before: int) -> dict[int, int]:
    """Return when the state of each window after the warm-up was assembled, keyed by the end of the window."""
    ends_ms = [point.window_end_ms for point in view.cost]
    return {end_ms: end_ms + ms for end_ms, ms in list(zip(ends_ms, _state_ms(view), strict=True))[windows_before:]}


def _after_state_ms(view: LiveView) -> list[int]:
    """Return for each plan the time from its window's state to its first command: decision and transaction."""
    took_ms = {point.window_end_ms: ms for point, ms in zip(view.cost, _state_ms(view), strict=True)}
    return [ms - took_ms[end_ms] for end_ms, ms in _command_ms(view) if end_ms in took_ms]


def _fixed_work_ms() -> float:
    """Return the best of five times of fixed sums in Python and products in numpy, mostly on one thread."""
    matrix, took_s = np.random.Generator(np.random.PCG64(1)).random((400, 400)), []
    for _ in range(5):
        begin_s, total = time.perf_counter(), 0
        for number in range(1_000_000):
            total += number & 7
        for _ in range(10):
            np.sort(matrix @ matrix, axis=None)
        took_s.append(time.perf_counter() - begin_s)
    return min(took_s) * 1_000


def _kafka_bytes(folder: Path, suffix: str) -> int:
    """Return the compressed bytes of a topic in Kafka's logs."""
    logs = (folder / "run" / "kafka" / "data").glob(f"*.{suffix}-*/*.log")
    return sum(log.stat().st_size for log in logs)


def _percentile(ordered: list[int], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


if __name__ == "__main__":
    sys.exit(main())
