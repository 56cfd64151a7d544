"""Run all systems of Zhao13 under the Poisson model: Figs. 7 and 8, and Fig. 9 with other values of T_free.

In: a task. Out: samples of figures, which depend only on the task. Means over draws and verdicts do not belong here.

``homes``: "static": each user at a random broker forever, as for Bayeux and TCO in the paper; "placed": by Algorithm 1,
in which a user first asks a random broker and later its home. ``system``: "chord" is a ring with random IDs, "ssbr" the
same with DYNATOPS-Greedy, "assignment" with our planner; "bayeux16" and "bayeux4" are Bayeux with digits of these
bases, "tco" is DCB-M. So DYNATOPS is (ssbr, placed), DYNATOPS(BNR) (ssbr, static) and DYNATOPS(UP) (chord, placed).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from regraft.api.planners import PlacementRules
from regraft.api.programs import Figure
from regraft.api.rings import UserClusters
from regraft_lab.dynatops.chord_baseline import random_configuration
from regraft_lab.dynatops.compared_systems import ConnectedSystem, System, bayeux_systems, ring_systems
from regraft_lab.dynatops.poisson_workload import Pattern, PoissonSettings, draw_poisson_changes
from regraft_lab.dynatops.random_streams import random_of
from regraft_lab.dynatops.user_changes import UserChanges
from regraft_lab.dynatops.user_model import UserHomes, place_by_utility, total_steps, user_steps
from regraft_lab.dynatops.watch_systems import (
    Name,
    Schedule,
    SystemTotals,
    Where,
    cut_samples,
    total_samples,
    watch_systems,
)

ReportWork = Callable[[int], None]

MEASURE_H = 5.0
STEP_H = UPDATE_H = 1.0
LOAD_WEIGHT = 1.0
CONNECTED_MEASURES = 2  # Measuring TCO takes as long as rebuilding it.
CONNECTED_WORK = 12  # Work of an hour of TCO, in hours of all others.
SUBJECTS: tuple[Name, ...] = (
    ("chord", "placed"), ("ssbr", "static"), ("ssbr", "placed"), ("assignment", "static"), ("assignment", "placed"),
)  # fmt: skip
AGAINST: tuple[Name, ...] = (
    ("chord", "static"), ("bayeux16", "static"), ("bayeux4", "static"), ("tco", "static"), ("chord", "placed"),
    ("ssbr", "static"), ("ssbr", "placed"),
)  # fmt: skip


class PoissonTask(msgspec.Struct, frozen=True, tag="poisson"):
    """All systems on one pattern, rate, cluster size and T_free.

    ``settle_h``: the time from which systems are measured. ``connected_h``: how long TCO, the slowest, is run; 0 skips
    it. ``events_per_user_h``: events that each user publishes, spread evenly over all topics.
    """

    seed: int
    draw: int
    pattern: Pattern
    changes_per_user_h: float
    cluster_brokers: int
    period_h: float
    duration_h: float
    settle_h: float
    connected_h: float = 0.0
    events_per_user_h: float = 1.0
    user_count: int = 50_000
    broker_count: int = 100
    topic_count: int = 1_000

    @property
    def label(self) -> str:
        """The name of the task in file names."""
        return (
            f"poisson-{self.pattern}-{self.changes_per_user_h:g}-{self.cluster_brokers}-{self.period_h:g}-{self.draw}"
        )

    @property
    def work_count(self) -> int:
        """The work of the task, in simulated hours of both kinds of homes."""
        connected_steps = round(self.connected_h) + 1 if self.connected_h else 0
        return 2 * (round(self.duration_h) + 1) + CONNECTED_WORK * connected_steps

    @property
    def where(self) -> Where:
        """The setting common to all its figures."""
        return {
            "model": "poisson", "pattern": self.pattern, "changes_per_user_h": self.changes_per_user_h,
            "cluster_brokers": self.cluster_brokers, "period_h": self.period_h,
            "events_per_user_h": self.events_per_user_h,
        }  # fmt: skip


def run_poisson(task: PoissonTask, report_work: ReportWork) -> list[Figure]:
    """Return the samples of one draw."""
    changes, asked = draw_users(task)
    schedule = Schedule(MEASURE_H, task.settle_h, task.period_h)
    clusters = UserClusters.at_random(
        task.broker_count, task.cluster_brokers, random_of(task.seed, task.draw, "clusters")
    )
    placed = place_by_utility(changes, clusters, PlacementRules(LOAD_WEIGHT), asked, update_h=UPDATE_H)
    samples: list[Figure] = []
    totals: dict[Name, SystemTotals] = {}
    for homes, where_users, exchange in (
        ("static", UserHomes(asked), 0),
        ("placed", placed, clusters.messages_per_exchange),
    ):
        no_hops = np.zeros((task.broker_count, task.topic_count), dtype=np.int32)  # Systems count their hops.
        steps = list(user_steps(changes, where_users, no_hops, exchange, UPDATE_H, STEP_H, task.duration_h))
        users = total_steps(steps)
        here: Where = {**task.where, "homes": homes}
        samples += [
            Figure("subscription_changes_per_h", here, users.subscription_changes / task.duration_h, "1/h"),
            Figure("handovers_per_h", here, users.handovers / task.duration_h, "1/h"),
            Figure("brokers_per_topic", here, float(steps[-1].interests.wanted.sum(axis=0).mean()), "1"),
        ]
        figures = watch_systems(
            (step.interests for step in steps), _systems(task), schedule, lambda: report_work(round(STEP_H))
        )
        for name, total in figures.items():
            totals[name, homes] = SystemTotals(
                total.measures, total.counts, total.hours, float(users.exchange_messages)
            )
    totals |= _connected(task, changes, UserHomes(asked), report_work)
    samples += _user_cuts(task, samples)
    return samples + total_samples(task.where, totals, "hops") + cut_samples(task.where, totals, SUBJECTS, AGAINST)


def draw_users(task: PoissonTask) -> tuple[UserChanges, np.ndarray]:
    """Return users' topics over time, and the broker that each user asks first."""
    settings = PoissonSettings(
        task.pattern, task.changes_per_user_h, task.user_count, task.broker_count, task.topic_count,
        duration_h=task.duration_h,
    )  # fmt: skip
    changes = draw_poisson_changes(settings, random_of(task.seed, task.draw, "changes"))
    return changes, random_of(task.seed, task.draw, "asked").integers(task.broker_count, size=task.user_count)


def _systems(task: PoissonTask) -> dict[str, System]:
    topics = tuple(f"topic {number:04d}" for number in range(task.topic_count))
    brokers = [f"broker {number:04d}" for number in range(task.broker_count)]
    configuration = random_configuration(brokers, random_of(task.seed, task.draw, "ring"))
    events_per_period = task.events_per_user_h * task.user_count / task.topic_count * task.period_h
    rings = ring_systems(configuration, topics, events_per_period, lambda: random_of(task.seed, task.draw, "events"))
    return rings | bayeux_systems(task.broker_count, topics, lambda name: random_of(task.seed, task.draw, name))


def _connected(
    task: PoissonTask, changes: UserChanges, homes: UserHomes, report_work: ReportWork
) -> dict[Name, SystemTotals]:
    """Return the totals of TCO over its hours."""
    if not task.connected_h:
        return {}
    no_hops = np.zeros((task.broker_count, task.topic_count), dtype=np.int32)
    steps = user_steps(changes, homes, no_hops, step_h=STEP_H, duration_h=task.connected_h)
    schedule = Schedule(max(STEP_H, task.connected_h // CONNECTED_MEASURES), 0.0)
    totals = watch_systems(
        (step.interests for step in steps),
        {"tco": ConnectedSystem(random_of(task.seed, task.draw, "tco"))},
        schedule,
        lambda: report_work(CONNECTED_WORK),
    )
    return {("tco", "static"): totals["tco"]}


def _user_cuts(task: PoissonTask, samples: list[Figure]) -> list[Figure]:
    """Return the share of brokers' subscription changes that placement saves."""
    figures = {each.where["homes"]: each.value for each in samples if each.name == "subscription_changes_per_h"}
    if not figures["static"]:
        return []
    cut = 1 - figures["placed"] / figures["static"]
    return [Figure("changes_cut_by_rate", {**task.where, "homes": "placed"}, cut, "1")]
