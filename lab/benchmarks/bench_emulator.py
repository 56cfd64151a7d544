"""Measure how many hop-events the emulator handles per second of processor time on the virtual clock.

``python -m lab.benchmarks.bench_emulator [--seed N] [--json FILE]``. A hop-event is one notification handled by one
broker: arrival, wait, service, matching, forwarding and its entry in the ledger. Telemetry, churn and control messages
count as cost, not as events. The limit is 20,000 per second.
"""

import argparse
import gc
import random
import time
from pathlib import Path

from regraft.infra.process.measured_figures import Figure, run_facts, write_figures
from regraft.producers.emulator.emulator_ports import MemoryTelemetry
from regraft.producers.emulator.place_overlay import place_overlay
from regraft.producers.virtual_overlay import VirtualOverlay, VirtualSettings
from regraft.producers.workloads.stock_settings import WorkloadSettings

LIMIT_PER_S = 20_000
DEGREE_MAX = 8
PROCESSING_MS = (0.5, 1.5)
WARM_UP_MS = 5_000.0  # All clients connect at once: a flood of control messages that a steady overlay does not see.
# Brokers, notifications per second of each of 49 publishers, simulated seconds: demo, more traffic, more brokers.
CASES = ((40, 4.0, 60.0), (40, 8.0, 40.0), (400, 4.0, 30.0))


def measure(broker_count: int, notifications_per_s: float, simulated_s: float, seed: int) -> list[Figure]:
    """Run one case; raise AssertionError if its account is not clean."""
    inventory = place_overlay(broker_count, DEGREE_MAX, random.Random(seed), PROCESSING_MS)
    workload = WorkloadSettings(notifications_per_s=notifications_per_s)
    virtual = VirtualOverlay(inventory, workload, VirtualSettings(seed=seed), MemoryTelemetry(kept_max=0))
    virtual.run_for(WARM_UP_MS)
    hops, controls = virtual.overlay.hop_count, virtual.overlay.control_count
    gc.collect()
    began_s, cpu_began_s = time.perf_counter(), time.process_time()
    virtual.run_for(simulated_s * 1_000)
    cpu_s, wall_s = time.process_time() - cpu_began_s, time.perf_counter() - began_s
    hops, controls = virtual.overlay.hop_count - hops, virtual.overlay.control_count - controls
    account = virtual.finish()
    assert account.final, account
    assert account.is_clean, account
    assert account.delivered > 0, account
    where: dict[str, str | int | float] = {
        "brokers": broker_count,
        "notifications_per_s": notifications_per_s,
        "simulated_s": simulated_s,
    }
    return [
        Figure("hop_events_per_cpu_s", where, round(hops / cpu_s), "1/s"),
        Figure("hop_events_per_wall_s", where, round(hops / wall_s), "1/s"),
        Figure("hop_events", where, hops, "1"),
        Figure("control_events", where, controls, "1"),
        Figure("deliveries", where, account.delivered, "1"),
        Figure("lost", where, account.lost, "1"),
        Figure("repeated", where, account.repeated, "1"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    figures = [figure for case in CASES for figure in measure(*case, given.seed)]
    rates = [figure for figure in figures if figure.name == "hop_events_per_cpu_s"]
    for figure in rates:
        print(f"{figure.where}: {figure.value:,.0f} hop-events per CPU second (limit {LIMIT_PER_S:,}), none lost")
    if given.json is not None:
        settings = {"degree_max": DEGREE_MAX, "processing_ms": PROCESSING_MS, "warm_up_ms": WARM_UP_MS}
        write_figures(given.json, run_facts(settings, given.seed), figures)
    assert all(figure.value >= LIMIT_PER_S for figure in rates), f"below {LIMIT_PER_S:,} hop-events/s"


if __name__ == "__main__":
    main()
