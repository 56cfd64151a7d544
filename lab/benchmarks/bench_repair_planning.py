"""Measure the CPU time of planning a repair after brokers of a tree or a ring have died.

``python -m lab.benchmarks.bench_repair_planning [--sizes 40,400,1000] [--deaths 1,10,50] [--draws N] [--json FILE]``.
Trees are random, with at most 8 links a broker, random costs and the traffic of Jaeger07 over 40 windows; leaves do not
die, because losing one disconnects nothing. On rings each broker has ten users with topics drawn by Zipf's law.
``saved_by_traffic_share_mean`` is the saving of repairs that know the traffic over repairs with the cheapest links.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np

from regraft.api.kinds import AnyKind, Repair, RepairTask, RingKind, TreeKind
from regraft.api.overlays import BrokerChange, DeliverySets, Inventory, OverlayConfiguration
from regraft.api.planning import ClosedWindow
from regraft.api.programs import Figure, run_facts, show_progress, write_figures
from regraft.api.rings import RingConfiguration, UserInterests
from regraft.api.trees import TreeConfiguration, random_tree
from regraft_lab.psoop.paper_workload import WorkloadSettings, draw_workload

DEGREE_MAX = 8
BROKERS_PER_TYPE = 2
WINDOW_TICKS = 250
WINDOWS = 40
RING_BITS = 32
USERS_PER_BROKER = 10
TOPICS_PER_USER = 5
TOPICS = 200
LOST_SHARE_MAX = 0.5  # If more than half of the brokers seem dead, monitoring has failed: no repair.


@dataclass(frozen=True)
class Scene:
    """An overlay with the windows before the deaths."""

    kind: AnyKind
    present: OverlayConfiguration
    windows: tuple[ClosedWindow, ...]


def main() -> None:
    """Measure, print a table, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="40,400,1000", help="numbers of brokers, with commas")
    parser.add_argument("--deaths", default="1,10,50", help="how many die at once, with commas")
    parser.add_argument("--draws", type=int, default=5, help="draws of the brokers that die")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    sizes, deaths = ([int(one) for one in listed.split(",")] for listed in (chosen.sizes, chosen.deaths))
    figures: list[Figure] = []
    with show_progress("planning repairs", 2 * len(sizes)) as advance:
        for done, (size, draw) in enumerate((size, draw) for size in sizes for draw in (tree_scene, ring_scene)):
            advance(f"{size} brokers", done)
            scene = draw(size, chosen.seed)
            for count in deaths:
                if count <= LOST_SHARE_MAX * size:
                    figures += list(measure(scene, count, chosen.draws, chosen.seed))
    for figure in figures:
        where = figure.where
        what = f"{where['kind']:5} {where['brokers']:5} brokers {where['deaths']:3} dead {where['traffic']:8}"
        print(f"{what} {figure.name:28} {figure.value:10.2f} {figure.unit}")
    if chosen.json:
        settings = {"sizes": sizes, "deaths": deaths, "draws": chosen.draws, "windows": WINDOWS}
        write_figures(chosen.json, run_facts(settings, chosen.seed), figures)


def measure(scene: Scene, deaths: int, draws: int, seed: int) -> Iterator[Figure]:
    """Yield the planning time with and without traffic, the links added and the saving by knowing the traffic."""
    rng = random.Random(f"deaths {seed}")  # Not the tree's seed: the draws would pick its leaves.
    brokers, neighbours = scene.present.brokers, scene.present.neighbours
    inner = [broker for broker in brokers if len(neighbours[broker]) > 1]
    lost = [frozenset(rng.sample(inner, min(deaths, len(inner)))) for _ in range(draws)]
    where: dict[str, str | int | float] = {"kind": scene.present.KIND, "brokers": len(brokers), "deaths": deaths}
    without, _ = _plan_all(scene, lost, ())
    known, repairs = _plan_all(scene, lost, scene.windows)
    for traffic, times_ms in (("unknown", without), ("known", known)):
        yield Figure("planning_cpu_ms_p50", where | {"traffic": traffic}, statistics.median(times_ms), "ms")
        yield Figure("planning_cpu_ms_max", where | {"traffic": traffic}, max(times_ms), "ms")
    joints = [len(set(repair.target.links) - set(scene.present.links)) for repair in repairs]
    yield Figure("links_added_mean", where | {"traffic": "known"}, statistics.fmean(joints), "links")
    if isinstance(scene.kind, TreeKind):
        blind = [
            scene.kind.repaired(cast(TreeConfiguration, scene.present), _task(scene, each)).target for each in lost
        ]
        costs = [
            [_cost_per_s(scene, tree) for tree in pair]
            for pair in zip([one.target for one in repairs], blind, strict=True)
        ]
        saved = [1 - cost / cost_blind for cost, cost_blind in costs]
        yield Figure("saved_by_traffic_share_mean", where | {"traffic": "known"}, statistics.fmean(saved), "")


def _plan_all(
    scene: Scene, lost: list[frozenset[str]], windows: tuple[ClosedWindow, ...]
) -> tuple[list[float], list[Repair]]:
    times_ms, repairs = [], []
    for each in lost:
        begin = time.process_time()
        repair = scene.kind.repaired(scene.present, _task(scene, each, windows))
        repair.plan(scene.present, 1, 0)
        times_ms.append((time.process_time() - begin) * 1000)
        repairs.append(repair)
    return times_ms, repairs


def _task(scene: Scene, lost: frozenset[str], windows: tuple[ClosedWindow, ...] = ()) -> RepairTask:
    return RepairTask(BrokerChange(lost=lost), scene.kind.inventory, windows)


def _cost_per_s(scene: Scene, tree: OverlayConfiguration) -> float:
    """Return the cost of the traffic on a repaired tree, without the publications of the dead brokers."""
    return float(scene.kind.repaired(tree.with_homes({}), _task(scene, frozenset(), scene.windows)).cost_after_per_s)


def tree_scene(size: int, seed: int) -> Scene:
    """Return a random tree with the traffic of Jaeger07."""
    generator = np.random.default_rng(seed)
    settings = WorkloadSettings(
        broker_count=size, type_count=size // BROKERS_PER_TYPE, duration_ticks=WINDOW_TICKS * WINDOWS
    )
    workload = draw_workload(settings, generator)
    names = tuple(f"b{position:04d}" for position in range(size))
    costs = np.triu(generator.uniform(0, 10, (size, size)), 1)
    tree = random_tree(names, DEGREE_MAX, random.Random(seed))
    inventory = Inventory(names, generator.uniform(0, 10, size), costs + costs.T, DEGREE_MAX, tree)
    windows = []
    for place in range(WINDOWS):
        begin, end = place * WINDOW_TICKS, (place + 1) * WINDOW_TICKS
        sets = workload.published_sets(names, workload.first_id_at(begin), workload.first_id_at(end), WINDOW_TICKS)
        columns = tuple((name, 1000 * place + column) for name, column in sets.columns)  # No two windows share any.
        named = replace(sets, columns=columns)
        _ = named.distinct  # In a live controller earlier decisions have merged these already.
        windows.append(ClosedWindow(begin, end, named, epoch_min=0, epoch_max=0, homes=workload.homes(names)))
    return Scene(TreeKind(inventory, DEGREE_MAX), tree, tuple(windows))


def ring_scene(size: int, seed: int) -> Scene:
    """Return a ring by consistent hashing with users of skewed interests."""
    generator = np.random.default_rng(seed)
    names = tuple(f"b{position:04d}" for position in range(size))
    ring = RingConfiguration.hashed(0, RING_BITS, names)
    zeros = np.zeros((size, size))
    inventory = Inventory(names, np.zeros(size), zeros, DEGREE_MAX, ring)
    topics = [f"t{number}" for number in range(TOPICS)]
    shares = 1 / np.arange(1, TOPICS + 1)
    users = {
        f"u{number}": (
            names[number % size],
            [topics[one] for one in generator.choice(TOPICS, TOPICS_PER_USER, False, shares / shares.sum())],
        )
        for number in range(USERS_PER_BROKER * size)
    }
    sets = DeliverySets.of(names, {}, 1.0)
    window = ClosedWindow(0, 1000, sets, interests=UserInterests.of(names, users), epoch_min=0, epoch_max=0)
    rates = {topic: float(share) for topic, share in zip(topics, generator.uniform(0, 10, TOPICS), strict=True)}
    return Scene(RingKind(inventory, 1.0, 2.0), ring, (replace(window, topic_rates_per_s=rates),))


if __name__ == "__main__":
    main()
