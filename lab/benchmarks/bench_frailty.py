"""Compare overlays optimized with several weights on the worst single death: what the weight costs and what it saves.

``python -m lab.benchmarks.bench_frailty [--brokers N] [--networks N] [--weights 0,0.1,...] [--seed N] [--json FILE]``.
Link costs come from transit-stub networks and from PlanetLab's measured delays, traffic from Jaeger07. Each overlay
starts as a random tree and is improved by ``swap_links_cost`` until no swap is left, with at most 8 links a broker and
without a cap. Figures are means over the networks: the cost relative to weight 0, the share of all deliveries that the
worst death cuts off, the same for the death of a random broker, and the largest number of links of a broker. ``star``
is the best star, for comparison. docs/frailty.md discusses the results.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regraft.api.overlays import Inventory, WeightedSets
from regraft.api.planners import FrailtyPrice, Search, descend
from regraft.api.programs import Figure, run_facts, show_progress, write_figures
from regraft.api.trees import (
    DeliveryPairs,
    TreeConfiguration,
    TreeCosts,
    bootstrap_tree,
    random_tree,
    tree_cut_off,
)
from regraft_lab.psoop.paper_workload import WorkloadSettings, draw_workload
from regraft_lab.psoop.topologies import planetlab_costs, transit_stub_costs

DEGREE_MAX = 8
BROKERS_PER_TYPE = 2
TICKS = 4000
PROCESSING_COST = 1.0  # A tenth of the longest path: both links and brokers on a notification's path count.
SWAPS_PER_PLAN = 12
STAR = "star"
NETWORKS: dict[str, Callable[[int, np.random.Generator], NDArray[np.float64]]] = {
    "transit-stub": transit_stub_costs,
    "planetlab": planetlab_costs,
}
MEASURES = ("cost_relative", "cut_off_worst_share", "cut_off_mean_share", "links_max")


@dataclass(frozen=True)
class Network:
    """Link costs with traffic: who wants what where, and the deliveries by home and broker."""

    inventory: Inventory
    sets: WeightedSets
    deliveries: DeliveryPairs

    def measured(self, tree: TreeConfiguration) -> tuple[float, float, float, float]:
        """Return the tree's cost per second, both shares of deliveries cut off, and its largest degree."""
        cut_off = tree_cut_off(tree, self.deliveries)
        cost_per_s = TreeCosts(tree, self.inventory, self.sets).cost_per_s
        return cost_per_s, cut_off.worst_share, cut_off.mean_share, float(tree.degree_max)


def main() -> None:
    """Measure, print a table, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, default=60)
    parser.add_argument("--networks", type=int, default=10, help="networks of each kind")
    parser.add_argument(
        "--weights", default="0,0.1,0.2,0.3,0.5,1,2", help="with commas; costs are relative to the first"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    weights = [float(one) for one in chosen.weights.split(",")]
    figures: list[Figure] = []
    with show_progress("settling overlays", len(NETWORKS) * chosen.networks) as advance:
        done = 0
        for name in NETWORKS:
            networks = []
            for number in range(chosen.networks):
                advance(f"{name} {number + 1}", done)
                networks.append(_network(name, chosen.brokers, chosen.seed + number))
                done += 1
            figures += list(_figures(name, networks, weights, chosen.brokers))
    for place in range(0, len(figures), len(MEASURES)):
        where, values = figures[place].where, [one.value for one in figures[place : place + len(MEASURES)]]
        columns = "".join(f"  {name} {value:6.3f}" for name, value in zip(MEASURES, values, strict=True))
        print(f"{where['network']:12}  links at most {where['cap']:>4}  weight {where['weight']:>4}{columns}")
    if chosen.json:
        settings = {"brokers": chosen.brokers, "networks": chosen.networks, "weights": weights}
        write_figures(chosen.json, run_facts(settings, chosen.seed), figures)


def _figures(name: str, networks: Sequence[Network], weights: Sequence[float], brokers: int) -> Iterator[Figure]:
    for cap in (DEGREE_MAX, brokers):
        base = [network.measured(_settled(network, weights[0], cap)) for network in networks]
        for weight in [*map(str, weights), STAR]:
            figures = [
                network.measured(_star(network) if weight == STAR else _settled(network, float(weight), cap))
                for network in networks
            ]
            relative = [one[0] / start[0] for one, start in zip(figures, base, strict=True)]
            values = [statistics.fmean(relative), *(statistics.fmean(one[at] for one in figures) for at in (1, 2, 3))]
            where: dict[str, str | int | float] = {"network": name, "cap": cap, "weight": weight, "brokers": brokers}
            for measure, value in zip(MEASURES, values, strict=True):
                yield Figure(measure, where, value, "")


def _network(kind: str, brokers: int, seed: int) -> Network:
    generator = np.random.default_rng(seed)
    settings = WorkloadSettings(broker_count=brokers, type_count=brokers // BROKERS_PER_TYPE, duration_ticks=TICKS)
    workload = draw_workload(settings, generator)
    names = tuple(f"b{position:03d}" for position in range(brokers))
    tree = random_tree(names, DEGREE_MAX, random.Random(f"tree {seed}"))
    costs = NETWORKS[kind](brokers, generator)
    inventory = Inventory(names, np.full(brokers, PROCESSING_COST), costs, DEGREE_MAX, tree)
    sets = workload.published_sets(names, 0, workload.notification_count, TICKS)
    homes = workload.homes(names)
    deliveries = np.zeros((brokers, brokers))
    for (publisher, _), handed in zip(sets.columns, np.bitwise_count(sets.delivered).T, strict=True):
        deliveries[inventory.index[homes[publisher]]] += handed
    return Network(inventory, WeightedSets.over_all([sets]), DeliveryPairs.of_matrix(deliveries, TICKS))


def _settled(network: Network, weight: float, degree_max: int) -> TreeConfiguration:
    """Return a tree that no swap improves, found plan by plan; the weight is relative to the cost before each plan."""
    inventory = network.inventory
    costs = TreeCosts(bootstrap_tree(inventory), inventory, network.sets)
    while True:
        search = Search(sys.maxsize, degree_max, None)
        if weight:
            search.frailty = FrailtyPrice(inventory.brokers, network.deliveries, weight * costs.cost_per_s)
        if not list(descend(costs, search, SWAPS_PER_PLAN)):
            return TreeConfiguration.of(0, inventory.brokers, costs.links)


def _star(network: Network) -> TreeConfiguration:
    """Return the star with the lowest total link cost."""
    brokers, link_cost = network.inventory.brokers, network.inventory.link_cost
    hub = brokers[int(link_cost.sum(axis=0).argmin())]
    return TreeConfiguration.of(0, brokers, [(hub, broker) for broker in brokers if broker != hub])


if __name__ == "__main__":
    main()
