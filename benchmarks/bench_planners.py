"""How long a decision takes: newest window in, plan or refusals out, for several sizes of overlay.

``python -m benchmarks.bench_planners [--sizes 40,100,1000] [--decisions N] [--json FILE]``. Traffic is that of paper
000 (experiments/psoop), 4 subscription lifetimes in 40 windows; types grow with the brokers, so each wants as much.
A decision is everything the controller does with a window: merge its delivery sets, plan, judge and choose. ``random``
decides on random trees; ``settled`` follows the traffic window by window, carrying out each plan, after a start of
swaps without limit where the overlay is small enough. Cost and Interest stands beside ours as the peer.
"""

import argparse
import random
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.progress import Progress

from controller.closed_window import ClosedWindow
from controller.controller_settings import ControllerSettings
from controller.decide_plan import decide_plan
from controller.judge_proposals import Situation
from controller.planner_interface import OverlayState
from controller.planner_table import PLANNERS
from controller.planners.swap_links_cost import Search, descend
from experiments.psoop.paper_workload import Workload, WorkloadSettings, draw_workload
from infra.measured_figures import Figure, run_facts, write_figures
from overlay.configuration import Configuration
from overlay.cost import overlay_cost
from overlay.delivery_sets import DeliverySets
from overlay.inventory import Inventory
from overlay.tree import random_tree

WINDOW_TICKS = 250
HORIZON_WINDOWS = 40
DEGREE_MAX = 8
BROKERS_PER_TYPE = 2
SETTLED_BROKERS_MAX = 400  # Settling 1,000 brokers takes 2,000 swaps, some minutes; a plan makes a few.
LIMITS_MS = {("settled", 100): 100.0, ("random", 100): 1000.0, ("random", 1000): 5000.0}
PLANNERS_TIMED = ("swap_links_cost", "swap_links_ci")


def main() -> None:
    """Measure, print a table and the limits, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="40,100,1000", help="numbers of brokers, with commas")
    parser.add_argument("--decisions", type=int, default=20, help="decisions of each kind; 1,000 brokers take 3")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    sizes = [int(size) for size in chosen.sizes.split(",")]
    figures: list[Figure] = []
    with Progress(disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("deciding", total=2 * len(sizes) * len(PLANNERS_TIMED))
        for brokers in sizes:
            for planner in PLANNERS_TIMED:
                for start in ("random", "settled"):
                    figures += _measure(planner, brokers, start, chosen.decisions, chosen.seed)
                    progress.advance(task)
    _print_table(figures)
    if chosen.json:
        settings = {"sizes": sizes, "decisions": chosen.decisions, "window_ticks": WINDOW_TICKS}
        write_figures(chosen.json, run_facts(settings, chosen.seed), figures)
    late = [
        (figure, limit)
        for figure in figures
        for (start, brokers), limit in LIMITS_MS.items()
        if figure.name == "decision_ms_max" and figure.value > limit
        if (figure.where["planner"], figure.where["from"], figure.where["brokers"])
        == ("swap_links_cost", start, brokers)
    ]
    for figure, limit in late:
        print(f"over the limit of {limit:.0f} ms: {figure.where} {figure.value:.0f} ms")
    sys.exit(1 if late else 0)


def _measure(planner: str, brokers: int, start: str, decisions: int, seed: int) -> list[Figure]:
    if start == "settled" and brokers > SETTLED_BROKERS_MAX:
        return []
    count = decisions if brokers <= SETTLED_BROKERS_MAX else 3
    overlay = _Overlay(brokers, count, seed)
    times_ms = list(overlay.decide_on_random_trees(planner) if start == "random" else overlay.follow(planner))
    where: dict[str, str | int | float] = {"planner": planner, "brokers": brokers, "from": start}
    return [
        Figure("decision_ms_p50", where, statistics.median(times_ms), "ms"),
        Figure("decision_ms_max", where, max(times_ms), "ms"),
    ]


class _Overlay:
    """One overlay of the paper's kind with traffic for a horizon and some windows more."""

    def __init__(self, brokers: int, decisions: int, seed: int) -> None:
        self.decisions = decisions
        self.rng = random.Random(seed)
        generator = np.random.default_rng(seed)
        ticks = WINDOW_TICKS * (HORIZON_WINDOWS + decisions)
        self.workload = draw_workload(
            WorkloadSettings(broker_count=brokers, type_count=brokers // BROKERS_PER_TYPE, duration_ticks=ticks),
            generator,
        )
        names = tuple(f"b{position:04d}" for position in range(brokers))
        costs = np.triu(generator.uniform(0, 10, (brokers, brokers)), 1)
        tree = random_tree(names, DEGREE_MAX, self.rng)
        self.inventory = Inventory(names, generator.uniform(0, 10, brokers), costs + costs.T, DEGREE_MAX, tree)
        self.settings = ControllerSettings(bootstrap="none", inventory_path=Path("none"))
        self.windows = [_window(self.workload, names, place) for place in range(HORIZON_WINDOWS + decisions)]

    def decide_on_random_trees(self, planner: str) -> Iterator[float]:
        """Yield what each decision took, in ms, each on another random tree."""
        for place in range(self.decisions):
            tree = random_tree(self.inventory.brokers, DEGREE_MAX, self.rng)
            yield self._decide(planner, tree, place)[0]

    def follow(self, planner: str) -> Iterator[float]:
        """Yield what each decision took, in ms, on a tree that follows the traffic."""
        state = OverlayState(self.inventory.bootstrap, self.inventory, tuple(self.windows[:HORIZON_WINDOWS]))
        costs = state.tree_costs.copy()
        for _ in descend(costs, Search(sys.maxsize, DEGREE_MAX, None)):
            pass
        tree = Configuration.of(0, self.inventory.brokers, costs.links)
        for place in range(self.decisions):
            spent_ms, tree = self._decide(planner, tree, place)
            yield spent_ms

    def _decide(self, planner: str, tree: Configuration, place: int) -> tuple[float, Configuration]:
        horizon = self.windows[place : place + HORIZON_WINDOWS]
        fresh = horizon[-1].sets
        newest = replace(horizon[-1], sets=DeliverySets(fresh.brokers, fresh.columns, fresh.words, fresh.span_s))
        for window in horizon[:-1]:
            _ = window.sets.planes  # Earlier decisions have merged these.
        before = Configuration(0, tree.brokers, tree.links)
        begin = time.perf_counter()
        state = OverlayState(before, self.inventory, (*horizon[:-1], newest))
        situation = Situation(state, newest.end_ms, DEGREE_MAX, price_per_s=0.0)
        decision = decide_plan(situation, PLANNERS[planner], 1, self.settings)
        spent_ms = (time.perf_counter() - begin) * 1000
        if decision.plan is None:
            return spent_ms, tree
        after = before.replaced(1, decision.plan.links_removed, decision.plan.links_added)
        costs = [overlay_cost(one, self.inventory, state.sets).total_per_s for one in (before, after)]
        assert costs == sorted(costs, reverse=True), "a plan must lower the cost"
        assert abs(costs[1] - decision.plan.cost_predicted_per_s) < 1e-6 * costs[0], "the cost must be the promised one"
        return spent_ms, after


def _window(workload: Workload, brokers: tuple[str, ...], place: int) -> ClosedWindow:
    begin, end = place * WINDOW_TICKS, (place + 1) * WINDOW_TICKS
    first, last = workload.first_id_at(begin), workload.first_id_at(end)
    sets = workload.delivery_sets(brokers, first, last, WINDOW_TICKS)
    columns = tuple((f"window {place}", column) for _, column in sets.columns)  # Of other windows are other ones.
    return ClosedWindow(begin, end, replace(sets, columns=columns), epoch_min=0, epoch_max=0)


def _print_table(figures: list[Figure]) -> None:
    print(f"{'planner':18} {'brokers':>8} {'from':>8} {'p50 ms':>9} {'max ms':>9} {'limit ms':>9}")
    for p50, most in zip(figures[::2], figures[1::2], strict=True):
        planner, brokers, start = (p50.where[key] for key in ("planner", "brokers", "from"))
        limit = LIMITS_MS.get((str(start), int(brokers)), "") if planner == "swap_links_cost" else ""
        print(f"{planner:18} {brokers:8} {start:>8} {p50.value:9.1f} {most.value:9.1f} {limit:>9}")


if __name__ == "__main__":
    main()
