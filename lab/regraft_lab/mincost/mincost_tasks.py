"""The runs of Zhao11's evaluation, and their samples.

In: a size and a seed. Out: samples of each run, which depend only on the task, except for times; means over runs.
Verdicts do not belong here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from regraft.api.programs import Figure
from regraft_lab.mean_figures import with_interval
from regraft_lab.mincost.migrate_users import migrate_users
from regraft_lab.mincost.mincost_workload import WONDERPROXY, Setting, draw_instance
from regraft_lab.yardsticks.bound_packing import least_packing_cost_per_s
from regraft_lab.yardsticks.pack_drop import Budget, close_brokers, pack_drop
from regraft_lab.yardsticks.pack_mixing import pack_mixing
from regraft_lab.yardsticks.pack_users import pack_clustering, pack_greedy, pack_random
from regraft_lab.yardsticks.packed_users import Homes, PackingCosts, PackingInstance

USERS_PER_BROKER = 100
PAPERS = ("greedy", "clustering", "mixing")
OURS = "drop"
ALGORITHMS = ("random", *PAPERS, OURS)
MIGRATED_FROM, DECLINE_SHARES = ("random", "greedy"), (0.0, 0.2)
MIGRATING_USERS_MAX = 500  # Rounds of larger networks take minutes.
CORE_SCALES = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0)


@dataclass(frozen=True, slots=True)
class Size:
    """The extent of a run: networks per point, users of Fig. 9 (100 per broker), users of Fig. 10, other settings."""

    name: str
    draws: int
    users: tuple[int, ...]
    users_of_scales: int
    others: tuple[Setting, ...]


def _others(users: int) -> tuple[Setting, ...]:
    dense = users // 10
    return (
        *(Setting(users, dense, prices) for prices in ("euclidean", "independent", "planetlab", "aws")),
        *(Setting(users, dense, interests=interests) for interests in ("narrow", "stocks")),
        *(Setting(users, dense, prices, interests="stocks") for prices in ("planetlab", "aws")),
        Setting(users, dense, core_scale=10.0),
    )


FULL = Size("full", 100, tuple(range(1_000, 10_001, 1_000)), 10_000, _others(1_000))
QUICK = Size("quick", 6, (1_000, 3_000, 10_000), 2_000, _others(400))


class MincostTask(msgspec.Struct, frozen=True):
    """One network of a setting; ``data`` is the folder of data that is not shipped, empty if the setting uses none."""

    seed: int
    draw: int
    setting: Setting
    data: str = ""

    @property
    def label(self) -> str:
        """The name of the task in file names."""
        one = self.setting
        return f"{one.prices}-{one.interests}-{one.users}-{one.brokers}-{one.core_scale:g}-{self.draw}"

    @property
    def work_count(self) -> int:
        """The work of the task, in thousands of users."""
        return max(self.setting.users // 1_000, 1)


class TaskResult(msgspec.Struct, frozen=True):
    """The samples of one network."""

    samples: list[Figure]


def all_tasks(size: Size, seed: int, data: Path | None = None) -> list[MincostTask]:
    """Return the runs of a size, each setting only once; with ``data`` also those with WonderProxy's round trips."""
    by_users = [Setting(users, users // USERS_PER_BROKER) for users in size.users]
    by_scale = [
        Setting(size.users_of_scales, size.users_of_scales // USERS_PER_BROKER, core_scale=scale)
        for scale in CORE_SCALES
    ]
    dense = size.others[0]
    more = [msgspec.structs.replace(dense, prices=WONDERPROXY, interests=one) for one in ("wide", "stocks")]
    settings = dict.fromkeys((*by_users, *by_scale, *size.others, *(more if data else ())))
    folder = str(data or "")
    return [
        MincostTask(seed, draw, setting, folder if setting.prices == WONDERPROXY else "")
        for setting in settings
        for draw in range(size.draws)
    ]


def run_task(task: MincostTask, report_work: Callable[[int], None] = lambda count: None) -> TaskResult:
    """Return the samples of a network: costs relative to random packing, times, gap to the bound."""
    setting = task.setting
    drawn = np.random.default_rng([task.seed, task.draw, setting.users, setting.brokers])
    instance = draw_instance(setting, drawn, Path(task.data))
    where: dict[str, str | int | float] = msgspec.to_builtins(setting)
    samples: list[Figure] = []
    costs: dict[str, PackingCosts] = {}
    for name in ALGORITHMS:
        instance.trees.forget()  # Results cached by one algorithm must not speed up the next one.
        begin_s = time.process_time()
        homes = _pack(name, instance, np.random.default_rng([task.seed, task.draw]))
        samples.append(Figure("seconds", {**where, "algorithm": name}, time.process_time() - begin_s, "s"))
        if not instance.is_packed(homes):
            raise AssertionError(f"{name} exceeds the capacity of a broker in {task.label}")
        costs[name] = PackingCosts(instance, homes)
    greedy = costs["greedy"]
    closed_per_s = close_brokers(greedy, Budget()).cost_per_s
    least_per_s = least_packing_cost_per_s(instance)
    for name, cost in costs.items():
        own = {**where, "algorithm": name}
        samples.append(Figure("crr", own, costs["random"].cost_per_s / cost.cost_per_s, "1"))
        samples.append(Figure("crr_unicast", own, costs["random"].unicast_per_s / cost.unicast_per_s, "1"))
        samples.append(Figure("bound_gap", own, cost.cost_per_s / least_per_s - 1, "share"))
        samples.append(Figure("core_share", own, cost.core_per_s / cost.cost_per_s, "share"))
    best_per_s = min(closed_per_s, *(costs[name].cost_per_s for name in PAPERS))
    samples.append(Figure("ours_against_best", where, costs[OURS].cost_per_s / best_per_s, "1"))
    if setting.users <= MIGRATING_USERS_MAX:
        samples += _migrated(task, instance, costs)
    samples.append(Figure("random_cost", where, costs["random"].cost_per_s, "1/s"))
    report_work(task.work_count)
    return TaskResult(samples)


def _migrated(task: MincostTask, instance: PackingInstance, costs: dict[str, PackingCosts]) -> list[Figure]:
    """Return the results of brokers that redirect users by themselves, from random and from greedy packing."""
    samples = []
    for start in MIGRATED_FROM:
        for decline_share in DECLINE_SHARES:
            rng = np.random.default_rng([task.seed, task.draw, 1])
            figures = migrate_users(instance, costs[start].homes, rng, decline_share)
            where: dict[str, str | int | float] = {
                **msgspec.to_builtins(task.setting),
                "start": start,
                "decline_share": decline_share,
            }
            against = costs[OURS].cost_per_s / figures.costs.cost_per_s
            samples += [
                Figure("distributed_of_central", where, against, "share"),
                Figure("distributed_rounds", where, figures.rounds, "rounds"),
                Figure("distributed_messages", where, figures.messages / task.setting.users, "messages a user"),
            ]
    return samples


def _pack(name: str, instance: PackingInstance, rng: np.random.Generator) -> Homes:
    packers: dict[str, Callable[[], Homes]] = {
        "random": lambda: pack_random(instance, rng),
        "greedy": lambda: pack_greedy(instance),
        "clustering": lambda: pack_clustering(instance),
        "mixing": lambda: pack_mixing(instance, rng),
        OURS: lambda: pack_drop(instance, rng),
    }
    return packers[name]()


def mean_figures(results: Sequence[TaskResult]) -> list[Figure]:
    """Return the mean of each name and setting over its networks, and the worst ratio of ours to the best."""
    numbers: dict[tuple[str, tuple[tuple[str, str | int | float], ...], str], list[float]] = {}
    for result in results:
        for each in result.samples:
            numbers.setdefault((each.name, tuple(each.where.items()), each.unit), []).append(each.value)
    figures = [
        figure
        for (name, where, unit), values in numbers.items()
        for figure in with_interval(name, dict(where), values, unit)
    ]
    worst = [max(values) for (name, _, _), values in numbers.items() if name == "ours_against_best"]
    return [*figures, Figure("ours_against_best_max", {}, max(worst, default=1.0), "1")]
