"""Measure how time and memory of each stage grow with the number of brokers (virtual clock), and what breaks first.

``python -m benchmarks.bench_growth [--sizes N,N,...] [--seconds S] [--rate R] [--json FILE]``. Each size is one closed
loop in a separate process: emulator, reference aggregation and controller with its default planner, whose plans the
emulated brokers execute, on the same traffic for all sizes. Asserts that nothing is lost, repeated or out of order.
Exponents are log-log slopes over all sizes. "breaks at" is the size at which a stage reaches its limit (one core, or a
window for each decision), interpolated or extrapolated from the two nearest sizes. ``benchmarks.bench_fed_job``
measures the Spark job.
"""

import argparse
import gc
import math
import multiprocessing
import random
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np

from regraft.api.kinds import kind_of
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.infra.process.measured_figures import Figure, run_facts, write_figures
from regraft.producers.emulator.place_overlay import place_overlay
from regraft.producers.virtual_overlay import VirtualSettings
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.virtual_runs.virtual_loop import WINDOW_MS, VirtualLoop

DEGREE_MAX = 8
PROCESSING_MS = (0.5, 1.5)
SEED = 1
WARM_UP_MS = 5_000.0  # All clients connect at once: a flood that a running overlay does not see.
SHARE_MAX = 1.0  # Of a core: a stage that needs more falls behind.
STAGES = ("emulator", "aggregation", "controller")
SLOPE_MIN = 0.01  # A smaller exponent does not count as growth.

P = ParamSpec("P")
R = TypeVar("R")


class StageClock:
    """Accounts the CPU time of this process by stage."""

    def __init__(self) -> None:
        self.cpu_s: defaultdict[str, float] = defaultdict(float)
        self.call_cpu_s_max: defaultdict[str, float] = defaultdict(float)

    def timed(self, stage: str, function: Callable[P, R]) -> Callable[P, R]:
        """Return the function wrapped so that its CPU time counts for the stage."""

        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            begin_s = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                spent_s = time.process_time() - begin_s
                self.cpu_s[stage] += spent_s
                self.call_cpu_s_max[stage] = max(self.call_cpu_s_max[stage], spent_s)

        return call


def run_size(brokers: int, seconds: float, rate_per_s: float) -> dict[str, Any]:
    """Run one size; raise AssertionError if its account is not clean."""
    began_s = time.perf_counter()
    inventory = place_overlay(brokers, DEGREE_MAX, random.Random(SEED), PROCESSING_MS)
    given = ControllerSettings(bootstrap="", inventory_path=Path(), dry_run=False)
    workload = WorkloadSettings(notifications_per_s=rate_per_s)
    kind_of(inventory, given).prepare()
    loop = VirtualLoop(inventory, workload, given, VirtualSettings(seed=SEED, start_ms=1_700_000_000_000.0))
    loop.run_for(WARM_UP_MS)
    gc.collect()
    clock = StageClock()
    loop.virtual.run_for = clock.timed("emulator", loop.virtual.run_for)  # type: ignore[method-assign]
    loop.aggregator.take = clock.timed("aggregation", loop.aggregator.take)  # type: ignore[method-assign]
    loop.aggregator.advance = clock.timed("aggregation", loop.aggregator.advance)  # type: ignore[method-assign]
    loop.loop.step = clock.timed("controller", loop.loop.step)  # type: ignore[method-assign]
    loop.run_for(seconds * 1_000)
    measured = dict(clock.cpu_s), clock.call_cpu_s_max["controller"]
    plans = len(loop.plans)
    rested = loop.settle()
    account = loop.virtual.finish()
    assert rested, f"{brokers} brokers: a plan did not finish"
    assert account.is_clean, f"{brokers} brokers: {account}"
    assert account.delivered > 0, f"{brokers} brokers: nothing was delivered"
    return {
        "cpu_s": measured[0],
        "decision_s_max": measured[1],
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024,
        "plans": plans,
        "delivered": account.delivered,
        "wall_s": time.perf_counter() - began_s,
    }


def per_second(result: dict[str, Any], seconds: float) -> dict[str, float]:
    """Return the resources used by one size, keyed by rows of the table."""
    windows = seconds * 1_000 / WINDOW_MS
    cpu_s = result["cpu_s"]
    return {
        "emulator, CPU s/s": cpu_s["emulator"] / seconds,
        "aggregation, CPU s/s": cpu_s["aggregation"] / seconds,
        "controller, CPU s/window": cpu_s["controller"] / windows,
        "longest step of the controller, s": result["decision_s_max"],
        "memory of all three, MB": result["rss_mb"],
    }


LIMITS = {
    "emulator, CPU s/s": SHARE_MAX,
    "aggregation, CPU s/s": SHARE_MAX,
    "controller, CPU s/window": SHARE_MAX * WINDOW_MS / 1_000,
}


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
    """Return the log-log slope by least squares."""
    return float(np.polyfit(np.log(sizes), np.log(np.maximum(values, 1e-9)), 1)[0])


def breaks_at(sizes: Sequence[int], values: Sequence[float], limit: float) -> float:
    """Return the number of brokers at which the limit is reached, by the log-log line through the two nearest sizes.

    Infinity if values do not grow.
    """
    above = next((place for place, value in enumerate(values) if value >= limit), len(values) - 1)
    high = max(above, 1)
    slope = exponent(sizes[high - 1 : high + 1], values[high - 1 : high + 1])
    return math.inf if slope < SLOPE_MIN else sizes[high] * (limit / values[high]) ** (1 / slope)


def measure(sizes: Sequence[int], seconds: float, rate_per_s: float) -> list[Figure]:
    """Run all sizes, print the table, return its figures."""
    by_size: dict[int, dict[str, float]] = {}
    figures: list[Figure] = []
    for brokers in sizes:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            result = pool.apply(run_size, (brokers, seconds, rate_per_s))
        by_size[brokers] = per_second(result, seconds)
        print(f"{brokers} brokers: {result['delivered']:,} deliveries, {result['plans']} plans, none lost, "
              f"{result['wall_s']:.0f} s of wall time", flush=True)  # fmt: skip
    width = max(map(len, by_size[sizes[0]]))
    print(" ".join([f"{'':{width}}", *(f"{brokers:>9}" for brokers in sizes), " exponent  breaks at"]))
    for row in by_size[sizes[0]]:
        values = [by_size[brokers][row] for brokers in sizes]
        slope = exponent(sizes, values) if len(sizes) > 1 else math.nan
        at = breaks_at(sizes, values, LIMITS[row]) if row in LIMITS and len(sizes) > 1 else math.inf
        cells = [f"{value:>9.3g}" for value in values]
        print(" ".join([f"{row:{width}}", *cells, f"{slope:>9.2f}", f"{at:>10,.0f}" if at < math.inf else ""]))
        figures += [
            Figure(row, {"brokers": size}, round(value, 4), "") for size, value in zip(sizes, values, strict=True)
        ]
        figures.append(Figure(f"exponent of {row}", {"sizes": ",".join(map(str, sizes))}, round(slope, 3), "1"))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="40,100,400,1000,4000", help="numbers of brokers, with commas, ascending")
    parser.add_argument("--seconds", type=float, default=30.0, help="virtual time measured of each size")
    parser.add_argument("--rate", type=float, default=0.5, help="notifications per second of each of 49 publishers")
    parser.add_argument("--json", type=Path, help="file for the figures")
    given = parser.parse_args()
    sizes = [int(size) for size in given.sizes.split(",")]
    figures = measure(sizes, given.seconds, given.rate)
    if given.json is not None:
        write_figures(given.json, run_facts({"seconds": given.seconds, "rate_per_s": given.rate}, SEED), figures)


if __name__ == "__main__":
    main()
