"""Measure how close planners come to the least-cost tree of small overlays, next to Jaeger07's yardstick trees.

``python -m regraft_lab.psoop.compare_optimum [--instances N] [--json FILE]``. In: the small instances of
:mod:`experiments.psoop.small_instances`. Out: figures and a table of them. Large or changing overlays do not belong
here.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

from rich.table import Table

from regraft.api.planning import Order, Planner, TreeContext, TreeState, planner_of
from regraft.api.programs import Figure, run_facts, show_progress, write_figures
from regraft.api.trees import TreeConfiguration, overlay_cost
from regraft_lab.command_parts import instance_count, table_console
from regraft_lab.psoop.exact_optimum import BROKERS_MAX, exact_optimum
from regraft_lab.psoop.small_instances import SMALL_SETTINGS, SmallSetting, small_instance
from regraft_lab.yardsticks.yardstick_trees import maximum_interest_tree, minimum_spanning_tree

INSTANCES = 50
BROKER_COUNTS = (5, 6, 7)
PAPER_PLANNERS = ("swap_links_ci", "swap_links_lmst", "swap_links_lmit")
LINK_PLANNERS = ("swap_links_cost", *PAPER_PLANNERS)
PROPOSALS_MAX = 16  # Per call, as in the controller.
PASSES_MAX = 50  # Planners that settle do so within about eight calls; the others cycle.
EQUAL_SHARE = 1e-9  # Costs closer than this count as equal: sums of floats depend on their order.

OnProgress = Callable[[str, int], None]


def settled_tree(state: TreeState, planner: Planner, context: TreeContext, rng: random.Random) -> TreeConfiguration:
    """Return the last tree of a planner if all its proposals are executed, call after call.

    The calls end once it proposes nothing, returns to an earlier tree, or after ``PASSES_MAX`` calls. There is no
    judge: a planner that makes the tree more expensive is measured on that tree.
    """
    seen = {state.configuration.links}
    for _ in range(PASSES_MAX):
        proposals = planner(state, context, rng)
        if not proposals:
            break
        configuration = state.configuration
        for proposal in proposals:
            configuration = configuration.replaced(
                configuration.epoch + 1, proposal.links_removed, proposal.links_added
            )
        state = state.with_configuration(configuration)
        if configuration.links in seen:
            break
        seen.add(configuration.links)
    return state.configuration


def ratios_to_optimum(
    state: TreeState, seed: int, order: Order = "gain", degree_max: int | None = None
) -> dict[str, float]:
    """Return by name the cost of each yardstick tree and each planner's last tree, as a multiple of the least cost.

    Yardsticks are the bootstrap tree (``random_tree``), ``minimum_spanning_tree`` and ``maximum_interest_tree``; every
    planner starts from the bootstrap tree, those of the paper propose in this ``order``. ``degree_max`` also caps the
    tree of least cost. Raises TooManyTreesError if the overlay is too large for an exact optimum.
    """
    inventory, sets = state.inventory, state.sets
    context = TreeContext(proposals_max=PROPOSALS_MAX, degree_max=degree_max)
    trees = {
        "random_tree": state.configuration,
        "minimum_spanning_tree": minimum_spanning_tree(inventory),
        "maximum_interest_tree": maximum_interest_tree(inventory, state.interest),
    }
    for name in LINK_PLANNERS:
        planner = planner_of(name, order=order) if name in PAPER_PLANNERS else planner_of(name)
        trees[name] = settled_tree(state, planner, context, random.Random(seed))
    least_per_s = overlay_cost(exact_optimum(inventory, sets, degree_max), inventory, sets).total_per_s
    return {name: overlay_cost(tree, inventory, sets).total_per_s / least_per_s for name, tree in trees.items()}


def optimum_figures(
    instance_count: int = INSTANCES,
    broker_counts: Sequence[int] = BROKER_COUNTS,
    on_progress: OnProgress | None = None,
) -> list[Figure]:
    """Return mean and worst ratio to the optimum, and how often it is found, for all planners in all settings.

    Instances have the seeds 0 .. ``instance_count`` - 1, so figures are repeatable. ``on_progress(what, done)`` is
    called after each of ``len(SMALL_SETTINGS) * len(broker_counts) * instance_count`` instances. Jaeger07, which gives
    no optimum, lacks this comparison. Raises TooManyTreesError above ``BROKERS_MAX`` brokers.
    """
    figures: list[Figure] = []
    done = 0
    for setting in SMALL_SETTINGS:
        for broker_count in broker_counts:
            ratios: dict[str, list[float]] = {}
            for seed in range(instance_count):
                state = small_instance(setting, broker_count, seed)
                for name, ratio in ratios_to_optimum(state, seed, order="arrival").items():
                    ratios.setdefault(name, []).append(ratio)
                done += 1
                if on_progress is not None:
                    on_progress(f"{_named(setting)}, {broker_count} brokers", done)
            figures += _figures_of(setting, broker_count, ratios)
    return figures


def _figures_of(setting: SmallSetting, broker_count: int, ratios: dict[str, list[float]]) -> list[Figure]:
    figures = []
    for name, above in ratios.items():
        where: dict[str, str | int | float] = {
            "planner": name,
            "brokers": broker_count,
            "costs": setting.costs,
            "flows": setting.flow_count,
            "subscribers": setting.subscriber_count,
            "instances": len(above),
        }
        optimal = sum(ratio <= 1 + EQUAL_SHARE for ratio in above)
        figures += [
            Figure("optimum_ratio_mean", where, fmean(above), "1"),
            Figure("optimum_ratio_worst", where, max(above), "1"),
            Figure("optimum_found_share", where, optimal / len(above), "1"),
        ]
    return figures


def _named(setting: SmallSetting) -> str:
    return f"{setting.costs} {setting.flow_count} x {setting.subscriber_count}"


def optimum_table(figures: Sequence[Figure], broker_count: int) -> Table:
    """Return the table for one number of brokers: a row for each planner, a column for each setting."""
    cells: dict[tuple[SmallSetting, str], dict[str, float]] = {}
    for figure in figures:
        where = figure.where
        if where["brokers"] == broker_count:
            setting = SmallSetting(str(where["costs"]), int(where["flows"]), int(where["subscribers"]))
            cells.setdefault((setting, str(where["planner"])), {})[figure.name] = figure.value
    title = f"{broker_count} brokers: mean (worst) ratio of cost to least cost, least cost reached"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("link costs,\nflows x brokers", no_wrap=True)
    drawn = list(dict.fromkeys(setting for setting, _ in cells))
    for setting in drawn:
        table.add_column(_named(setting))
    for name in dict.fromkeys(name for _, name in cells):
        table.add_row(name, *(_cell(cells[setting, name]) for setting in drawn))
    return table


def _cell(measured: dict[str, float]) -> str:
    mean, worst = measured["optimum_ratio_mean"], measured["optimum_ratio_worst"]
    return f"{mean:.3f} ({worst:.2f}) {measured['optimum_found_share']:.0%}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all planners and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m regraft_lab.psoop.compare_optimum", description=main.__doc__)
    parser.add_argument("--instances", type=instance_count, default=INSTANCES, help="instances of each setting")
    parser.add_argument(
        "--brokers",
        type=int,
        nargs="+",
        default=BROKER_COUNTS,
        choices=range(4, BROKERS_MAX + 1),
        help="numbers of brokers",
    )
    parser.add_argument("--json", type=Path, help="file for the figures")
    given = parser.parse_args(arguments)
    total = len(SMALL_SETTINGS) * len(given.brokers) * given.instances
    with show_progress("Pricing every tree", total) as advance:
        figures = optimum_figures(given.instances, given.brokers, advance)
    console = table_console()
    for broker_count in given.brokers:
        console.print(optimum_table(figures, broker_count))
    if given.json is not None:
        facts = run_facts({"instances": given.instances, "brokers": list(given.brokers)}, seed=0)
        write_figures(given.json, facts, figures)


if __name__ == "__main__":
    main()
