"""From the end of a window to its state and to the first command, and what that takes, on the real stack.

Each size is one run of the demo (real Kafka, Spark, Valkey, emulator and controller on this machine). Asserts that the
run was clean: nothing lost, repeated or out of order, and no window incomplete but the one in which the brokers start.

    python -m benchmarks.bench_loop_latency [--sizes 40,400] [--seconds 75] [--json FILE]

Sizes are 40, 100, 400 or 1000 brokers. Printed are the parts of the way from a window's end to the first command, one
after the other (``PARTS``), medians of the windows after the warm-up. ``fixed_work_ms`` is what a fixed piece of work
in Python and numpy takes on this machine when nothing else of ours runs: hold figures of two machines against it.
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

from regraft.infra.measured_figures import Figure, run_facts, write_figures
from regraft.schemas.live_view import LiveView, decode_view

# Notifications per second of each of 49 publishers: with 400 brokers a notification crosses many more links, and the
# emulator shares the cores with everything that is measured.
SIZES = {40: 4.0, 100: 2.0, 400: 1.0, 1_000: 0.5}
SERVICES = ("kafka", "streaming", "controller", "emulator")
# Which time of a window, by the job's log and the live view, ends each part; the first begins at the window's end.
PARTS = {
    "settle": "how long what was published in the window is still told of, at most, in the last windows",
    "batch_wait": "until all brokers have gone past that, by telemetry and Kafka, and the next micro-batch begins",
    "micro_batch": "until the rows of all shards are acknowledged",
    "markers": "until the marker is, by the driver",
    "poll": "until the controller has read it",
}
WARM_UP_WINDOWS = 3  # Spark compiles its first batches; an operator's controller runs for days.


def main() -> None:
    arguments = _arguments()
    figures = [Figure("fixed_work_ms", {"brokers": 0}, _fixed_work_ms(), "ms")]
    sizes = {int(size): SIZES[int(size)] for size in arguments.sizes.split(",")}
    for brokers, rate_per_s in sizes.items():
        print(f"{brokers} brokers, {rate_per_s:g} notifications/s of each publisher, {arguments.seconds:g} s ...")
        with tempfile.TemporaryDirectory() as folder:
            figures += _measure(brokers, rate_per_s, arguments.seconds, Path(folder))
    for figure in figures:
        print(f"{figure.where['brokers']:>4} brokers  {figure.name:<32} {figure.value:>12,.0f} {figure.unit}")
    if arguments.json:
        settings = {"seconds": arguments.seconds, "rate_per_s": {str(size): rate for size, rate in sizes.items()}}
        write_figures(arguments.json, run_facts(settings, seed=1), figures)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="40,400", help="numbers of brokers, with commas")
    parser.add_argument("--seconds", type=float, default=75.0, help="running time of each size")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    return parser.parse_args()


def _measure(brokers: int, rate_per_s: float, seconds: float, folder: Path) -> list[Figure]:
    command = [sys.executable, "-m", "regraft", "demo", "--json", "--out", str(folder), "--duration", str(seconds)]
    command += ["--rate", str(rate_per_s), "--set", f"demo.brokers={brokers}"]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"the demo ended with {done.returncode}: {done.stderr[-2000:]}"
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    view = decode_view((folder / "run" / "controller.json").read_bytes())
    assert (summary["lost"], summary["repeated"], summary["out_of_order"]) == (0, 0, 0), summary
    assert all(point.is_complete for point in view.cost[1:]), "a window after the first is incomplete"
    state_ms = sorted(view.window_end_to_state_ms[WARM_UP_WINDOWS:])
    command_ms = sorted(view.window_close_to_command_ms.values())
    assert state_ms, "the run was too short for a window after the warm-up: give more --seconds"
    assert command_ms, "no plan was made: give more --seconds"
    where: dict[str, str | int | float] = {"brokers": brokers, "notifications_per_s": 49 * rate_per_s}
    return [
        Figure("window_end_to_state_ms_p50", where, median(state_ms), "ms"),
        Figure("window_end_to_state_ms_p95", where, _percentile(state_ms, 0.95), "ms"),
        Figure("window_end_to_command_ms_p50", where, median(command_ms), "ms"),
        Figure("window_end_to_command_ms_p95", where, _percentile(command_ms, 0.95), "ms"),
        Figure("window_end_to_command_ms_max", where, command_ms[-1], "ms"),
        Figure("command_after_state_ms_p50", where, median(_after_state_ms(view)), "ms"),
        *(
            Figure("decision_ms_mean", where, times.mean_ms, "ms")
            for name, times in view.decision_ms.items()
            if name.startswith("acting")
        ),
        *(Figure(f"part_{name}_ms_p50", where, value, "ms") for name, value in _parts_ms(folder, view).items()),
        Figure("windows_measured", where, len(state_ms), "windows"),
        Figure("deliveries", where, summary["deliveries"], "deliveries"),
        Figure("rss_bytes_max", where, summary["rss_bytes_max"]["total"], "bytes"),
        *(Figure(f"rss_bytes_max_{name}", where, summary["rss_bytes_max"][name], "bytes") for name in SERVICES),
        Figure("telemetry_records_per_s", where, summary["telemetry_records"] / summary["duration_s"], "1/s"),
        *(
            Figure(f"{suffix}_bytes_per_s", where, _kafka_bytes(folder, suffix) / summary["duration_s"], "bytes/s")
            for suffix in ("telemetry", "state")
        ),
    ]


def _parts_ms(folder: Path, view: LiveView) -> dict[str, float]:
    """Return the median of each part, over the windows of which the job's log and the live view both know."""
    state_at_ms = _state_at_ms(view)
    found: dict[str, list[int]] = {name: [] for name in PARTS}
    for line in (folder / "run" / "logs" / "streaming.log").read_text(encoding="utf-8").splitlines():
        told: dict[str, Any] = json.loads(line) if line.startswith("{") else {}
        if told.get("event") != "windows_closed":
            continue
        for end_ms in (end_ms for end_ms in told["window_ends_ms"] if end_ms in state_at_ms):
            settled_ms = end_ms + told["settle_ms"]
            times = (end_ms, settled_ms, told["began_ms"], told["rows_ms"], told["markers_ms"], state_at_ms[end_ms])
            for name, (begin_ms, until_ms) in zip(PARTS, pairwise(times), strict=True):
                found[name].append(until_ms - begin_ms)
    return {name: median(values) for name, values in found.items()}


def _state_at_ms(view: LiveView) -> dict[int, int]:
    """Return by the end of each window after the warm-up when its state was put together."""
    ends_ms = [point.window_end_ms for point in view.cost]
    took_ms = view.window_end_to_state_ms[-len(ends_ms) :]
    return {end_ms: end_ms + ms for end_ms, ms in list(zip(ends_ms, took_ms, strict=True))[WARM_UP_WINDOWS:]}


def _after_state_ms(view: LiveView) -> list[int]:
    """Return of each plan how long after its window's state the first command went out: decision and transaction."""
    took_ms = {point.window_end_ms: ms for point, ms in zip(view.cost, view.window_end_to_state_ms, strict=False)}
    command_ms = view.window_close_to_command_ms
    return [
        command_ms[plan.plan] - took_ms[plan.window_end_ms]
        for plan in view.plans
        if plan.plan in command_ms and plan.window_end_ms in took_ms
    ]


def _fixed_work_ms() -> float:
    """Return the least of five times for the same sums in Python and products in numpy, on one thread mostly."""
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
    """Return what Kafka holds of a topic, once, as it is compressed there."""
    logs = (folder / "run" / "kafka" / "data").glob(f"*.{suffix}-*/*.log")
    return sum(log.stat().st_size for log in logs)


def _percentile(ordered: list[int], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


if __name__ == "__main__":
    main()
