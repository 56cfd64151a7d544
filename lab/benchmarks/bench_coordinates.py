"""Measure the error of link costs estimated by network coordinates on PlanetLab's round trips; asserts the limits.

``python -m lab.benchmarks.bench_coordinates [--hosts N] [--windows N] [--json FILE]``. Three selections of peers are
compared: each host measures near and randomly drawn hosts in the numbers that nodes use, 8 of each, or near hosts only.
The error is taken over the pairs that no host measures. Times are processor times for one window.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regraft.api.emulation import NEAR_MAX, NetworkCoordinates, measured_rtt_ms
from regraft.api.overlays import Link
from regraft.api.programs import Figure, run_facts, write_figures

# By (near, drawn): upper limits of the median and the 90th percentile of the relative error.
LIMITS = {(NEAR_MAX, NEAR_MAX): (0.125, 0.4), (8, 8): (0.15, 0.45)}
PEERS = (*LIMITS, (2 * NEAR_MAX, 0))


def main() -> None:
    """Measure, print a table and the limits, write the figures; exit with 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=150)
    parser.add_argument("--windows", type=int, default=24)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    whole = measured_rtt_ms()
    hosts = sorted(random.Random(chosen.seed).sample(range(len(whole)), chosen.hosts))
    costs = whole[np.ix_(hosts, hosts)] / 2
    figures, failed = [], 0
    for near, drawn in PEERS:
        median, high, window_s = _errors(costs, near, drawn, chosen.windows, chosen.seed)
        limits = LIMITS.get((near, drawn))
        is_over = limits is not None and (median > limits[0] or high > limits[1])
        failed += is_over
        verdict = "" if limits is None else f"  limits {limits[0]:.1%}, {limits[1]:.1%}{': OVER' if is_over else ''}"
        errors = f"median {median:6.1%}, p90 {high:6.1%}, {window_s:.3f} s a window"
        print(f"{near:3} near, {drawn:3} drawn: {errors}{verdict}")
        where = {"near": near, "drawn": drawn, "hosts": chosen.hosts}
        figures += [
            Figure("error_median", where, median, "share"),
            Figure("error_p90", where, high, "share"),
            Figure("window_s", where, window_s, "s"),
        ]
    if chosen.json:
        settings = {"hosts": chosen.hosts, "windows": chosen.windows}
        write_figures(chosen.json, run_facts(settings, chosen.seed), figures)
    sys.exit(1 if failed else 0)


def _errors(costs: NDArray[np.float64], near: int, drawn: int, windows: int, seed: int) -> tuple[float, float, float]:
    """Return the median and the 90th percentile of the relative error, and the processor time of one window."""
    count, rng = len(costs), random.Random(seed)
    pairs = {(a, int(b)) for a in range(count) for b in np.argsort(costs[a])[1 : near + 1] if a < b}
    pairs |= {(a, b) for a in range(count) for b in rng.sample([*range(a), *range(a + 1, count)], drawn) if a < b}
    names = [f"b{place:03d}" for place in range(count)]
    measured: dict[Link, float] = {(names[a], names[b]): float(costs[a, b]) for a, b in pairs}
    coordinates = NetworkCoordinates(seed)
    began_s = time.process_time()
    for _ in range(windows):
        coordinates.relax(measured)
    window_s = (time.process_time() - began_s) / windows
    estimates = coordinates.estimates(names).link_cost
    unmeasured = [pair for pair in itertools.combinations(range(count), 2) if pair not in pairs]
    errors = [abs(float(estimates[pair]) - costs[pair]) / costs[pair] for pair in unmeasured]
    return float(np.nanmedian(errors)), float(np.nanquantile(errors, 0.9)), window_s


if __name__ == "__main__":
    main()
