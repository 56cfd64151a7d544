"""Time GRAPE's selection of a broker: to the letter of the paper, and in the controller.

A timed instance has one publisher with subscribers at all brokers of a balanced tree, so that all are candidates.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np

from regraft.api.planners import Priority
from regraft.api.programs import Figure
from regraft.api.trees import RootedTree
from regraft_lab.pop_grape.quadratic_selection import reports_of, select_quadratic
from regraft_lab.pop_grape.random_sessions import (
    Instance,
    random_hops,
    random_instance,
    random_sessions,
    select_by_paper,
    select_linear,
)
from regraft_lab.pop_grape.testbeds import balanced_tree

SESSION_LENGTH = 100  # G_threshold.
PAPER_MS_MAX = 70.0  # "took less than 70 ms" with 63 brokers (section 4.2).
INSTANCES = 20
LARGE_BROKERS = 500  # From this size on the paper's selection takes seconds.
LARGE_INSTANCES = 3
RANDOM_INSTANCES = 1_000
PRIORITIES: tuple[Priority, ...] = ("load", "delay")
WEIGHTS = (1, 25, 50, 75, 100)


def selection_figures(
    sizes: Sequence[int], seed: int, on_progress: Callable[[str, int], None] | None = None
) -> list[Figure]:
    """Return times and the share of equal choices; ``on_progress`` gets the next size and the number done."""
    figures: list[Figure] = []
    for done, brokers in enumerate(sizes):
        if on_progress is not None:
            on_progress(f"{brokers} brokers", done)
        figures += _figures_of(brokers, random.Random(f"selection {seed} {brokers}"))
    return [*figures, count_identical(seed)]


def count_identical(seed: int) -> Figure:
    """Return in how many of 1,000 random instances, priorities and weights both selections choose the same broker."""
    same = 0
    for number in range(RANDOM_INSTANCES):
        rng = random.Random(seed * RANDOM_INSTANCES + number)
        instance = random_instance(rng)
        priority, weight = rng.choice(PRIORITIES), rng.choice(WEIGHTS)
        same += select_linear(instance, priority, weight) == select_by_paper(instance, priority, weight)
    return Figure("identical_choices", {"instances": RANDOM_INSTANCES}, same, "1")


def _figures_of(brokers: int, rng: random.Random) -> list[Figure]:
    count = INSTANCES if brokers < LARGE_BROKERS else LARGE_INSTANCES
    times_ms: dict[str, list[float]] = {"grape_quadratic": [], "grape": []}
    alike = 0
    for _ in range(count):
        instance = _everywhere(brokers, rng)
        tree = RootedTree.of(instance.configuration)
        parents = [int(parent) for parent in tree.parents]
        reports = reports_of(instance.configuration, instance.sessions, 0, instance.delays, parents)
        present = instance.configuration.brokers[instance.present]
        begin = time.perf_counter()
        by_paper = select_quadratic(reports, present, "delay", 1)
        middle = time.perf_counter()
        linear = select_linear(instance, "delay", 1)
        times_ms["grape_quadratic"].append((middle - begin) * 1000)
        times_ms["grape"].append((time.perf_counter() - middle) * 1000)
        alike += by_paper == linear
    where: dict[str, str | int | float] = {"brokers": brokers, "instances": count}
    figures = [Figure("identical_share", where, alike / count, "1")]
    for way, spent_ms in times_ms.items():
        figures.append(Figure(f"{way}_ms_p50", where, statistics.median(spent_ms), "ms"))
        figures.append(Figure(f"{way}_ms_max", where, max(spent_ms), "ms"))
    return figures


def _everywhere(brokers: int, rng: random.Random) -> Instance:
    """Return a session with deliveries at every broker."""
    sessions = random_sessions(brokers, SESSION_LENGTH, rng)
    rows = np.arange(brokers)
    sessions.words[rows, 0] |= np.uint64(1) << (rows % 64).astype(np.uint64)
    np.maximum(sessions.deliveries, 1.0, out=sessions.deliveries)
    return Instance(balanced_tree(brokers), sessions, random_hops(brokers, rng), rng.randrange(brokers))
