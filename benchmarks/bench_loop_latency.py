"""From the end of a window to its state and to the first command, and what that takes, on the real stack.

Each size is one run of the demo (real Kafka, Spark, Valkey, emulator and controller on this machine). Asserts that the
run was clean: nothing lost, repeated or out of order, and no window incomplete but the one in which the brokers start.

    python -m benchmarks.bench_loop_latency [--sizes 40,400] [--seconds 75] [--json FILE]

Sizes are 40, 100, 400 or 1000 brokers.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from regraft.infra.measured_figures import Figure, run_facts, write_figures
from regraft.schemas.live_view import decode_view

# Notifications per second of each of 49 publishers: with 400 brokers a notification crosses many more links, and the
# emulator shares the cores with everything that is measured.
SIZES = {40: 4.0, 100: 2.0, 400: 1.0, 1_000: 0.5}
SERVICES = ("kafka", "streaming", "controller", "emulator")
WARM_UP_WINDOWS = 3  # Spark compiles its first batches; an operator's controller runs for days.


def main() -> None:
    arguments = _arguments()
    figures: list[Figure] = []
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
        Figure("window_end_to_command_ms_max", where, command_ms[-1], "ms"),
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


def _kafka_bytes(folder: Path, suffix: str) -> int:
    """Return what Kafka holds of a topic, once, as it is compressed there."""
    logs = (folder / "run" / "kafka" / "data").glob(f"*.{suffix}-*/*.log")
    return sum(log.stat().st_size for log in logs)


def _percentile(ordered: list[int], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


if __name__ == "__main__":
    main()
