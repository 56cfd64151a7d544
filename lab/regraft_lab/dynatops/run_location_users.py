"""Place users of the location model in clusters of different sizes: Figs. 6a to 6c."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from regraft.api.programs import Figure
from regraft_lab.dynatops.broker_interests import interest_steps
from regraft_lab.dynatops.compared_systems import System
from regraft_lab.dynatops.location_setting import DAY_H, LocationSetting, Placement, draw_location_setting
from regraft_lab.dynatops.random_streams import random_of
from regraft_lab.dynatops.run_location import WORK_CELLS, other_systems
from regraft_lab.dynatops.user_model import UserHomes, UserTotals, hops_to_roots, total_steps, user_steps
from regraft_lab.dynatops.watch_systems import Name, Where


class LocationUsersTask(msgspec.Struct, frozen=True, tag="location-users"):
    """One grid with homes by each of ``placements``; ``data`` as in the location task."""

    seed: int
    draw: int
    rows: int
    columns: int
    placements: tuple[Placement, ...]
    data: str = ""

    @property
    def label(self) -> str:
        """The name of the task in file names."""
        return f"location-users-{self.rows}x{self.columns}-{self.draw}"

    @property
    def work_count(self) -> int:
        """The work of the task, in simulated hours of the Poisson model."""
        return self.homes_work * len(self.placements)

    @property
    def homes_work(self) -> int:
        """The work of one placement."""
        return max(1, self.rows * self.columns // (4 * WORK_CELLS))


def run_location_users(task: LocationUsersTask, report_work: Callable[[int], None]) -> list[Figure]:
    """Return the samples of one draw."""
    setting = draw_location_setting(task.seed, task.draw, task.rows, task.columns, task.data)
    where: Where = {"model": "location", "grid": f"{task.rows}x{task.columns}"}
    hops = hops_to_roots(setting.configuration, setting.topics)
    changes, hours = setting.workload.changes, setting.duration_h

    def total(homes: UserHomes, exchange: int = 0) -> UserTotals:
        steps = user_steps(changes, homes, hops, exchange, setting.update_h, DAY_H, setting.duration_h)
        return total_steps(steps)

    workload = setting.workload
    asked = random_of(task.seed, task.draw, "asked").integers(setting.broker_count, size=changes.user_count)
    static, located = UserHomes(asked), UserHomes(workload.own_first, workload.own_after)
    others: dict[Name, float] = {}
    samples: list[Figure] = []
    for name, homes in (("static", static), ("located", located)):
        figures = total(homes)
        samples += _samples({**where, "homes": name}, figures, hours)
        systems = other_systems(task.seed, task.draw, setting, is_located=name == "located")
        others |= {(system, name): each for system, each in _requests_per_h(setting, homes, systems).items()}
    located_handovers = total(located).handovers
    samples += [
        Figure("others_management_per_h", {**where, "system": system, "homes": homes}, value, "messages/h")
        for (system, homes), value in others.items()
    ]
    for placement in task.placements:
        placed, clusters = setting.place(placement)
        figures = total(placed, clusters.messages_per_exchange)
        here: Where = {
            **where, "homes": placement.name, "cluster_brokers": placement.cluster_brokers,
            "load_weight": placement.load_weight,
        }  # fmt: skip
        samples += _samples(here, figures, hours)
        samples.append(Figure("handovers_cut", here, 1 - figures.handovers / max(located_handovers, 1), "1"))
        for (system, at), value in others.items():
            cut = 1 - figures.management_messages / hours / value
            samples.append(
                Figure("user_management_per_h_cut", {**here, "against": system, "against_homes": at}, cut, "1")
            )
        report_work(task.homes_work)
    return samples


def _samples(where: Where, totals: UserTotals, hours: float) -> list[Figure]:
    return [
        Figure("user_management_per_h", where, totals.management_messages / hours, "messages/h"),
        Figure("exchanges_per_h", where, totals.exchange_messages / hours, "messages/h"),
        Figure("subscription_changes_per_h", where, totals.subscription_changes / hours, "1/h"),
        Figure("handovers_per_h", where, totals.handovers / hours, "1/h"),
        Figure("load_std", where, totals.load_std, "subscriptions"),
        Figure("location_load_cv", where, totals.load_cv, "1"),
    ]


def _requests_per_h(setting: LocationSetting, homes: UserHomes, systems: Mapping[str, System]) -> dict[str, float]:
    for step in interest_steps(
        setting.workload.changes, setting.broker_count, homes.first, homes.after, DAY_H, setting.duration_h
    ):
        for system in systems.values():
            system.observe(step)
    return {name: system.counts.requests / setting.duration_h for name, system in systems.items()}
