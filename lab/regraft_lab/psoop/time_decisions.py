"""Measure the CPU time of a decision, from the newest window to a plan or refusals, by size of overlay.

Traffic is that of Jaeger07, 4 subscription lifetimes in 40 windows; the number of types is proportional to the brokers,
so the interest of a broker does not change with the size. A decision is everything the controller does with a window:
merge its delivery sets, plan, judge and choose. ``random`` decides on random trees; ``settled`` starts from a tree that
no swap makes cheaper, or that 3,000 swaps have, and follows the traffic window by window, executing each plan.
"""

from __future__ import annotations

import random
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from regraft.api.kinds import tree_kind
from regraft.api.overlays import DeliverySets, Inventory
from regraft.api.planners import Search, descend
from regraft.api.planning import ClosedWindow, ControllerSettings, Situation, TreeState, decide_plan, planners_of
from regraft.api.programs import Figure
from regraft.api.trees import TreeConfiguration, bootstrap_tree, overlay_cost, random_tree
from regraft_lab.psoop.paper_workload import Workload, WorkloadSettings, draw_workload

WINDOW_TICKS = 250
HORIZON_WINDOWS = 40
DEGREE_MAX = 8
BROKERS_PER_TYPE = 2
SETTLING_SWAPS_MAX = 3000  # 1,000 brokers settle in 1,400 swaps. 4,000 do not in these, which take a minute and a half.
MANY_DECISIONS_BROKERS_MAX = 400
LARGE_DECISIONS_MAX = 3
PLANNERS_TIMED = ("swap_links_cost", "swap_links_ci")
STARTS = ("random", "settled")
COMPARED_SETTLED_MAX = 1000  # Larger trees take minutes to settle: only for the planner whose limits are asserted.


def decision_figures(
    sizes: Sequence[int], decisions: int, seed: int, on_progress: Callable[[str, int], None] | None = None
) -> list[Figure]:
    """Return the times of ``decisions`` decisions of each planner for each size; only a few for large overlays.

    ``on_progress`` gets the next part and the number of parts done; there is a part for each size, planner and start.
    Raises AssertionError if a plan does not have the predicted cost.
    """
    figures: list[Figure] = []
    done = 0
    for brokers in sizes:
        for planner in PLANNERS_TIMED:
            for start in STARTS:
                if on_progress is not None:
                    on_progress(f"{planner}, {brokers} brokers", done)
                figures += _measure(planner, brokers, start, decisions, seed)
                done += 1
    return figures


def _measure(planner: str, brokers: int, start: str, decisions: int, seed: int) -> list[Figure]:
    if start == "settled" and planner != PLANNERS_TIMED[0] and brokers > COMPARED_SETTLED_MAX:
        return []
    count = decisions if brokers <= MANY_DECISIONS_BROKERS_MAX else min(decisions, LARGE_DECISIONS_MAX)
    overlay = _Overlay(brokers, count, seed)
    times_ms = list(overlay.decide_on_random_trees(planner) if start == "random" else overlay.follow(planner))
    where: dict[str, str | int | float] = {"planner": planner, "brokers": brokers, "from": start}
    return [
        Figure("decision_ms_p50", where, statistics.median(times_ms), "ms"),
        Figure("decision_ms_max", where, max(times_ms), "ms"),
        Figure("memory_mb", where, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "MB"),
    ]


class _Overlay:
    """One overlay of the paper's kind with traffic for a horizon and some more windows."""

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
        self.kind = tree_kind(self.inventory, self.settings)
        self.kind.prepare()  # As the controller does at its start.
        self.windows = [_window(self.workload, names, place) for place in range(HORIZON_WINDOWS + decisions)]

    def decide_on_random_trees(self, planner: str) -> Iterator[float]:
        """Yield the time of each decision in ms, each on a new random tree."""
        for place in range(self.decisions):
            tree = random_tree(self.inventory.brokers, DEGREE_MAX, self.rng)
            yield self._decide(planner, tree, place)[0]

    def follow(self, planner: str) -> Iterator[float]:
        """Yield the time of each decision in ms, on a tree that follows the traffic."""
        tree = self._settled()
        for place in range(self.decisions):
            spent_ms, tree = self._decide(planner, tree, place)
            yield spent_ms

    def _settled(self) -> TreeConfiguration:
        state = TreeState(bootstrap_tree(self.inventory), self.inventory, tuple(self.windows[:HORIZON_WINDOWS]))
        for _ in descend(state.tree_costs, Search(sys.maxsize, DEGREE_MAX, None), SETTLING_SWAPS_MAX):
            pass
        return TreeConfiguration.of(0, self.inventory.brokers, state.tree_costs.links)

    def _decide(self, planner: str, tree: TreeConfiguration, place: int) -> tuple[float, TreeConfiguration]:
        horizon = self.windows[place : place + HORIZON_WINDOWS]
        fresh = horizon[-1].sets
        sets = DeliverySets(fresh.brokers, fresh.columns, fresh.words, fresh.span_s, fresh.delivered)
        newest = replace(horizon[-1], sets=sets)
        for window in horizon[:-1]:
            _ = window.sets.distinct  # In a live controller earlier decisions have merged these already.
        before = TreeConfiguration(0, tree.brokers, tree.links)
        begin = time.process_time()
        state = TreeState(before, self.inventory, (*horizon[:-1], newest))
        situation = Situation(state, newest.end_ms, self.kind, price_per_s=0.0)
        decision = decide_plan(situation, planners_of(planner, self.settings), 1, self.settings)
        spent_ms = (time.process_time() - begin) * 1000
        if decision.plan is None:
            return spent_ms, tree
        after = before.replaced(1, decision.plan.links_removed, decision.plan.links_added)
        costs = [_cost_per_s(one, self.inventory, state.window_sets) for one in (before, after)]
        assert costs == sorted(costs, reverse=True), "a plan must lower the cost"
        assert abs(costs[1] - decision.plan.cost_predicted_per_s) < 1e-6 * costs[0], (
            "the cost must be the predicted one"
        )
        return spent_ms, after


def _cost_per_s(tree: TreeConfiguration, inventory: Inventory, windows: Sequence[DeliverySets]) -> float:
    """Return the cost of a tree, window by window: all of them joined would take more memory than the decision."""
    total = sum(overlay_cost(tree, inventory, sets).total_per_s * sets.span_s for sets in windows)
    return total / sum(sets.span_s for sets in windows)


def _window(workload: Workload, brokers: tuple[str, ...], place: int) -> ClosedWindow:
    begin, end = place * WINDOW_TICKS, (place + 1) * WINDOW_TICKS
    first, last = workload.first_id_at(begin), workload.first_id_at(end)
    sets = workload.delivery_sets(brokers, first, last, WINDOW_TICKS)
    columns = tuple((f"window {place}", column) for _, column in sets.columns)  # Windows share none.
    return ClosedWindow(begin, end, replace(sets, columns=columns), epoch_min=0, epoch_max=0)
