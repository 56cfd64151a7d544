"""The common setting of all runs of the location model: recorded movements on one grid, ring, delays, users' homes.

Readings: the paper does not say how often brokers exchange their states (T_update). A day of its model has about 20
changes of users' topics per broker; here brokers exchange states once per this many changes, on any grid and with any
data. Of a longer recording the busiest three months are used, the length of the paper's recording.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec
import numpy as np

from regraft.api.emulation import DAY_MINUTES, Checkins, checkins_of
from regraft.api.planners import PlacementRules
from regraft.api.rings import RingConfiguration, UserClusters
from regraft_lab.dynatops.chord_baseline import random_configuration
from regraft_lab.dynatops.dissemination import Floats
from regraft_lab.dynatops.location_grid import RTT_MS_PER_KM, LocationGrid, draw_rtt_ms
from regraft_lab.dynatops.location_workload import (
    LocationWorkload,
    VisitStatistics,
    draw_location_changes,
    merge_visits,
    read_checkins,
    visit_statistics,
)
from regraft_lab.dynatops.random_streams import random_of
from regraft_lab.dynatops.user_model import UserHomes, place_by_utility

CHANGES_PER_UPDATE = 20.0  # 450,000 visits, each seen by 5 users, in 92 days at 1,200 brokers (Zhao13, section 6.1.1).
DAY_H = 24.0
PAPER_DAYS = 92
SOURCE = "gowalla_nyc"  # It has more users than the other source; the paper has many users per broker.


class Placement(msgspec.Struct, frozen=True):
    """One reading of Algorithm 1 in the location model.

    ``asks``: the broker that a user asks when its topics change. "home": its home, as in the text, so it never leaves
    the cluster in which it joined; "near": the broker of its current cell. ``load_weight`` is w_l.
    """

    asks: str
    load_weight: float
    cluster_brokers: int

    @property
    def name(self) -> str:
        """The value of ``homes`` in figures."""
        return f"asks_{self.asks}"


@dataclass(frozen=True, eq=False)
class LocationSetting:
    """One draw of the location model on one grid. Brokers and topics are the used cells, with the same positions."""

    workload: LocationWorkload
    statistics: VisitStatistics
    configuration: RingConfiguration
    rtt_ms: Floats

    @property
    def broker_count(self) -> int:
        """The number of brokers, which is also that of topics."""
        return len(self.workload.cells)

    @cached_property
    def topics(self) -> tuple[str, ...]:
        """The names of topics, in the order of their cells."""
        return tuple(f"cell {number:05d}" for number in range(self.broker_count))

    @property
    def duration_h(self) -> float:
        """The length of the recording in hours, rounded up to whole days."""
        return DAY_H * float(np.ceil(self.workload.changes.times_h[-1] / DAY_H))

    @property
    def update_h(self) -> float:
        """T_update, in hours."""
        return CHANGES_PER_UPDATE * self.broker_count * self.duration_h / self.workload.changes.change_count

    @cached_property
    def access_ms(self) -> Floats:
        """Mean round-trip time from a user in a cell to a broker, shape (cells, brokers)."""
        return self.workload.grid.access_distances_km(self.workload.cells) * RTT_MS_PER_KM

    def place(self, placement: Placement) -> tuple[UserHomes, UserClusters]:
        """Return the homes by one reading of Algorithm 1, and the clusters, which consist of nearby brokers."""
        workload = self.workload
        clusters = UserClusters.by_nearness(workload.distances_km, placement.cluster_brokers)
        asked_after = workload.own_after if placement.asks == "near" else None
        rules = PlacementRules(placement.load_weight)
        homes = place_by_utility(workload.changes, clusters, rules, workload.own_first, asked_after, self.update_h)
        return homes, clusters

    def mean_access_ms(self, homes: UserHomes, times_h: list[float]) -> float:
        """Return the mean round-trip time between users and their homes, over subscriptions and these times."""
        return float(np.mean([self._access_ms_at(homes, time_h) for time_h in times_h]))

    def _access_ms_at(self, homes: UserHomes, time_h: float) -> float:
        changes = self.workload.changes
        end = int(np.searchsorted(changes.times_h, time_h))
        last = np.full(changes.user_count, -1, dtype=np.int64)
        np.maximum.at(last, changes.users[:end], np.arange(end))
        has_changed = last >= 0
        where = self.workload.own_first.astype(np.int64).copy()
        home = np.asarray(homes.first, dtype=np.int64).copy()
        sizes = np.diff(changes.starts)
        where[has_changed] = self.workload.own_after[last[has_changed]]
        sizes[has_changed] = np.diff(changes.new_starts)[last[has_changed]]
        if homes.after is not None:
            home[has_changed] = homes.after[last[has_changed]]
        return float((self.access_ms[where, home] * sizes).sum() / sizes.sum())


def recorded_movements(data_dir: Path | None) -> Checkins:
    """Return the shipped check-ins, or those of a folder, limited to the busiest three months.

    Raises CheckinFileError if the folder has none.
    """
    checkins = read_checkins(data_dir, SOURCE)
    if checkins.days <= PAPER_DAYS:
        return checkins
    day = checkins.minute // DAY_MINUTES
    until = np.concatenate([[0], np.cumsum(np.bincount(day, minlength=checkins.days))])
    first = int((until[PAPER_DAYS:] - until[:-PAPER_DAYS]).argmax())
    kept = (day >= first) & (day < first + PAPER_DAYS)
    user = np.unique(checkins.user[kept], return_inverse=True)[1]
    minute = checkins.minute[kept] - first * DAY_MINUTES
    return checkins_of(user, minute, checkins.lat[kept], checkins.lon[kept], PAPER_DAYS)


def draw_location_setting(seed: int, draw: int, rows: int, columns: int, data: str = "") -> LocationSetting:
    """Return one draw of friends, ring IDs and round-trip times; movements are the recorded ones."""
    checkins = recorded_movements(Path(data) if data else None)
    visits = merge_visits(checkins, LocationGrid.around(checkins.lat, checkins.lon, rows, columns))
    workload = draw_location_changes(visits, random_of(seed, draw, "friends"))
    brokers = [f"broker {number:05d}" for number in range(len(workload.cells))]
    configuration = random_configuration(brokers, random_of(seed, draw, "ring"))
    rtt_ms = draw_rtt_ms(workload.distances_km, random_of(seed, draw, "round-trip times"))
    return LocationSetting(workload, visit_statistics(visits), configuration, rtt_ms)
