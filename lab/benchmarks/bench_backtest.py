"""Time a cold open-loop backtest of a recording: an hour of telemetry from 100 brokers; asserts the limit.

``python -m lab.benchmarks.bench_backtest [--brokers 100] [--minutes 60] [--rate 4] [--planner NAME ...] [--json
FILE]``. The emulator and the controller make the recording on the virtual clock (about 10 minutes for an hour of 100
brokers); it stays in ``out/bench_backtest`` for later runs. Each measurement runs in a separate process and reads the
recording again; no state carries over. Processor time is reported next to wall time: it is what wall time would be on
idle cores.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from regraft.infra.process.measured_figures import Figure, run_facts, write_figures
from regraft.infra.process.show_progress import show_progress
from regraft.producers.recordings.read_recording import open_recording
from regraft.schemas.status_file import replace_file
from regraft.settings.place_demo import ensure_inventory
from regraft.settings.run_settings import load_settings
from tests.record_virtual import record_virtual

LIMIT_S = 60.0
LIMIT_BROKERS, LIMIT_MINUTES = 100, 60
FLUSHES_PER_S = 4
PLANNERS = (
    ("swap_links_cost+relocate_publishers_joint",),
    ("swap_links_cost+relocate_publishers_joint", "swap_links_ci"),
)
FOLDER = Path("out/bench_backtest")


def main() -> None:
    """Make the recording if it is missing, measure, print a table with the limit, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, default=LIMIT_BROKERS)
    parser.add_argument("--minutes", type=int, default=LIMIT_MINUTES, help="length of the recording")
    parser.add_argument("--rate", type=float, default=4.0, help="notifications/s of each of 49 publishers")
    parser.add_argument("--planner", action="append", help="repeat for more; default: ours, then ours and the paper's")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    recording = _recording(chosen.brokers, chosen.minutes, chosen.rate, chosen.seed)
    records = sum(block.span.telemetry for block in open_recording(recording).blocks())
    assert records >= chosen.brokers * FLUSHES_PER_S * chosen.minutes * 60 * 0.99, f"only {records} records"
    figures = []
    for planners in [tuple(chosen.planner)] if chosen.planner else PLANNERS:
        figures += _measure(recording, planners, records, chosen.minutes)
    _print_table(figures)
    if chosen.json:
        settings = {"brokers": chosen.brokers, "minutes": chosen.minutes, "rate": chosen.rate, "records": records}
        write_figures(chosen.json, run_facts(settings, chosen.seed), figures)
    is_hour = (chosen.brokers, chosen.minutes) == (LIMIT_BROKERS, LIMIT_MINUTES)
    late = [figure for figure in figures if figure.name == "backtest_s" and is_hour and figure.value > LIMIT_S]
    for figure in late:
        print(f"over the limit of {LIMIT_S:g} s: {figure.where['planners']} {figure.value:.1f} s")
    sys.exit(1 if late else 0)


def _recording(brokers: int, minutes: int, rate: float, seed: int) -> Path:
    """Return the recording; make it first if it is missing or truncated."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    file = FOLDER / f"{brokers}-brokers-{minutes}-min-{rate:g}-per-s-seed-{seed}.avro"
    done = file.with_suffix(".json")
    if done.exists() and file.exists():
        return file
    file.unlink(missing_ok=True)
    flags: dict[str, dict[str, Any]] = {
        "run": {"seed": seed, "directory": tempfile.mkdtemp()},
        "demo": {"brokers": brokers},
        "controller": {"dry_run": False},
        "emulator": {"workload": {"notifications_per_s": rate, "regime_change": f"interests at {minutes * 30:g}"}},
    }
    settings = load_settings(flags)
    with show_progress("making the recording", minutes * 60) as advance:
        loop = record_virtual(
            settings, ensure_inventory(settings), minutes * 60, file, lambda second: advance("seconds", second)
        )
    ledger = loop.virtual.ledger.snapshot()
    assert ledger.lost == ledger.repeated == ledger.out_of_order == 0, ledger
    replace_file(done, json.dumps({"plans": len(loop.plans), "published": ledger.published}))
    return file


def _measure(recording: Path, planners: tuple[str, ...], records: int, minutes: int) -> list[Figure]:
    named = [word for planner in planners for word in ("--planner", planner)]
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "figures.json"
        call = [sys.executable, "-m", "regraft", "backtest", str(recording), "--closed-loop-s", "0"]
        before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        subprocess.run([*call, *named, "--json", str(result)], check=True, stdout=subprocess.DEVNULL)
        wall_s = time.monotonic() - began_s
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        document = json.loads(result.read_text())
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    figures = {
        (figure["where"]["planner"], figure["name"]): figure["value"]
        for figure in document["figures"]
        if figure["where"]["mode"] == "open_loop"
    }
    where: dict[str, str | int | float] = {"planners": ", ".join(planners), "minutes": minutes}
    for planner in planners:
        windows, failed = figures[planner, "windows"], figures[planner, "decisions_failed"]
        assert windows >= minutes * 12 - 3, f"{planner} saw only {windows:g} windows"
        assert failed == 0, f"{planner} failed {failed:g} times"
        assert figures[planner, "saved_share"] > 0.2, f"{planner} saved {figures[planner, 'saved_share']:.1%}"
    return [
        Figure("backtest_s", where, wall_s, "s"),
        Figure("backtest_cpu_s", where, cpu_s, "s"),
        Figure("backtest_cpu_s_per_core", where, cpu_s / (os.cpu_count() or 1), "s"),
        Figure("backtest_records_per_s", where, records / wall_s, "records/s"),
        Figure("backtest_speed", where, minutes * 60 / wall_s, "s of event time/s"),
    ]


def _print_table(figures: list[Figure]) -> None:
    print(f"{'planners':60} {'wall s':>8} {'cpu s':>8} {'records/s':>10} {'x real time':>12} {'limit s':>8}")
    for wall, cpu, _, rate, speed in zip(*(figures[place::5] for place in range(5)), strict=True):
        print(
            f"{wall.where['planners']:60} {wall.value:8.1f} {cpu.value:8.1f} {rate.value:10.0f} {speed.value:12.0f} "
            f"{LIMIT_S:8.0f}"
        )


if __name__ == "__main__":
    main()
