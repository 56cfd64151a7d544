"""Measure how sampled telemetry worsens decisions, and what it saves in cells and bytes; asserts the limit at 1/8.

``python -m lab.benchmarks.bench_sampling [--brokers 100] [--seeds 1,2,...] [--ticks N] [--run N] [--json FILE]``.
Traffic is that of Jaeger07, links cost PlanetLab's round trips. A random tree is swapped to a local optimum judged by a
sample, then priced on the full telemetry: "above" is its excess cost over the tree found with full telemetry, as mean
and range over the seeds. Cells and bytes are those that 40 emulated brokers with the demo's workload send to Kafka.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from regraft.api.emulation import VirtualOverlay, VirtualSettings, measured_rtt_ms, place_overlay
from regraft.api.emulation import WorkloadSettings as StockSettings
from regraft.api.overlays import DeliverySets, Inventory, WeightedSets
from regraft.api.planners import Search, descend
from regraft.api.programs import Figure, run_facts, write_figures
from regraft.api.records import RUNS, SampleRule, Sampling, encode, sample_masks
from regraft.api.trees import TreeCosts, overlay_cost, random_tree
from regraft_lab.psoop.paper_workload import WorkloadSettings, draw_workload

SHARES = (1.0, 0.5, 0.25, 0.125, 0.0625)
DEGREE_MAX = 8
COUNTS_S = 5
ABOVE_MAX, ABOVE_SHARE = 0.01, 0.125
FLEET, FLEET_S, SETTLE_S = 40, 20, 5


def draw_situation(brokers: int, ticks: int, seed: int) -> tuple[Inventory, DeliverySets]:
    """Return brokers on a random tree, and the full delivery sets."""
    generator = np.random.default_rng(seed)
    workload = draw_workload(
        WorkloadSettings(broker_count=brokers, type_count=brokers // 2, duration_ticks=ticks), generator
    )
    names = tuple(f"b{position:03d}" for position in range(brokers))
    rtt_ms = measured_rtt_ms()
    chosen = generator.choice(len(rtt_ms), brokers, replace=False)
    tree = random_tree(names, DEGREE_MAX, random.Random(seed))
    inventory = Inventory(names, np.zeros(brokers), rtt_ms[np.ix_(chosen, chosen)], DEGREE_MAX, tree)
    return inventory, workload.published_sets(names, 0, workload.notification_count, ticks)


def sample_of(sets: DeliverySets, sampling: Sampling) -> DeliverySets:
    """Return the part of the sets that the controller receives with this sampling."""
    rule = SampleRule(sampling.power, sampling.run)
    masks = np.array([sample_masks(name, np.array([block]), rule)[0] for name, block in sets.columns])
    kept = np.flatnonzero(masks)
    columns = tuple(sets.columns[place] for place in kept.tolist())
    words, share = sets.words[:, kept] & masks[kept], sampling.share
    return replace(sets, columns=columns, words=words, span_s=sets.span_s * share, share=share)


def cost_decided(inventory: Inventory, seen: DeliverySets, full: DeliverySets) -> float:
    """Return the cost on full telemetry of the tree reached by swaps that are judged by the telemetry seen."""
    assert inventory.bootstrap.KIND == "tree"
    costs = TreeCosts(inventory.bootstrap, inventory, WeightedSets.over_all([seen]))  # type: ignore[arg-type]
    for _ in descend(costs, Search(sys.maxsize, DEGREE_MAX, None)):
        pass
    tree = type(inventory.bootstrap)(0, inventory.brokers, tuple(sorted(costs.links)))  # type: ignore[call-arg]
    return overlay_cost(tree, inventory, full).total_per_s  # type: ignore[arg-type]


def sent(share: float, run: int) -> tuple[int, int]:
    """Return how many telemetry cells and bytes an emulated fleet sends with this sampling."""
    virtual = VirtualOverlay(
        place_overlay(FLEET, DEGREE_MAX, random.Random(1)),
        StockSettings(),
        VirtualSettings(sampling=Sampling.of(share, COUNTS_S, run)),
    )
    virtual.run_for((FLEET_S + SETTLE_S) * 1_000.0)
    batches = [batch.packed() for batch in virtual.telemetry.batches]
    return sum(len(batch.cells()) for batch in batches), sum(len(encode(batch)) for batch in batches)


def main() -> None:
    """Measure, print a table, write the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--seeds", default="1,2,3,4,5,6,7,8")
    parser.add_argument("--ticks", type=int, default=10_000)
    parser.add_argument("--run", type=int, default=min(RUNS), choices=sorted(RUNS))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    situations = [draw_situation(arguments.brokers, arguments.ticks, seed) for seed in seeds]
    base = [cost_decided(inventory, full, full) for inventory, full in situations]
    all_cells, all_bytes = sent(1.0, arguments.run)
    blocks = statistics.fmean(len(full.columns) for _, full in situations)
    print(f"{arguments.brokers} brokers, {blocks:.0f} blocks; {all_cells} cells, {all_bytes} bytes in full", flush=True)
    figures, above = [], {}
    for share in SHARES:
        sampling = Sampling.of(share, COUNTS_S, arguments.run)
        costs = [cost_decided(inventory, sample_of(full, sampling), full) for inventory, full in situations]
        each = [cost / best - 1 for cost, best in zip(costs, base, strict=True)]
        above[share] = statistics.fmean(each)
        cells, size = sent(share, arguments.run)
        saved = f"cells {cells / all_cells:.2f}, bytes {size / all_bytes:.2f}"
        above_text = f"above {above[share]:7.2%} ({min(each):.2%} to {max(each):.2%})"
        print(f"1/{1 / share:.0f}: {above_text}, {saved}", flush=True)
        where: dict[str, str | int | float] = {"brokers": arguments.brokers, "share": share}
        for name, value in (("above", above[share]), ("cells", cells / all_cells), ("bytes", size / all_bytes)):
            figures.append(Figure(name, where, value, "share"))
    if arguments.json:
        settings = {"brokers": arguments.brokers, "seeds": seeds, "ticks": arguments.ticks, "run": arguments.run}
        write_figures(arguments.json, run_facts(settings, seeds[0]), figures)
    assert above[ABOVE_SHARE] <= ABOVE_MAX, f"{above[ABOVE_SHARE]:.2%} above at 1/8, at most {ABOVE_MAX:.0%} is allowed"


if __name__ == "__main__":
    main()
