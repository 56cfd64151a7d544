"""The shipped check-ins of mobile users, and the cells of a grid that they fall into.

Who follows whom, and how fast time runs, is not decided here.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CHECKINS_PATH = Path(__file__).parents[1] / "data" / "nyc_checkins.npz"
STEPS_PER_DEGREE = 1_000.0
DAY_MINUTES = 24 * 60


class Checkins(NamedTuple):
    """Check-ins, oldest first: four arrays of shape (check-ins,), and how long they were collected.

    ``user``: numbers from 0, each with at least one check-in. ``minute``: minutes since the start, below
    ``days * 1440``. ``lat``, ``lon``: degrees, rounded. The arrays are read-only.
    """

    user: NDArray[np.int32]
    minute: NDArray[np.int32]
    lat: NDArray[np.float64]
    lon: NDArray[np.float64]
    days: int

    @property
    def user_count(self) -> int:
        """How many users there are."""
        return int(self.user.max()) + 1

    @property
    def minutes(self) -> int:
        """How long the check-ins were collected, in minutes."""
        return self.days * DAY_MINUTES


@cache
def load_checkins() -> Checkins:
    """Read the shipped cut."""
    with np.load(CHECKINS_PATH) as cut:
        return checkins_of(
            cut["user"],
            cut["minute"],
            cut["lat_thousandth"] / STEPS_PER_DEGREE,
            cut["lon_thousandth"] / STEPS_PER_DEGREE,
            int(cut["days"]),
        )


def checkins_of(
    user: NDArray[np.integer],
    minute: NDArray[np.integer],
    lat: NDArray[np.floating],
    lon: NDArray[np.floating],
    days: int,
) -> Checkins:
    """Return these check-ins, oldest first, in read-only arrays."""
    order = np.argsort(minute, kind="stable")
    checkins = Checkins(
        user[order].astype(np.int32),
        minute[order].astype(np.int32),
        lat[order].astype(np.float64),
        lon[order].astype(np.float64),
        days,
    )
    for column in (checkins.user, checkins.minute, checkins.lat, checkins.lon):
        column.setflags(write=False)
    return checkins


def cell_numbers(checkins: Checkins, rows: int, columns: int) -> NDArray[np.int32]:
    """Return the cell of each check-in, ``row * columns + column``, shape (check-ins,).

    Rows go north and columns east. They are spaced by quantiles, so that each row and each column has about as many
    check-ins as any other; a cell may still have none.
    """
    row = np.searchsorted(_inner_edges(checkins.lat, rows), checkins.lat, side="right")
    column = np.searchsorted(_inner_edges(checkins.lon, columns), checkins.lon, side="right")
    return (row * columns + column).astype(np.int32)


def _inner_edges(positions: NDArray[np.float64], parts: int) -> NDArray[np.float64]:
    edges: NDArray[np.float64] = np.quantile(positions, np.arange(1, parts) / parts)
    return edges


def cell_name(number: int, columns: int) -> str:
    """Return the topic of a cell, as in ``cell-07-12``: its row and its column."""
    return f"cell-{number // columns:02d}-{number % columns:02d}"
