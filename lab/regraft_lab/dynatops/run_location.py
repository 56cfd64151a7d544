"""Run all systems of Zhao13 under the location model, on recorded check-ins: Figs. 6d to 6f, and 9.

In: a task. Out: samples of figures, which depend only on the task. Means over draws and verdicts do not belong here.

``homes``: "static": each user at a random broker; "located": at the broker of its current cell; "asks_home" and
"asks_near": by two readings of Algorithm 1 (:class:`experiments.dynatops.location_setting.Placement`). ``system``: as
in :mod:`experiments.dynatops.run_poisson`, and "bayeux16_pns" and "bayeux4_pns" with proximity neighbour selection, and
"geops".

A delay is measured from a topic's root to the user: the round-trip times of all hops between brokers and of the one
between the user and its home. DYNATOPS-Greedy considers round-trip times, our planner counts hops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import msgspec
import numpy as np

from regraft.api.programs import Figure
from regraft_lab.dynatops.broker_interests import interest_steps
from regraft_lab.dynatops.compared_systems import RootedSystem, System, bayeux_systems, ring_systems
from regraft_lab.dynatops.geops import draw_geo_overlay
from regraft_lab.dynatops.location_setting import (
    DAY_H,
    LocationSetting,
    Placement,
    draw_location_setting,
)
from regraft_lab.dynatops.random_streams import random_of
from regraft_lab.dynatops.user_model import UserHomes
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

MEASURES = 12  # Measurements per run.
WORK_CELLS = 20  # One kind of homes on this many cells takes as long as an hour of the Poisson model.
OTHERS: tuple[Name, ...] = tuple(
    (system, homes)
    for homes, systems in (
        ("static", ("bayeux16", "bayeux4")),
        ("located", ("bayeux16", "bayeux4", "bayeux16_pns", "bayeux4_pns", "geops")),
    )
    for system in systems
)


class LocationTask(msgspec.Struct, frozen=True, tag="location"):
    """All systems on one grid, with homes by each of ``placements``.

    ``has_others``: also run the systems of others, and the ring with located users. ``period_h``: T_free. ``settle_h``:
    the time from which systems are measured. ``data``: the folder of recorded check-ins, empty for the shipped cut.
    """

    seed: int
    draw: int
    rows: int
    columns: int
    placements: tuple[Placement, ...]
    has_others: bool
    period_h: float
    settle_h: float
    events_per_user_h: float = 1.0
    data: str = ""

    @property
    def label(self) -> str:
        """The name of the task in file names."""
        return f"location-{self.rows}x{self.columns}-{len(self.placements)}-{self.period_h:g}-{self.draw}"

    @property
    def work_count(self) -> int:
        """The work of the task, in simulated hours of the Poisson model."""
        return self.homes_work * (len(self.placements) + 2 * self.has_others)

    @property
    def homes_work(self) -> int:
        """The work of one kind of homes."""
        return max(1, self.rows * self.columns // WORK_CELLS)

    @property
    def where(self) -> Where:
        """The setting common to all its figures."""
        return {
            "model": "location", "grid": f"{self.rows}x{self.columns}", "period_h": self.period_h,
            "events_per_user_h": self.events_per_user_h,
        }  # fmt: skip


def run_location(task: LocationTask, report_work: ReportWork) -> list[Figure]:
    """Return the samples of one draw."""
    setting = draw_location_setting(task.seed, task.draw, task.rows, task.columns, task.data)
    others: dict[Name, SystemTotals] = {}
    samples = _setting_samples(task, setting)
    if task.has_others:
        static = random_of(task.seed, task.draw, "asked").integers(
            setting.broker_count, size=setting.workload.changes.user_count
        )
        workload = setting.workload
        for name, homes in (
            ("static", UserHomes(static)),
            ("located", UserHomes(workload.own_first, workload.own_after)),
        ):
            is_located = name == "located"
            systems = other_systems(task.seed, task.draw, setting, is_located=is_located)
            systems |= _rings(task, setting) if is_located else {}
            others |= {(system, name): total for system, total in _watch(task, setting, homes, systems).items()}
            report_work(task.homes_work)
        samples += total_samples(task.where, others, "ms")
    for placement in task.placements:
        homes, clusters = setting.place(placement)
        exchanges = np.ceil(setting.duration_h / setting.update_h) * clusters.messages_per_exchange
        totals = {
            (system, placement.name): replace(total, exchange_messages=float(exchanges))
            for system, total in _watch(task, setting, homes, _rings(task, setting)).items()
        }
        where: Where = {
            **task.where, "cluster_brokers": placement.cluster_brokers, "load_weight": placement.load_weight
        }  # fmt: skip
        samples += total_samples(where, totals, "ms")
        against = (
            *OTHERS,
            ("chord", "located"),
            ("ssbr", "located"),
            ("chord", placement.name),
            ("ssbr", placement.name),
        )
        samples += cut_samples(where, others | totals, tuple(totals), against)
        report_work(task.homes_work)
    located = tuple((system, "located") for system in ("ssbr", "assignment"))
    return samples + cut_samples(task.where, others, located, (*OTHERS, ("chord", "located"), ("ssbr", "located")))


def _watch(
    task: LocationTask, setting: LocationSetting, homes: UserHomes, systems: Mapping[str, System]
) -> dict[str, SystemTotals]:
    """Return the totals of systems, with delays that include the path between users and homes."""
    days = setting.duration_h / DAY_H
    schedule = Schedule(DAY_H * max(1, round(days / MEASURES)), task.settle_h, task.period_h)
    changes, count = setting.workload.changes, setting.broker_count
    times_h = [day * DAY_H for day in range(1, round(days) + 1) if schedule.is_measured(day * DAY_H)]
    steps = interest_steps(changes, count, homes.first, homes.after, DAY_H, setting.duration_h)
    access_ms = setting.mean_access_ms(homes, times_h)
    totals = watch_systems(steps, systems, schedule)
    return {
        name: replace(total, measures=replace(total.measures, delay=total.measures.delay + access_ms))
        for name, total in totals.items()
    }


def _rings(task: LocationTask, setting: LocationSetting) -> dict[str, System]:
    events_per_h = task.events_per_user_h * setting.workload.changes.user_count / setting.broker_count
    return ring_systems(
        setting.configuration,
        setting.topics,
        events_per_h * task.period_h,
        lambda: random_of(task.seed, task.draw, "events"),
        setting.rtt_ms,
    )


def other_systems(seed: int, draw: int, setting: LocationSetting, *, is_located: bool) -> dict[str, System]:
    """Return the systems of others: Bayeux, and for located users also the location-aware ones.

    These are Bayeux with proximity neighbour selection, and GeoPS if the grid is a square with a power of two as side.
    """
    count, topics, rtt_ms = setting.broker_count, setting.topics, setting.rtt_ms
    systems = bayeux_systems(count, topics, lambda name: random_of(seed, draw, name), rtt_ms)
    if not is_located:
        return systems
    systems |= bayeux_systems(count, topics, lambda name: random_of(seed, draw, name), rtt_ms, rtt_ms)
    rows, columns = setting.workload.grid.rows, setting.workload.grid.columns
    if rows == columns and not rows & (rows - 1):
        overlay = draw_geo_overlay(setting.workload.cells, random_of(seed, draw, "geops"), rows)
        systems["geops"] = RootedSystem.geops(overlay, rtt_ms)
    return systems


def _setting_samples(task: LocationTask, setting: LocationSetting) -> list[Figure]:
    """Return statistics of the recorded visits, with the paper's (Fig. 5)."""
    if not task.has_others:
        return []
    where: Where = {"model": "location", "grid": f"{task.rows}x{task.columns}"}
    counted = msgspec.to_builtins(setting.statistics)
    samples = [Figure(f"visits_{name}", where, float(value), "1") for name, value in counted.items()]
    return [
        *samples,
        Figure("users_per_broker", where, setting.statistics.users / setting.broker_count, "1"),
        Figure("update_h", where, setting.update_h, "h"),
    ]
