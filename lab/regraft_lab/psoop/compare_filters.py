"""Measure how Cost and Interest's trees depend on the way in which brokers share their interest.

``python -m regraft_lab.psoop.compare_filters [--instances N] [--json FILE]``. In: the paper's traffic over five
lifetimes of a subscription. Out: figures and a table. The questions are those that Jaeger07, section 6, leaves open:
which size and how many hash functions a Bloom filter should have, and whether the conjunction of filters gives a better
common interest of three brokers than the estimate of section 4.1.

Every way of sharing sees the same four lifetimes in every round, so that nothing else differs; the trees are judged on
these four and on the fifth, which no broker saw. Traffic during decisions does not belong here.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import numpy as np
from rich import box
from rich.table import Table

from regraft.api.overlays import Inventory, WeightedSets
from regraft.api.planning import ClosedWindow, TreeContext, TreeState
from regraft.api.programs import Figure, run_facts, show_progress, write_figures
from regraft.api.trees import TreeCosts, random_tree
from regraft_lab.command_parts import instance_count, table_console
from regraft_lab.planners.swap_links_ci_paper import InterestSettings, swap_links_ci_paper
from regraft_lab.psoop.paper_workload import WorkloadSettings, draw_workload
from regraft_lab.psoop.topologies import COST_MAX, Costs, transit_stub_costs, uniform_costs
from regraft_lab.yardsticks.bloom_filters import (
    PAPER_BITS,
    PAPER_HASHES,
    FilterShape,
    false_positive_share,
    filter_shape,
)
from regraft_lab.yardsticks.interest_caches import PAPER_CACHE_IDS

INSTANCES = 5
BROKERS = 100
LIFETIMES_SEEN = 4
LIFETIMES_LATER = 1
ROUNDS = 40
ROUNDS_JUDGED = 10  # With estimates the brokers never quite settle, so their last trees are averaged.
ID_BYTES = 8
TOPOLOGIES: dict[str, Callable[[int, np.random.Generator], Costs]] = {
    "uniform": uniform_costs,
    "transit-stub": transit_stub_costs,
}


@dataclass(frozen=True)
class SharingVariant:
    """One way to share interest. ``shape``: None shares all identifiers. ``ids_max``: None remembers all of them."""

    name: str
    ids_max: int | None
    shape: FilterShape | None
    conjunction: bool = False

    @property
    def settings(self) -> InterestSettings:
        """The planner's settings; otherwise the paper's rules, without ranking by true gain."""
        settings = InterestSettings(order="arrival", cache_ids_max=self.ids_max)
        if self.shape is not None:
            settings = replace(settings, bloom_bits=self.shape.bits, bloom_hashes=self.shape.hashes)
        return replace(settings, path_interest="conjunction") if self.conjunction else settings

    @property
    def false_positive_share(self) -> float:
        """The share of identifiers not in a full cache that its broadcast claims to contain."""
        return 0.0 if self.shape is None else false_positive_share(PAPER_CACHE_IDS, self.shape)

    @property
    def broadcast_bytes(self) -> int:
        """The bytes of a full cache in a broadcast."""
        return ID_BYTES * PAPER_CACHE_IDS if self.shape is None else self.shape.size_bytes


def sharing_variants() -> tuple[SharingVariant, ...]:
    """Return the ways to compare; filters for a share of false positives are as small as a full cache allows."""
    shapes = {
        "masks": None,
        "paper's filter": FilterShape(PAPER_BITS, PAPER_HASHES),
        "filter for 1 %": filter_shape(PAPER_CACHE_IDS, 0.01),
        "filter for 10 %": filter_shape(PAPER_CACHE_IDS, 0.1),
        "filter for 30 %": filter_shape(PAPER_CACHE_IDS, 0.3),
    }
    return (
        SharingVariant("all, exactly", None, None),
        *(SharingVariant(name, PAPER_CACHE_IDS, shape) for name, shape in shapes.items()),
        *(
            SharingVariant(f"{name}, conjunction", PAPER_CACHE_IDS, shape, conjunction=True)
            for name, shape in shapes.items()
        ),
    )


def start_state(topology: str, seed: int) -> tuple[TreeState, WeightedSets]:
    """Return a random tree with costs and traffic as in section 5, and the traffic after that."""
    rng = np.random.default_rng(seed)
    names = tuple(f"b{number:02d}" for number in range(BROKERS))
    link_cost = TOPOLOGIES[topology](BROKERS, rng)
    processing_cost = rng.uniform(0.0, COST_MAX, BROKERS)
    lifetime_ticks = WorkloadSettings().lifetime_ticks
    duration_ticks = int((LIFETIMES_SEEN + LIFETIMES_LATER) * lifetime_ticks)
    workload = draw_workload(WorkloadSettings(broker_count=BROKERS, duration_ticks=duration_ticks), rng)
    seen_ticks = LIFETIMES_SEEN * lifetime_ticks
    first_later = workload.first_id_at(seen_ticks)
    seen = workload.delivery_sets(names, 0, first_later, seen_ticks)
    later = workload.delivery_sets(names, first_later, workload.notification_count, duration_ticks - seen_ticks)
    tree = random_tree(names, BROKERS, random.Random(seed))
    inventory = Inventory(names, processing_cost, link_cost, BROKERS, tree)
    return TreeState(tree, inventory, (ClosedWindow(0, int(seen_ticks), seen),)), WeightedSets.over_all([later])


def adapted_shares(state: TreeState, later: WeightedSets, variant: SharingVariant, seed: int) -> tuple[float, float]:
    """Return the mean cost of the brokers' last trees (Eq. 1-2) as a share of the first tree's.

    The first value is on the traffic that the brokers saw, the second on that of the next lifetime.
    """
    rng = random.Random(seed)
    settings = variant.settings
    trees = [state.configuration]
    for _ in range(ROUNDS):
        configuration = state.configuration
        for proposal in swap_links_ci_paper(state, settings, TreeContext(), rng):
            configuration = configuration.replaced(
                configuration.epoch + 1, proposal.links_removed, proposal.links_added
            )
        state = state.with_configuration(configuration)
        trees.append(configuration)
    judged = [trees[0], *trees[-ROUNDS_JUDGED:]]
    shares = []
    for traffic in (state.weighted, later):
        start, *ends = (TreeCosts(tree, state.inventory, traffic).cost_per_s for tree in judged)
        shares.append(fmean(ends) / start)
    return shares[0], shares[1]


def filter_figures(
    topologies: Sequence[str], seeds: range, on_progress: Callable[[str, int], None] | None = None
) -> list[Figure]:
    """Return the figures of every way of sharing on every kind of network, over one instance per seed.

    ``cost_share`` and ``later_cost_share``: means of the two values of :func:`adapted_shares`. ``cost_share_to_masks``:
    mean of each instance's ratio to exact masks of the same cache with the paper's estimate;
    ``cost_share_to_masks_error``: its standard error.
    """
    figures: list[Figure] = []
    done = 0
    variants = sharing_variants()
    for topology in topologies:
        shares = np.zeros((len(variants), 2, len(seeds)))
        for place, seed in enumerate(seeds):
            state, later = start_state(topology, seed)
            for row, variant in enumerate(variants):
                shares[row, :, place] = adapted_shares(state, later, variant, seed)
                done += 1
                if on_progress is not None:
                    on_progress(f"{topology}, {variant.name}", done)
        masks = shares[[variant.name for variant in variants].index("masks")]
        for row, variant in enumerate(variants):
            figures += _figures_of(topology, variant, shares[row], shares[row, 0] / masks[0])
    return figures


def _figures_of(topology: str, variant: SharingVariant, shares: Costs, to_masks: Costs) -> list[Figure]:
    count = len(to_masks)
    where: dict[str, str | int | float] = {
        "costs": topology,
        "telling": variant.name,
        "bits": variant.shape.bits if variant.shape else 0,
        "hashes": variant.shape.hashes if variant.shape else 0,
        "instances": count,
    }
    error = float(to_masks.std(ddof=1)) / count**0.5 if count > 1 else 0.0
    return [
        Figure("cost_share", where, float(shares[0].mean()), "1"),
        Figure("later_cost_share", where, float(shares[1].mean()), "1"),
        Figure("cost_share_to_masks", where, float(to_masks.mean()), "1"),
        Figure("cost_share_to_masks_error", where, error, "1"),
        Figure("false_positive_share", where, variant.false_positive_share, "1"),
        Figure("broadcast_size", where, variant.broadcast_bytes, "byte"),
    ]


def filter_table(figures: Sequence[Figure], topology: str) -> Table:
    """Return the table of one kind of network: a row for each way of sharing."""
    rows: dict[str, dict[str, float]] = {}
    for figure in figures:
        if figure.where["costs"] == topology:
            rows.setdefault(str(figure.where["telling"]), {})[figure.name] = figure.value
    table = Table(title=f"Cost and Interest, {topology} costs: by how interest is shared", box=box.SIMPLE)
    table.add_column("shared")
    for head in ("bytes a broadcast", "false positives", "cost to random tree", "a lifetime later", "to exact masks"):
        table.add_column(head, justify="right")
    for name, row in rows.items():
        table.add_row(
            name,
            f"{row['broadcast_size']:,.0f}",
            f"{row['false_positive_share']:.2%}",
            f"{row['cost_share']:.3f}",
            f"{row['later_cost_share']:.3f}",
            f"{row['cost_share_to_masks']:.3f} ± {row['cost_share_to_masks_error']:.3f}",
        )
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all ways of sharing interest and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m regraft_lab.psoop.compare_filters", description=main.__doc__)
    parser.add_argument("--instances", type=instance_count, default=INSTANCES, help="instances of each kind of network")
    parser.add_argument("--seed", type=int, default=0, help="of the first instance; the others count on from it")
    parser.add_argument("--costs", nargs="+", default=list(TOPOLOGIES), choices=list(TOPOLOGIES), help="networks")
    parser.add_argument("--json", type=Path, help="file for the figures")
    given = parser.parse_args(arguments)
    total = len(given.costs) * given.instances * len(sharing_variants())
    with show_progress("Adapting", total) as advance:
        figures = filter_figures(given.costs, range(given.seed, given.seed + given.instances), advance)
    console = table_console()
    for topology in given.costs:
        console.print(filter_table(figures, topology))
    if given.json is not None:
        settings = {"instances": given.instances, "costs": given.costs, "brokers": BROKERS, "rounds": ROUNDS}
        write_figures(given.json, run_facts(settings, given.seed), figures)


if __name__ == "__main__":
    main()
