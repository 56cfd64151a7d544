"""Run one task of the evaluation: draw its network and traffic, let its overlays adapt, sum up their costs.

In: a task. Out: one curve for each overlay, which depends only on the task. Processes, files and averages over networks
do not belong here.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from regraft.api.overlays import Inventory
from regraft.api.programs import Figure
from regraft.api.trees import TreeConfiguration, random_tree
from regraft_lab.psoop import topologies
from regraft_lab.psoop.adapt_overlay import CI, LMIT, LMST, MIT, MST, OURS, RANDOM_TREE
from regraft_lab.psoop.broker_caches import CacheReader, Caches
from regraft_lab.psoop.compare_optimum import optimum_figures
from regraft_lab.psoop.evaluation_tasks import INSTANCE_ROUNDS, LIFETIME_TICKS, ROUND_TICKS, Task
from regraft_lab.psoop.paper_workload import Workload, WorkloadSettings, draw_workload
from regraft_lab.psoop.run_rounds import CachesAt, CostsAt, OverlayRun, paper_caches, run_rounds

SAMPLE_TICKS = 1_000  # The paper measures every 1,000 ticks.
PROCESSING_COST_MAX = 10.0
VARIANTS = {variant.name: variant for variant in (RANDOM_TREE, MST, MIT, LMST, LMIT, CI, OURS)}

ReportRounds = Callable[[int], None]


class Curve(msgspec.Struct, frozen=True):
    """The cost of one overlay in each 1,000 ticks: of its notifications, and of each kind of message.

    ``exchanges``: their number in each 1,000 ticks. ``degree_max``: the largest degree in each 1,000 ticks.
    """

    variant: str
    step: float
    forwarding: list[float]
    broadcast: list[float]
    request: list[float]
    exchange: list[float]
    exchanges: list[int]
    degree_max: list[int]


class TaskResult(msgspec.Struct, frozen=True):
    """The curves of a task, and its number of notifications per issued subscription.

    The comparison with the optimum has ``figures`` instead of curves.
    """

    curves: list[Curve]
    notifications_per_subscription: float = 0.0
    figures: list[Figure] = []


def run_task(task: Task, report_rounds: ReportRounds = lambda count: None) -> TaskResult:
    """Return the curves of all overlays of a task; ``report_rounds`` is called with the number of rounds finished."""
    if task.experiment == "optimum":
        return _compare_optimum(task, report_rounds)
    workload = draw_workload(_workload_settings(task), _generator(task, "workload"))
    # The first tree depends only on the topology, so all experiments start from the same one.
    names = [f"b{number:03d}" for number in range(task.broker_count)]
    tree = random_tree(names, task.broker_count, random.Random(f"tree {task.seed} {task.topology}"))
    regimes = [_inventory(task, tree, regime) for regime in range(task.regimes)]
    groups: list[tuple[CachesAt, list[tuple[str, float]]]] = [
        (paper_caches if task.memory == "cache" else _caches_of(ROUND_TICKS), task.overlays)
    ]
    if task.experiment == "figh":
        groups = [
            (
                _caches_of(lifetimes * LIFETIME_TICKS),
                [(name, step) for name, step in task.overlays if step == lifetimes],
            )
            for lifetimes in task.steps
        ]
    curves = []
    for caches_at, members in groups:
        overlays = [_overlay_run(task, name, step, tree, regimes) for name, step in members]
        ticks = (task.warmup_ticks, task.warmup_ticks + task.ticks)
        run_rounds(workload, overlays, ticks, caches_at, report_rounds)
        curves += [_curve(overlay, step) for overlay, (_, step) in zip(overlays, members, strict=True)]
    return TaskResult(curves, workload.notification_count / workload.subscriptions_issued)


def _compare_optimum(task: Task, report_rounds: ReportRounds) -> TaskResult:
    counts = [round(count) for count in task.steps]
    return TaskResult([], figures=optimum_figures(task.instances, counts, lambda *_: report_rounds(INSTANCE_ROUNDS)))


def _workload_settings(task: Task) -> WorkloadSettings:
    changes = tuple(regime * task.regime_ticks for regime in range(1, task.regimes))
    return WorkloadSettings(
        broker_count=task.broker_count,
        type_count=task.type_count,
        duration_ticks=task.warmup_ticks + task.ticks,
        load_change_ticks=changes,
    )


def _generator(task: Task, purpose: str) -> np.random.Generator:
    """Return a separate generator for each purpose, so that drawing more for one does not affect others."""
    return np.random.default_rng([task.seed, task.topology, *purpose.encode()])


def _inventory(task: Task, tree: TreeConfiguration, regime: int) -> Inventory:
    """Draw the costs of one regime: new places of brokers, and new processing costs."""
    rng = _generator(task, f"{task.network} {regime}")
    link_cost = _link_costs(task, rng)
    processing_cost = rng.uniform(0.0, PROCESSING_COST_MAX, task.broker_count)
    return Inventory(tree.brokers, processing_cost, link_cost, task.broker_count, tree)


def _link_costs(task: Task, rng: np.random.Generator) -> NDArray[np.float64]:
    data = Path(task.data) if task.data else None
    if task.network == "uniform":
        return topologies.uniform_costs(task.broker_count, rng)
    if task.network == "planetlab":
        return topologies.planetlab_costs(task.broker_count, rng, data)
    if task.network == "zoo":
        if data is None:
            raise ValueError("the Topology Zoo needs the folder of recorded networks: give --data")
        return topologies.zoo_costs(data, task.broker_count, rng)
    return topologies.transit_stub_costs(task.broker_count, rng)


def _overlay_run(
    task: Task, name: str, step: float, tree: TreeConfiguration, regimes: Sequence[Inventory]
) -> OverlayRun:
    variant, costs = VARIANTS[name], list(regimes)
    if task.experiment == "fig5" and variant.kind == "paper":
        variant = replace(variant, horizon_hops=round(step))
    if task.experiment == "fig6":
        costs = [_weighted(inventory, step) for inventory in regimes]
    draws = random.Random(f"{name} {step} {task.seed} {task.topology} {task.network}")
    return OverlayRun(variant, _costs_by_regime(task, costs), tree, draws)


def _costs_by_regime(task: Task, regimes: Sequence[Inventory]) -> CostsAt:
    return lambda tick: regimes[min(max(int(tick - task.warmup_ticks), 0) // task.regime_ticks, len(regimes) - 1)]


def _weighted(inventory: Inventory, alpha: float) -> Inventory:
    """Return the costs with c_max = (1 - alpha) * 20 and p_max = alpha * 20 (Jaeger07, section 5.3)."""
    return replace(
        inventory,
        link_cost=inventory.link_cost * (2 * (1 - alpha)),
        processing_cost=inventory.processing_cost * (2 * alpha),
    )


def _caches_of(kept_ticks: float) -> CachesAt:
    """Return a reader of caches that keep everything for a given time."""

    def caches_at(reader: CacheReader, workload: Workload, tick: float) -> Caches:
        oldest = workload.first_id_at(tick - kept_ticks)
        return reader.between(oldest, workload.first_id_at(tick))

    return caches_at


def _curve(overlay: OverlayRun, step: float) -> Curve:
    rounds = SAMPLE_TICKS // ROUND_TICKS

    def by_sample(values: Sequence[float]) -> NDArray[np.float64]:
        return np.add.reduceat(np.asarray(values, dtype=np.float64), np.arange(0, len(values), rounds))

    degrees = np.maximum.reduceat(np.asarray(overlay.degree_max), np.arange(0, len(overlay.degree_max), rounds))
    return Curve(
        overlay.variant.name,
        step,
        by_sample(overlay.forwarding).tolist(),
        by_sample(overlay.broadcast).tolist(),
        by_sample(overlay.request).tolist(),
        by_sample(overlay.exchange).tolist(),
        [round(count) for count in by_sample(overlay.exchanges)],
        [int(degree) for degree in degrees],
    )
