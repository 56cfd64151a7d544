"""Place users of the Poisson model in clusters of different sizes, with different weights of load."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from regraft.api.planners import PlacementRules
from regraft.api.programs import Figure
from regraft.api.rings import UserClusters
from regraft_lab.dynatops.chord_baseline import random_configuration
from regraft_lab.dynatops.poisson_workload import Pattern
from regraft_lab.dynatops.random_streams import random_of
from regraft_lab.dynatops.run_poisson import STEP_H, UPDATE_H, PoissonTask, draw_users
from regraft_lab.dynatops.user_model import UserHomes, hops_to_roots, place_by_utility, total_steps, user_steps
from regraft_lab.dynatops.watch_systems import Where


class ClusterTask(msgspec.Struct, frozen=True, tag="clusters"):
    """One pattern with all cluster sizes ``clusters`` and ``load_weights``."""

    seed: int
    draw: int
    pattern: Pattern
    clusters: tuple[int, ...]
    load_weights: tuple[float, ...]
    changes_per_user_h: float
    duration_h: float
    user_count: int = 50_000
    broker_count: int = 100
    topic_count: int = 1_000

    @property
    def label(self) -> str:
        """The name of the task in file names."""
        return f"clusters-{self.pattern}-{self.draw}"

    @property
    def work_count(self) -> int:
        """The work of the task: simulated hours, summed over placements."""
        return round(self.duration_h) * len(self.clusters) * len(self.load_weights)


def run_clusters(task: ClusterTask, report_work: Callable[[int], None]) -> list[Figure]:
    """Return the samples of one draw."""
    model = PoissonTask(
        task.seed, task.draw, task.pattern, task.changes_per_user_h, 0, 0.0, task.duration_h, 0.0,
        user_count=task.user_count, broker_count=task.broker_count, topic_count=task.topic_count,
    )  # fmt: skip
    changes, asked = draw_users(model)
    brokers = [f"broker {number:04d}" for number in range(task.broker_count)]
    topics = tuple(f"topic {number:04d}" for number in range(task.topic_count))
    hops = hops_to_roots(random_configuration(brokers, random_of(task.seed, task.draw, "ring")), topics)
    static = total_steps(user_steps(changes, UserHomes(asked), hops, step_h=STEP_H, duration_h=task.duration_h))
    where: Where = {"model": "poisson", "pattern": task.pattern, "changes_per_user_h": task.changes_per_user_h}
    samples = [
        Figure("random_homes_subscription_changes_per_h", where, static.subscription_changes / task.duration_h, "1/h"),
        Figure("random_homes_management_per_h", where, static.management_messages / task.duration_h, "messages/h"),
        Figure("random_homes_load_cv", where, static.load_cv, "1"),
    ]
    for size in task.clusters:
        clusters = UserClusters.at_random(task.broker_count, size, random_of(task.seed, task.draw, "clusters"))
        for weight in task.load_weights:
            placed = place_by_utility(changes, clusters, PlacementRules(weight), asked, update_h=UPDATE_H)
            exchange = clusters.messages_per_exchange
            figures = total_steps(user_steps(changes, placed, hops, exchange, UPDATE_H, STEP_H, task.duration_h))
            here: Where = {**where, "cluster_brokers": size, "load_weight": weight}
            cut = 1 - figures.subscription_changes / max(static.subscription_changes, 1)
            samples += [
                Figure("subscription_changes_cut", here, cut, "1"),
                Figure("subscription_changes_per_h", here, figures.subscription_changes / task.duration_h, "1/h"),
                Figure("load_cv", here, figures.load_cv, "1"),
                Figure("handovers_per_h", here, figures.handovers / task.duration_h, "1/h"),
                Figure("management_per_h", here, figures.management_messages / task.duration_h, "messages/h"),
            ]
            report_work(round(task.duration_h))
    return samples
