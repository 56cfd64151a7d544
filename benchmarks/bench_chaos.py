"""Inject random outages in rounds; measure what they cost and how long the overlay takes to recover.

``python -m benchmarks.bench_chaos [--rounds 100] [--round-s 20] [--brokers 40] [--virtual [--ring]]`` and ``[--seed N]
[--json FILE] [--out DIR]``. A round has one outage on average: a broker dies and restarts, a broker hangs, or a link is
slow or cut. On the real stack, one stage per round is also killed or suspended. With ``--virtual``, emulator,
aggregator and controller share a virtual clock. Asserts that only deliveries that had to cross a dead broker were lost,
that none was repeated or out of order, that every alert about a broker was cleared again, and that the run finished
with all stages. A failed run is reported as far as the emulator has accounted for it.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.infra.process.measured_figures import Figure, run_facts, write_figures
from regraft.producers.emulator.outage_schedule import Chaos
from regraft.producers.emulator.place_overlay import place_overlay, place_ring
from regraft.producers.virtual_overlay import VirtualSettings
from regraft.producers.workloads.checkin_settings import CheckinSettings
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.run_records.outage_timeline import outage_timeline
from regraft.run_records.summary import percentile
from regraft.schemas.units import SECOND_MS
from regraft.stages.observe_run import RunObserver
from regraft.virtual_runs.virtual_loop import VirtualLoop

DEGREE_MAX = 8
START_MS = 1_700_000_000_000
TREE_PLANNER, RING_PLANNER = "swap_links_cost", "place_users_dynatops"
QUIET_S = 120.0  # After the last round, for outstanding repairs and restarts.
PATIENCE_FACTOR = 4.0
LONGER_S_MAX = 1_200.0  # Start-up, and waiting for brokers that restart late.
ERRORS = ("lost_unexcused", "repeated", "out_of_order", "unexpected", "alerts_left", "stages_given_up", "unfinished")
# These clear as soon as the broker or the overlay is healthy again; others stay raised for ten minutes or longer.
PASSING_ALERTS = ("broker_dead", "broker_silent", "repair_running", "traffic_at_risk", "window_missing")


def on_the_virtual_clock(given: argparse.Namespace) -> dict[str, Any]:
    """Run the rounds as fast as this machine can."""
    chaos = Chaos(every_s=given.round_s, for_s=given.round_s, until_s=given.rounds * given.round_s)
    virtual = VirtualSettings(seed=given.seed, start_ms=float(START_MS), chaos=chaos)
    rng = random.Random(given.seed)
    inventory = place_ring(given.brokers, rng) if given.ring else place_overlay(given.brokers, DEGREE_MAX, rng)
    workload = CheckinSettings() if given.ring else WorkloadSettings()
    settings = ControllerSettings(
        bootstrap="", inventory_path=Path(), planner=RING_PLANNER if given.ring else TREE_PLANNER
    )
    loop = VirtualLoop(inventory, workload, settings, virtual)
    loop.run_for((given.rounds * given.round_s + QUIET_S) * SECOND_MS)
    loop.virtual.outages.stop()
    loop.settle()
    status = loop.virtual.outages.status()
    account = loop.virtual.finish()
    timeline = outage_timeline(status["outage_notes"], loop.ports.events.emitted, loop.plans)
    return {
        "lost_unexcused": account.lost - account.excused,
        "repeated": account.repeated,
        "out_of_order": account.out_of_order,
        "unexpected": account.unexpected,
        "alerts_left": 0,  # The alerts stage does not run on the virtual clock.
        "stages_given_up": 0,
        "unfinished": 0,
        "deliveries": account.delivered,
        "lost_by_reason": dict(account.lost_by_reason),
        "outages": status["outages"],
        "repairs": len(timeline.repairs_ms),
        "death_to_whole_ms_p50": percentile(timeline.repairs_ms, 50),
        "death_to_whole_ms_p95": percentile(timeline.repairs_ms, 95),
    }


def on_the_stack(given: argparse.Namespace) -> dict[str, Any]:
    """Run the demo with chaos on its own Kafka, Spark and Valkey, and return its summary."""
    chaos_s = given.rounds * given.round_s
    options = {
        "demo.brokers": given.brokers,
        "demo.kill_every_s": given.round_s,
        "controller.shadow_planners": [],  # They would only take processor time.
        "dashboard.port": 0,
        "emulator.random_outages": f"every {given.round_s:g} for {given.round_s:g} until {chaos_s:g}",
    }
    command = [sys.executable, "-m", "regraft", "demo", "--chaos", "--dashboard", "--json", "--seed", str(given.seed)]
    command += ["--duration", f"{chaos_s + QUIET_S:g}"]
    for name, value in options.items():
        command += ["--set", f"{name}={json.dumps(value)}"]
    patience_s = PATIENCE_FACTOR * (chaos_s + QUIET_S) + LONGER_S_MAX
    with _folder(given) as folder:
        text, complaint = outcome([*command, "--out", str(folder)], patience_s)
        if not text:
            print(f"The demo wrote no summary: {complaint[-2_000:]}", file=sys.stderr)
            return account_so_far(folder / "run")
    summary: dict[str, Any] = json.loads(text)
    raised, cleared = summary["alerts_raised"], summary["alerts_cleared"]
    left = sum(raised.get(rule, 0) - cleared.get(rule, 0) for rule in PASSING_ALERTS)
    return summary | {
        "lost_unexcused": summary["lost"] - summary["lost_to_deaths"],
        "alerts_left": left,
        "stages_given_up": len(summary["given_up"]),
        "unfinished": 0,
    }


def outcome(command: list[str], patience_s: float) -> tuple[str, str]:
    """Run a command; return its standard output and a complaint with its exit code and standard error.

    On a timeout the output is empty.
    """
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=patience_s, check=False)
    except subprocess.TimeoutExpired:
        return "", f"it had not finished after {patience_s:g} s"
    return answer.stdout, f"it ended with {answer.returncode}: {answer.stderr}"


def account_so_far(run_directory: Path) -> dict[str, Any]:
    """Return the figures of an unfinished run from the emulator's last status; unknown ones are None."""
    observer = RunObserver(run_directory)
    observer.refresh()
    ledger = observer.ledger
    kinds = ("repeated", "out_of_order", "unexpected")
    return (
        dict.fromkeys(ERRORS)
        | {name: getattr(ledger, name) for name in kinds}
        | {
            "lost_unexcused": ledger.lost - ledger.excused,
            "deliveries": ledger.delivered,
            "lost_by_reason": dict(ledger.lost_by_reason),
            "outages": dict(observer.emulator.get("outages", {})),
            "unfinished": 1,
        }
    )


@contextmanager
def _folder(given: argparse.Namespace) -> Iterator[Path]:
    """Provide a directory for a run; keep it if ``--out`` names it."""
    with tempfile.TemporaryDirectory() as passing:
        folder = given.out or Path(passing) / "run"
        folder.mkdir(parents=True, exist_ok=True)
        yield folder


def figures_of(report: dict[str, Any], where: dict[str, str | int | float]) -> list[Figure]:
    """Return the results as figures, without those that were not measured."""
    singles = {"deliveries": "1", "repairs": "1", "death_to_whole_ms_p50": "ms", "death_to_whole_ms_p95": "ms"}
    singles |= dict.fromkeys(("windows_closed", "windows_incomplete", "plans_completed", "plans_aborted", *ERRORS), "1")
    figures = [
        Figure(name, where, report[name], unit) for name, unit in singles.items() if report.get(name) is not None
    ]
    for name in ("outages", "lost_by_reason", "alerts_raised", "alerts_cleared", "restarts"):
        counts = sorted(report.get(name, {}).items())
        figures += [Figure(f"{name}_{kind.replace(' ', '_')}", where, count, "1") for kind, count in counts]
    return figures


def main() -> None:
    """Run the rounds, print and write the figures, exit with 1 on any error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--round-s", type=float, default=20.0)
    parser.add_argument("--brokers", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--virtual", action="store_true", help="on a virtual clock, without Kafka, Spark and Valkey")
    parser.add_argument("--ring", action="store_true", help="with --virtual: users of a Chord ring, not a tree")
    parser.add_argument("--out", type=Path, help="directory of the run, which is kept; default: a temporary one")
    parser.add_argument("--json", type=Path, help="file for the figures")
    given = parser.parse_args()
    report = on_the_virtual_clock(given) if given.virtual else on_the_stack(given)
    where: dict[str, str | int | float] = {"rounds": given.rounds, "brokers": given.brokers}
    figures = figures_of(report, where)
    for figure in figures:
        print(f"{figure.name}: {figure.value:,} {figure.unit}")
    if given.json is not None:
        write_figures(given.json, run_facts({"round_s": given.round_s, "virtual": given.virtual}, given.seed), figures)
    errors = {name: report[name] for name in ERRORS if report[name]}
    assert not errors, errors


if __name__ == "__main__":
    main()
