"""Random outages in rounds: what they cost, and how long it takes until the overlay is whole again.

``python -m benchmarks.bench_chaos [--rounds 100] [--round-s 20] [--brokers 40] [--virtual [--ring]]`` and ``[--seed N]
[--json FILE]``. A round is one outage on average: a broker dies and comes back, stands still, or a link is slow or cut.
On the real stack, stages are killed and suspended beside; with ``--virtual`` emulator, reference aggregator and
controller share a virtual clock. Asserts that nothing was lost but what had to cross a broker that had died, and that
nothing was repeated or out of order.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from controller.controller_settings import ControllerSettings
from infra.measured_figures import Figure, run_facts, write_figures
from producers.emulator.outage_schedule import Chaos
from producers.emulator.place_overlay import place_overlay, place_ring
from producers.virtual_overlay import VirtualSettings
from producers.workloads.checkin_settings import CheckinSettings
from producers.workloads.stock_settings import WorkloadSettings
from regraft.run_records.outage_story import outage_story
from regraft.run_records.summary import percentile
from regraft.virtual_runs.virtual_loop import VirtualLoop

DEGREE_MAX = 8
START_MS = 1_700_000_000_000
SECOND_MS = 1_000.0
TREE_PLANNER, RING_PLANNER = "swap_links_cost", "place_users_dynatops"
QUIET_S = 60.0  # After the last round, for what is still to be repaired.
PATIENCE_FACTOR = 4.0
FAULTS = ("lost_unexcused", "repeated", "out_of_order", "unexpected")


def on_the_virtual_clock(given: argparse.Namespace) -> dict[str, Any]:
    """Run the rounds as fast as this machine can."""
    chaos = Chaos(every_s=given.round_s, for_s=given.round_s)
    virtual = VirtualSettings(seed=given.seed, start_ms=float(START_MS), chaos=chaos)
    rng = random.Random(given.seed)
    inventory = place_ring(given.brokers, rng) if given.ring else place_overlay(given.brokers, DEGREE_MAX, rng)
    workload = CheckinSettings() if given.ring else WorkloadSettings()
    told = ControllerSettings(bootstrap="", inventory_path=Path(), planner=RING_PLANNER if given.ring else TREE_PLANNER)
    loop = VirtualLoop(inventory, workload, told, virtual)
    loop.run_for(given.rounds * given.round_s * SECOND_MS)
    loop.virtual.outages.stop()
    loop.run_for(QUIET_S * SECOND_MS)
    loop.come_to_rest()
    status = loop.virtual.outages.status()
    account = loop.virtual.finish()
    story = outage_story(status["outage_notes"], loop.ports.events.emitted, loop.plans)
    return {
        "lost_unexcused": account.lost - account.excused,
        "repeated": account.repeated,
        "out_of_order": account.out_of_order,
        "unexpected": account.unexpected,
        "deliveries": account.delivered,
        "lost_by_reason": dict(account.lost_by_reason),
        "outages": status["outages"],
        "repairs": len(story.repairs_ms),
        "death_to_whole_ms_p50": percentile(story.repairs_ms, 50),
        "death_to_whole_ms_p95": percentile(story.repairs_ms, 95),
    }


def on_the_stack(given: argparse.Namespace) -> dict[str, Any]:
    """Run the demo with chaos on Kafka, Spark and Valkey of its own, and return its summary."""
    running_s = given.rounds * given.round_s + QUIET_S
    told = {
        "demo.brokers": given.brokers,
        "emulator.chaos_every_s": given.round_s,
        "emulator.chaos_for_s": given.round_s,
    }
    command = [sys.executable, "-m", "regraft", "demo", "--chaos", "--json", "--seed", str(given.seed)]
    command += ["--duration", f"{running_s:g}"]
    for name, value in told.items():
        command += ["--set", f"{name}={value}"]
    with tempfile.TemporaryDirectory() as folder:
        patience_s = PATIENCE_FACTOR * running_s + 300.0
        answer = subprocess.run(
            [*command, "--out", folder], capture_output=True, text=True, timeout=patience_s, check=False
        )
    if not answer.stdout:
        raise AssertionError(f"the demo ended with {answer.returncode}: {answer.stderr[-2_000:]}")
    summary: dict[str, Any] = json.loads(answer.stdout)
    return summary | {"lost_unexcused": summary["lost"] - summary["lost_to_deaths"]}


def figures_of(found: dict[str, Any], where: dict[str, str | int | float]) -> list[Figure]:
    """Return what was found as figures; what was not measured is left out."""
    singles = {"deliveries": "1", "repairs": "1", "death_to_whole_ms_p50": "ms", "death_to_whole_ms_p95": "ms"}
    singles |= dict.fromkeys(("alerts_raised", "alerts_cleared", *FAULTS), "1")
    figures = [Figure(name, where, found[name], unit) for name, unit in singles.items() if found.get(name) is not None]
    for name in ("outages", "lost_by_reason"):
        figures += [Figure(f"{name}_{kind}", where, count, "1") for kind, count in sorted(found[name].items())]
    return figures


def main() -> None:
    """Run the rounds, print and write what was found, and fail on any fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--round-s", type=float, default=20.0)
    parser.add_argument("--brokers", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--virtual", action="store_true", help="on a virtual clock, without Kafka, Spark and Valkey")
    parser.add_argument("--ring", action="store_true", help="with --virtual: users of a Chord ring, not a tree")
    parser.add_argument("--json", type=Path, help="file for the figures")
    given = parser.parse_args()
    found = on_the_virtual_clock(given) if given.virtual else on_the_stack(given)
    where: dict[str, str | int | float] = {"rounds": given.rounds, "brokers": given.brokers}
    figures = figures_of(found, where)
    for figure in figures:
        print(f"{figure.name}: {figure.value:,} {figure.unit}")
    if given.json is not None:
        write_figures(given.json, run_facts({"round_s": given.round_s, "virtual": given.virtual}, given.seed), figures)
    faults = {name: found[name] for name in FAULTS if found[name]}
    assert not faults, faults


if __name__ == "__main__":
    main()
