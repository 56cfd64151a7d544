"""The location model of Zhao13 on recorded check-ins: users want the cells that they and their friends are in.

In: check-ins, a grid, a seeded generator for the friends. Out: :class:`UserChanges`, each user's cell, and the paper's
statistics of visits. Brokers' links and users' homes do not belong here.

Source: Zhao13, section 6.1.1. There: 3 million check-ins of 40,000 Twitter users in the USA in three months, 1,200
cells of one degree. Here: one city, by default again 20 x 60 cells, of 2.4 by 0.8 km. Readings:

- a user stays in the cell of a check-in until the next one; before the first check-in it is in the cell of that one;
- friends are drawn once, uniformly among all other users, and following need not be mutual;
- every cell with a visit has a topic and a broker; nobody would want the other cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regraft.api.emulation import DAY_MINUTES, Checkins, checkins_of, load_checkins
from regraft_lab.dynatops.location_grid import LocationGrid
from regraft_lab.dynatops.user_changes import Floats, Ints, UserChanges, changes_of_tables, differing

FRIENDS = 4
DAY_H, WEEK_H = 24.0, 168.0
RECORDED = ("foursquare_nyc", "gowalla_nyc")


class CheckinFileError(FileNotFoundError):
    """The folder given for recorded check-ins does not contain them."""


def read_checkins(data_dir: Path | None, source: str = RECORDED[0]) -> Checkins:
    """Read a source's recorded check-ins from a folder; without a folder the shipped cut, for any source.

    Recorded check-ins are the development part (other users are held out), so results on them must not be called a
    test. Raises CheckinFileError if the folder has no such file, ValueError for an unknown source.
    """
    if source not in RECORDED:
        raise ValueError(f"source is {source!r}: expected one of {', '.join(RECORDED)}")
    if data_dir is None:
        return load_checkins()
    path = data_dir / "checkins" / f"{source}.npz"
    if not path.is_file():
        raise CheckinFileError(
            f"{path} does not exist: --data must name the folder with checkins/{source}.npz, it is {data_dir}"
        )
    with np.load(path) as recorded:
        if source == "gowalla_nyc":
            minute = recorded["time"] // 60
            lat, lon = recorded["lat"], recorded["lon"]
        else:
            minute = recorded["minute"].astype(np.int64)
            place = recorded["venue"] - 1
            lat, lon = recorded["venue_lat"][place], recorded["venue_lon"][place]
        user = np.unique(recorded["user"], return_inverse=True)[1]
    minute = minute - minute.min()
    return checkins_of(user, minute, lat, lon, int(minute.max()) // DAY_MINUTES + 1)


@dataclass(frozen=True, eq=False)
class Visits:
    """Merged successive check-ins of a user in one cell, ordered by user, then time. Arrays of shape (visits,)."""

    grid: LocationGrid
    checkin_count: int
    user_count: int
    users: Ints
    times_h: Floats
    cells: Ints

    @cached_property
    def used_cells(self) -> Ints:
        """The cells with visits, ascending."""
        return np.unique(self.cells)

    @cached_property
    def linger_h(self) -> Floats:
        """The length of each visit that is followed by another one of the same user."""
        same = self.users[1:] == self.users[:-1]
        lingering: Floats = np.diff(self.times_h)[same]
        return lingering


def merge_visits(checkins: Checkins, grid: LocationGrid) -> Visits:
    """Merge a user's successive check-ins in one cell into a visit that begins with the first of them."""
    order = np.argsort(checkins.user, kind="stable")  # Check-ins are oldest first.
    user, minute = checkins.user[order], checkins.minute[order]
    cell = grid.cells(checkins.lat[order], checkins.lon[order])
    begins = np.ones(len(user), dtype=np.bool_)
    begins[1:] = (user[1:] != user[:-1]) | (cell[1:] != cell[:-1])
    return Visits(
        grid, len(user), checkins.user_count, user[begins], minute[begins].astype(np.float64) / 60, cell[begins]
    )


@dataclass(frozen=True)
class VisitStatistics:
    """The statistics of visits that Zhao13 reports (Fig. 5a, 5b), with the paper's values in brackets.

    Shares: (user, cell) pairs visited only once (1/3), visits that last less than a day (1/2), more than a week (1/10).
    Counts: check-ins (3 million), users (40,000), visits (450,000), pairs (160,000), cells (1,200).
    """

    checkins: int
    users: int
    visits: int
    pairs: int
    cells: int
    cells_used: int
    single_share: float
    under_day_share: float
    over_week_share: float


def visit_statistics(visits: Visits) -> VisitStatistics:
    """Return the statistics of the paper's Fig. 5 for these visits; ``users`` counts users with a visit."""
    pair = visits.users.astype(np.int64) * visits.grid.cell_count + visits.cells
    times = np.unique(pair, return_counts=True)[1]
    return VisitStatistics(
        checkins=visits.checkin_count,
        users=len(np.unique(visits.users)),
        visits=len(visits.users),
        pairs=len(times),
        cells=visits.grid.cell_count,
        cells_used=len(visits.used_cells),
        single_share=float((times == 1).mean()),
        under_day_share=float((visits.linger_h < DAY_H).mean()),
        over_week_share=float((visits.linger_h > WEEK_H).mean()),
    )


@dataclass(frozen=True, eq=False)
class LocationWorkload:
    """Users in cells. A used cell, the topic of its events and its broker have the same position.

    ``friends`` (users, 4): the users that each user follows. ``own_first`` (users,) and ``own_after`` (changes,): the
    user's own cell at first and from each of its changes on; if homes follow the location, a difference is a handover.
    ``cells`` (used cells,): their numbers in the grid.
    """

    grid: LocationGrid
    cells: Ints
    changes: UserChanges
    friends: Ints
    own_first: Ints
    own_after: Ints

    @cached_property
    def distances_km(self) -> Floats:
        """Distances between brokers, shape (used cells, used cells)."""
        return self.grid.distances_km(self.cells)


def draw_location_changes(visits: Visits, rng: np.random.Generator, friend_count: int = FRIENDS) -> LocationWorkload:
    """Return users' topics over time; only the friends are random. Time starts with the first visit.

    Raises ValueError if there are fewer other users than friends. Cost O(visits * friends log visits).
    """
    users = visits.user_count
    if users <= friend_count:
        raise ValueError(f"{users} users cannot follow {friend_count} others each: take more check-ins")
    friends = draw_friends(users, friend_count, rng)
    sources = np.column_stack([np.arange(users, dtype=np.int32), friends])
    where = np.searchsorted(visits.used_cells, visits.cells).astype(np.int32)
    first_visit = np.searchsorted(visits.users, np.arange(users))

    # A visit is an event for its user and all followers; a user's first visit is no move.
    moves = np.ones(len(visits.users), dtype=np.bool_)
    moves[first_visit] = False
    followed = np.argsort(sources, axis=None, kind="stable")  # Followers of user 0, then of user 1, ...
    first_follower = np.searchsorted(sources.ravel()[followed], np.arange(users + 1))
    counts = np.diff(first_follower)[visits.users] * moves
    place = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    event_users = followed[np.repeat(first_follower[visits.users], counts) + place] // sources.shape[1]
    event_times_h = np.repeat(visits.times_h, counts)
    order = np.argsort(event_times_h, kind="stable")
    event_users, event_times_h = event_users[order].astype(np.int32), event_times_h[order]

    initial = where[first_visit][sources]
    tables = np.column_stack([where[_last_visits(visits, column[event_users], event_times_h)] for column in sources.T])
    # A user may move without a change of topics, if friends are in both its old and its new cell.
    own = np.column_stack([initial[:, 0], initial[:, 0]])
    own_later = np.column_stack([tables[:, 0], tables[:, 0]])
    kept = differing(initial, event_users, tables) | differing(own, event_users, own_later)
    changes = changes_of_tables(len(visits.used_cells), initial, event_times_h[kept], event_users[kept], tables[kept])
    return LocationWorkload(visits.grid, visits.used_cells, changes, friends, initial[:, 0], tables[kept, 0])


def draw_friends(user_count: int, friend_count: int, rng: np.random.Generator) -> Ints:
    """Return distinct, uniformly drawn other users for each user, shape (users, friends)."""
    chosen = np.empty((user_count, 0), dtype=np.int64)
    for drawn in range(friend_count):
        # Draw the rank among the free numbers, then shift it past each taken number that is not above it.
        taken = np.sort(np.column_stack([np.arange(user_count), chosen]), axis=1)
        one = rng.integers(user_count - 1 - drawn, size=user_count)
        for column in taken.T:
            one += one >= column
        chosen = np.column_stack([chosen, one])
    return chosen.astype(np.int32)


def _last_visits(visits: Visits, users: NDArray[np.integer], times_h: Floats) -> NDArray[np.int64]:
    """Return the last visit of each user up to a time; before its first visit, the first one."""
    span_h = float(visits.times_h.max()) + 1
    keys = visits.users * span_h + visits.times_h
    places = np.searchsorted(keys, users * span_h + times_h, side="right") - 1
    return np.maximum(places, np.searchsorted(visits.users, users))
