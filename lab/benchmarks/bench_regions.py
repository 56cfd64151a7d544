"""Measure how much the tree that a search ends at depends on its start: random, cheap, or by regions; asserts limits.

``python -m lab.benchmarks.bench_regions [--networks planetlab,transit-stub] [--brokers 400] [--regions 8] [--json
FILE]``. Traffic is that of Jaeger07, brokers cost nothing and have at most 8 links. Regions are clusters by delay, of
bounded size; the broker nearest to the others of a region is its border. The tree of borders comes first, with half of
a border's links. A region sees the rest of the overlay as leaves of its border that want what is wanted outside: its
links cost what they will cost in the whole tree. Both ways start at random trees, and end with an annealing of the
default budget. Then the whole tree is searched from where the regions lead, and from the tree of cheap links with
which ``regraft inventory make`` begins.
"""

import argparse
import random
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lab.benchmarks.bench_escape import BUDGETS, DEGREE_MAX, WINDOW_TICKS, WINDOWS, network_costs
from regraft.api.kinds import kind_of
from regraft.api.overlays import DeliverySets, Inventory, WeightedSets, link
from regraft.api.planners import Search, descend, escape
from regraft.api.planning import ControllerSettings
from regraft.api.programs import Figure, run_facts, show_progress, write_figures
from regraft.api.trees import TreeConfiguration, TreeCosts, cheap_tree, random_tree
from regraft_lab.psoop.paper_workload import WorkloadSettings, draw_workload
from regraft_lab.psoop.topologies import Costs

BORDER_LINKS = DEGREE_MAX // 2  # Of a border, to other borders.
ROUNDS = 10  # Of clustering.
FAR = 1e6  # The cost of links that no tree may have.
OUTSIDE = "~"  # Begins the names of the leaves that stand for the rest of the overlay.
RISE_MAX = 0.01  # Of the cost, if the whole tree is searched from where the regions lead, or from cheap links.


@dataclass(frozen=True)
class Overlay:
    """Brokers, their delays and what they want."""

    sets: DeliverySets
    link_cost: Costs
    seed: int

    @classmethod
    def drawn(cls, network: str, brokers: int, seed: int, data: Path | None) -> "Overlay":
        """Return an overlay in a network of ``bench_escape``, with traffic of Jaeger07."""
        generator = np.random.default_rng(seed)
        ticks = WINDOW_TICKS * WINDOWS
        settings = WorkloadSettings(broker_count=brokers, type_count=brokers // 2, duration_ticks=ticks)
        workload = draw_workload(settings, generator)
        names = tuple(f"b{position:04d}" for position in range(brokers))
        link_cost = network_costs(network, brokers, data, generator)
        return cls(workload.delivery_sets(names, 0, workload.notification_count, ticks), link_cost, seed)


def costs_of(tree: TreeConfiguration, link_cost: Costs, sets: DeliverySets) -> TreeCosts:
    """Return the costs of a tree whose brokers cost nothing."""
    inventory = Inventory(tree.brokers, np.zeros(len(tree.brokers)), link_cost, DEGREE_MAX, tree)
    return TreeCosts(tree, inventory, WeightedSets.over_all([sets]))


def decided(costs: TreeCosts, seed: int, degree_max: int = DEGREE_MAX) -> TreeCosts:
    """Return a tree that no swap improves, annealed."""
    for _ in descend(costs, Search(sys.maxsize, degree_max, None)):
        pass
    return escape(costs, Search(BUDGETS[0], degree_max, None), random.Random(seed)) or costs


def clusters(link_cost: Costs, count: int) -> tuple[NDArray[np.intp], list[int]]:
    """Return each broker's region, of at most twice the mean size, and each region's border (k-medoids)."""
    borders = [0]
    while len(borders) < count:
        borders.append(int(link_cost[borders].min(axis=0).argmax()))
    region = np.zeros(len(link_cost), dtype=np.intp)
    for _ in range(ROUNDS):
        room = np.full(count, 2 * len(link_cost) // count)
        for broker in np.argsort(link_cost[borders].min(axis=0)).tolist():
            region[broker] = next(each for each in np.argsort(link_cost[borders, broker]) if room[each])
            room[region[broker]] -= 1
        inside = [np.flatnonzero(region == each) for each in range(count)]
        borders = [int(each[link_cost[np.ix_(each, each)].sum(axis=1).argmin()]) for each in inside]
    return region, borders


def decided_region(overlay: Overlay, inside: NDArray[np.intp], border: int, outward: int) -> TreeCosts:
    """Return the tree of a region, with as many leaves at its border as that has links to others."""
    sets, size = overlay.sets, len(inside)
    elsewhere = np.setdiff1d(np.arange(len(sets.brokers)), inside)
    outside = np.bitwise_or.reduce(sets.words[elsewhere], axis=0)
    words = np.concatenate([sets.words[inside], np.repeat(outside[None], outward, axis=0)])
    names = (*(sets.brokers[broker] for broker in inside), *(f"{OUTSIDE}{leaf}" for leaf in range(outward)))
    link_cost = np.full((size + outward, size + outward), FAR)
    link_cost[:size, :size] = overlay.link_cost[np.ix_(inside, inside)]
    place = int(np.flatnonzero(inside == border)[0])
    link_cost[place, size:] = link_cost[size:, place] = 0.0
    np.fill_diagonal(link_cost, 0.0)
    links = [link(names[place], leaf) for leaf in names[size:]]
    if size > 1:
        links += random_tree(names[:size], DEGREE_MAX - BORDER_LINKS, random.Random(overlay.seed)).links
    tree = TreeConfiguration.of(0, names, links)
    # All want one more notification, or brokers that want nothing could as well be behind a leaf.
    words = np.column_stack([words, np.ones(len(words), dtype=np.uint64)])
    wanted = DeliverySets(names, (*sets.columns, (OUTSIDE, 0)), words, sets.span_s, words)
    return decided(costs_of(tree, link_cost, wanted), overlay.seed)


def joined(overlay: Overlay, count: int) -> TreeConfiguration:
    """Return the tree of the borders with those of all regions."""
    sets = overlay.sets
    region, borders = clusters(overlay.link_cost, count)
    order = np.argsort(borders)
    wanted = np.array([np.bitwise_or.reduce(sets.words[region == each], axis=0) for each in order])
    places = np.array(borders)[order]
    names = tuple(sets.brokers[place] for place in places)
    tree = random_tree(names, BORDER_LINKS, random.Random(overlay.seed))
    between = np.ascontiguousarray(overlay.link_cost[np.ix_(places, places)])
    costs = costs_of(tree, between, replace(sets, brokers=names, words=wanted, delivered=wanted))
    top = decided(costs, overlay.seed, BORDER_LINKS)
    links = list(top.links)
    for each, outward in zip(order.tolist(), top.degrees.tolist(), strict=True):
        own = decided_region(overlay, np.flatnonzero(region == each), borders[each], outward)
        links += [pair for pair in own.links if not any(end.startswith(OUTSIDE) for end in pair)]
    return TreeConfiguration.of(0, sets.brokers, links)


def measure(network: str, chosen: argparse.Namespace) -> list[Figure]:
    """Return by how much each way ends above the search from a random tree, and its processor time."""
    overlay = Overlay.drawn(network, chosen.brokers, chosen.seed, chosen.data)
    start = random_tree(overlay.sets.brokers, DEGREE_MAX, random.Random(chosen.seed))
    settings = ControllerSettings(bootstrap="", inventory_path=Path())
    kind_of(
        Inventory(start.brokers, np.zeros(chosen.brokers), overlay.link_cost, DEGREE_MAX, start), settings
    ).prepare()
    begin_s = time.process_time()
    whole = decided(costs_of(start, overlay.link_cost, overlay.sets), chosen.seed)
    whole_s, begin_s = time.process_time() - begin_s, time.process_time()
    tree = joined(overlay, chosen.regions)
    apart_s = time.process_time() - begin_s
    apart = costs_of(tree, overlay.link_cost, overlay.sets)
    assert max(apart.degrees) <= DEGREE_MAX
    apart_per_s = apart.cost_per_s
    after = decided(apart, chosen.seed)
    after_s, begin_s = time.process_time() - begin_s, time.process_time()
    cheap = decided(
        costs_of(cheap_tree(start.brokers, overlay.link_cost, DEGREE_MAX), overlay.link_cost, overlay.sets), chosen.seed
    )
    cheap_s = time.process_time() - begin_s
    ends = {"whole": (whole.cost_per_s, whole_s), "apart": (apart_per_s, apart_s), "both": (after.cost_per_s, after_s)}
    ends["cheap"] = cheap.cost_per_s, cheap_s
    figures = []
    for way, (cost_per_s, cpu_s) in ends.items():
        where: dict[str, str | int | float] = {"network": network, "brokers": chosen.brokers, "way": way}
        figures.append(Figure("rise_percent", where, 100 * (cost_per_s / whole.cost_per_s - 1), "%"))
        figures.append(Figure("cpu_s", where, cpu_s, "s"))
    return figures


def main() -> None:
    """Measure, print a table and the limit, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default="planetlab,transit-stub", help="as of bench_escape, with commas")
    parser.add_argument("--brokers", type=int, default=400)
    parser.add_argument("--regions", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", type=Path, metavar="DIR", help="as of bench_escape")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    figures: list[Figure] = []
    networks = chosen.networks.split(",")
    with show_progress("deciding", len(networks)) as advance:
        for number, network in enumerate(networks):
            advance(network, number)
            figures += measure(network, chosen)
    for each in figures:
        print(f"{each.name:12} {each.where['network']:16} {each.where['way']:6} {each.value:9.2f} {each.unit}")
    if chosen.json:
        settings = {"brokers": chosen.brokers, "regions": chosen.regions}
        write_figures(chosen.json, run_facts(settings, chosen.seed), figures)
    risen = [each for each in figures if each.name == "rise_percent" and each.where["way"] in ("both", "cheap")]
    sys.exit(1 if any(each.value > 100 * RISE_MAX for each in risen) else 0)


if __name__ == "__main__":
    main()
