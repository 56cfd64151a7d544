"""Run one task of the evaluation: draw its testbed and workload, place publishers in each way, measure.

In: a task. Out: the outcome of each way, which depends only on the task. Processes, files and means over draws do not
belong here.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from regraft.api.overlays import Inventory
from regraft.api.planning import ClosedWindow
from regraft.api.programs import Figure
from regraft.api.trees import PublisherCosts, bootstrap_tree
from regraft_lab.pop_grape.choose_homes import WAYS, decide_homes, settle_homes
from regraft_lab.pop_grape.compare_relocation import Comparison, distributed_figures
from regraft_lab.pop_grape.costs_of_homes import cost_at_per_s
from regraft_lab.pop_grape.count_window import WorkloadCounter
from regraft_lab.pop_grape.distributed_runs import STATIC, TRIGGERS, VARIANTS
from regraft_lab.pop_grape.observe_placement import WINDOW_MS, observe_placement
from regraft_lab.pop_grape.placement_measures import Measures, counted
from regraft_lab.pop_grape.quote_workload import QuoteSettings, QuoteWorkload, draw_workload
from regraft_lab.pop_grape.relocation_outcome import Draw, Outcome, TaskResult
from regraft_lab.pop_grape.relocation_tasks import BROKERS_WORK, RUN_WORK, Task
from regraft_lab.pop_grape.run_sessions import session_outcome
from regraft_lab.pop_grape.testbeds import DEGREE_MAX, PLANETLAB_BROKERS, TESTBEDS, balanced_tree, hops_between
from regraft_lab.pop_grape.time_migration import migration_figures

SECOND_MS = 1_000.0
# A PlanetLab slice was allowed 10 Mbit/s. The cluster's 1 Gbit/s is idle to four decimals.
PLANETLAB_BYTES_PER_MS = 1_250.0
COUNTED_WINDOWS = 5  # To decide on, and as many to measure, each as long as one on the virtual clock.

ReportWork = Callable[[int], None]
Homes = Mapping[str, str]
Observed = tuple[Sequence[ClosedWindow], Measures]  # Windows to decide on, measures of later ones.


def run_task(task: Task, report_work: ReportWork = lambda count: None) -> TaskResult:
    """Return the outcome of each way of a task; ``report_work`` is called with the amount of work as it is done."""
    if task.kind in ("distributed", "triggers", "migrations"):
        return TaskResult([], _brokers(task, report_work))
    if task.kind == "sessions":
        return TaskResult([_sessions(task, report_work)])
    if task.kind == "counted":
        draws = []
        for draw in range(task.draws):
            draws.append(_place(task, _equal_brokers(), draw, _count, lambda _: None))
            report_work(1)
        return TaskResult(draws)
    inventory = TESTBEDS[task.testbed](_random(task, "testbed", task.draw))
    return TaskResult([_place(task, inventory, task.draw, _observe, report_work)])


def _place(
    task: Task,
    inventory: Inventory,
    draw: int,
    watch: Callable[[Task, Inventory, QuoteWorkload], Callable[[Homes], Observed]],
    report_work: ReportWork,
) -> Draw:
    """Place the publishers of one workload in each way; placements common to several ways are observed once."""
    workload = _workload(task, inventory, draw)
    observe, cache = watch(task, inventory, workload), dict[tuple[tuple[str, str], ...], Observed]()

    def observed(homes: Homes) -> Observed:
        key = tuple(sorted(homes.items()))
        if key not in cache:
            cache[key] = observe(homes)
        return cache[key]

    windows = observed(workload.homes)[0]
    costs = PublisherCosts(bootstrap_tree(inventory), inventory, [window.sets for window in windows])
    outcomes = []
    for name in task.ways:
        way, rng = WAYS[name], _random(task, name, draw)

        def decide(homes: Homes) -> Homes:
            return decide_homes(way, inventory, observed(homes)[0], rng)  # noqa: B023  (called in this round only)

        homes, rounds = settle_homes(workload.homes, decide)
        outcomes.append(
            Outcome(
                name,
                observed(homes)[1],
                homes,
                rounds,
                *_moved(inventory, workload.homes, homes),
                cost_at_per_s(costs, homes),
            )
        )
        report_work(RUN_WORK)
    return Draw(outcomes, _subscribers_at(workload))


def _observe(task: Task, inventory: Inventory, workload: QuoteWorkload) -> Callable[[Homes], Observed]:
    bytes_per_ms_max = PLANETLAB_BYTES_PER_MS if task.testbed == "planetlab" else None

    def observe(homes: Homes) -> Observed:
        observation = observe_placement(inventory, workload, homes, bytes_per_ms_max)
        return observation.windows, observation.measures

    return observe


def _count(task: Task, inventory: Inventory, workload: QuoteWorkload) -> Callable[[Homes], Observed]:
    length = round(task.notifications_per_s * WINDOW_MS / SECOND_MS)
    counter = WorkloadCounter(inventory, workload, 2 * COUNTED_WINDOWS * length)

    def observe(homes: Homes) -> Observed:
        windows = [counter.window(homes, place * length, length) for place in range(2 * COUNTED_WINDOWS)]
        decided, later = windows[:COUNTED_WINDOWS], windows[COUNTED_WINDOWS:]
        return decided, counted(later, bootstrap_tree(inventory), inventory, workload.homes)

    return observe


def _brokers(task: Task, report_work: ReportWork) -> list[Figure]:
    """Return the figures of runs in which brokers decide by themselves."""
    if task.kind == "migrations":
        figures = migration_figures(task.interested_brokers, task.seed, task.draws)
        report_work(task.work_count)
        return figures
    variants = VARIANTS if task.kind == "distributed" else {STATIC: None, **TRIGGERS}
    wanted = Comparison(
        task.testbed,
        (task.distribution,),
        (task.interested_brokers,),
        {name: variants[name] for name in task.ways},
        task.simulated_s,
    )
    reported = 0

    def advance(_: str, done: int) -> None:
        nonlocal reported
        report_work(BROKERS_WORK * (done - reported))
        reported = done

    return distributed_figures(wanted, task.seed, advance)


def _sessions(task: Task, report_work: ReportWork) -> Draw:
    inventory = TESTBEDS[task.testbed](_random(task, "testbed", task.draw))
    workload = _workload(task, inventory, task.draw)
    outcomes = []
    for length in task.steps:
        for name in task.ways:
            rng = _random(task, f"{name} {length}", task.draw)
            outcomes.append(session_outcome(name, length, task, inventory, workload, rng))
        report_work(1)
    return Draw(outcomes, _subscribers_at(workload))


def _workload(task: Task, inventory: Inventory, draw: int) -> QuoteWorkload:
    settings = QuoteSettings(
        task.distribution,
        task.sampling,
        task.interested_brokers,
        task.publisher_count,
        task.subscribers_per_publisher,
        task.notifications_per_s,
    )
    return draw_workload(inventory.brokers, settings, _random(task, "workload", draw))


def _random(task: Task, purpose: str, draw: int) -> random.Random:
    """Return a separate generator for each purpose, so that drawing more for one does not affect others."""
    return random.Random(f"{purpose} {task.seed} {draw}")


def _equal_brokers() -> Inventory:
    """Return a tree in which only the number of brokers on a path matters."""
    tree = balanced_tree(PLANETLAB_BROKERS)
    count = len(tree.brokers)
    return Inventory(tree.brokers, np.ones(count), np.zeros((count, count)), DEGREE_MAX, tree)


def _moved(inventory: Inventory, before: Homes, after: Homes) -> tuple[int, int]:
    """Return how many publishers have another home, and the sum of links between their old and new homes."""
    hops = [
        hops_between(bootstrap_tree(inventory), home)[after[publisher]]
        for publisher, home in before.items()
        if after[publisher] != home
    ]
    return len(hops), sum(hops)


def _subscribers_at(workload: QuoteWorkload) -> dict[str, list[str]]:
    subscribers: dict[str, set[str]] = {}
    for subscription in workload.subscriptions:
        subscribers.setdefault(subscription.publisher, set()).add(subscription.home)
    return {publisher: sorted(brokers) for publisher, brokers in sorted(subscribers.items())}
