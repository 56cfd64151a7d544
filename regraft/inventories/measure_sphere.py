"""Delays between places on the Earth: a lower bound, that of light in fibre along the shortest line."""

from __future__ import annotations

import math

EARTH_RADIUS_KM = 6_371.0
FIBRE_KM_PER_MS = 200.0

Place = tuple[float, float]  # Longitude and latitude in degrees.


def delay_ms_between(one: Place, other: Place) -> float:
    """Return the one-way delay between two places (haversine)."""
    (east, north), (other_east, other_north) = (tuple(map(math.radians, place)) for place in (one, other))
    half = math.sin((north - other_north) / 2) ** 2
    half += math.cos(north) * math.cos(other_north) * math.sin((east - other_east) / 2) ** 2
    return 2 * EARTH_RADIUS_KM * math.asin(min(math.sqrt(half), 1.0)) / FIBRE_KM_PER_MS
