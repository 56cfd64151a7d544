"""A grid over a city: the cell of a position, distances between cells, and round-trip times between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regraft_lab.dynatops.user_changes import Floats, Ints

KM_PER_DEGREE = 111.195  # Of latitude, on a sphere with a radius of 6371 km.
# Light in fibre travels 200 km per ms, and a round trip covers the distance twice. The paper gives no factor; figures
# that compare systems do not depend on it.
RTT_MS_PER_KM = 2 / 200
RTT_SPREAD = 0.5  # Round-trip times lie between 0.5 and 1.5 times their mean; the paper gives no distribution.
SQUARE_MEAN_DISTANCE = 0.5214  # Of two random points in a unit square.


@dataclass(frozen=True)
class LocationGrid:
    """``rows`` by ``columns`` cells of equal size in degrees; cell ``row * columns + column``, rows from the south."""

    south: float
    north: float
    west: float
    east: float
    rows: int = 20
    columns: int = 60

    def __post_init__(self) -> None:
        if not (self.south < self.north and self.west < self.east and self.rows > 0 and self.columns > 0):
            raise ValueError(
                f"a grid needs an area and cells, not latitudes {self.south} to {self.north}, longitudes {self.west} "
                f"to {self.east}, {self.rows} x {self.columns} cells"
            )

    @classmethod
    def around(cls, lat: Floats, lon: Floats, rows: int = 20, columns: int = 60) -> LocationGrid:
        """Return the smallest grid that contains all positions."""
        return cls(float(lat.min()), float(lat.max()), float(lon.min()), float(lon.max()), rows, columns)

    @property
    def cell_count(self) -> int:
        """The number of cells."""
        return self.rows * self.columns

    def cells(self, lat: Floats, lon: Floats) -> Ints:
        """Return the cell of each position; for positions outside the grid the nearest cell."""
        row = (lat - self.south) / (self.north - self.south) * self.rows
        column = (lon - self.west) / (self.east - self.west) * self.columns
        inside = [np.clip(one.astype(np.int32), 0, end - 1) for one, end in ((row, self.rows), (column, self.columns))]
        return np.asarray(inside[0] * self.columns + inside[1], dtype=np.int32)

    def distances_km(self, cells: NDArray[np.integer]) -> Floats:
        """Return the distances between the centres of cells, shape (cells, cells).

        They are taken in a plane that approximates the city; 0 from a cell to itself, because brokers are at the
        centres.
        """
        height, width = self._cell_km
        north, east = cells // self.columns * height, cells % self.columns * width
        return np.hypot(north[:, None] - north[None, :], east[:, None] - east[None, :])

    def access_distances_km(self, cells: NDArray[np.integer]) -> Floats:
        """Return the distance from a user in one cell to the broker of another, shape (user cells, broker cells).

        It is the distance of the centres; within a cell, the mean distance of two random points in a square of its
        area.
        """
        height, width = self._cell_km
        distances = self.distances_km(cells)
        np.fill_diagonal(distances, SQUARE_MEAN_DISTANCE * np.sqrt(height * width))
        return distances

    @property
    def _cell_km(self) -> tuple[float, float]:
        height = (self.north - self.south) / self.rows * KM_PER_DEGREE
        shrink = np.cos(np.radians((self.north + self.south) / 2))
        return height, float((self.east - self.west) / self.columns * KM_PER_DEGREE * shrink)


def draw_rtt_ms(distances_km: Floats, rng: np.random.Generator) -> Floats:
    """Return a round-trip time for each pair, with a mean proportional to the distance, symmetric.

    Source: Zhao13, section 6.1.1. Reading: one draw for each pair, uniform around the mean, kept for the whole run.
    """
    upper = np.triu(rng.uniform(1 - RTT_SPREAD, 1 + RTT_SPREAD, distances_km.shape))
    factors = upper + np.triu(upper, 1).T
    return distances_km * RTT_MS_PER_KM * factors
