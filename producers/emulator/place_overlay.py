"""Place brokers on measured hosts, and choose the overlay that they start with: random tree, ring or regions.

The RTTs are a subset of PlanetLab's (data/SOURCES.md); if there are more brokers than hosts, they get random positions
on a synthetic plane.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.ring.chord_ring import DEFAULT_BITS
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.tree.build_tree import random_tree

DATA_DIRECTORY = Path(__file__).parents[1] / "data"
RTT_STEPS_PER_MS = 10  # The shipped data has tenths of a millisecond.
SYNTHETIC_SIDE_MS = 230.0  # With it the median RTT of two random points is about PlanetLab's 135 ms.
SYNTHETIC_ACCESS_MS_MAX = 10.0
# Even a broker that every notification crosses is busy for less than 0.6 of the time at 49 publishers x 4 per second,
# so that every overlay is stable, but processing still distinguishes brokers.
PROCESSING_MS_MIN = 1.0
PROCESSING_MS_MAX = 3.0
REGION_DEGREE_MAX = 4


def place_overlay(
    broker_count: int,
    degree_max: int,
    rng: random.Random,
    processing_ms: tuple[float, float] = (PROCESSING_MS_MIN, PROCESSING_MS_MAX),
) -> Inventory:
    """Return brokers on random hosts and a random tree, each with a service time drawn from ``processing_ms``."""
    width = len(str(broker_count - 1))
    brokers = tuple(f"b{number:0{width}d}" for number in range(broker_count))
    rtt_ms = _rtt_ms(broker_count, rng)
    costs = np.array([round(rng.uniform(*processing_ms), 3) for _ in brokers])
    return Inventory(brokers, costs, rtt_ms / 2, degree_max, random_tree(brokers, degree_max, rng))


def place_ring(broker_count: int, rng: random.Random) -> Inventory:
    """Return the brokers of :func:`place_overlay` on a Chord ring, with IDs by consistent hashing of their names."""
    tree = place_overlay(broker_count, broker_count - 1, rng)
    ring = RingConfiguration.hashed(0, DEFAULT_BITS, tree.brokers)
    return replace(tree, bootstrap=ring, degree_max=ring.degree_max)


def place_scot(
    broker_count: int,
    cluster_count: int,
    rng: random.Random,
    processing_ms: tuple[float, float] = (PROCESSING_MS_MIN, PROCESSING_MS_MAX),
) -> Inventory:
    """Return the brokers of :func:`place_overlay` in regions of nearby brokers, linked by a random tree of regions.

    Raises ValueError if ``broker_count`` is not a multiple of ``cluster_count`` with at least two regions.
    """
    region_count, rest = divmod(broker_count, cluster_count)
    if rest or region_count < 2:
        raise ValueError(
            f"{broker_count} brokers cannot form regions of {cluster_count}: use a multiple of it, at least two regions"
        )
    tree = place_overlay(broker_count, broker_count - 1, rng, processing_ms)
    left, regions = list(tree.brokers), []
    while left:
        first = left[0]
        left.sort(key=lambda broker: (tree.cost_of_link(first, broker) if broker != first else -1.0, broker))
        regions.append(tuple(left[:cluster_count]))
        left = left[cluster_count:]
    numbers = [str(number) for number in range(region_count)]
    links = random_tree(numbers, REGION_DEGREE_MAX, rng).links
    scot = ScotConfiguration(0, tuple(regions), tuple((int(a), int(b)) for a, b in links))
    return replace(tree, bootstrap=scot, degree_max=scot.degree_max)


def host_count() -> int:
    """Return the number of measured hosts."""
    return int(measured_rtt_ms().shape[0])


def _rtt_ms(broker_count: int, rng: random.Random) -> NDArray[np.float64]:
    if broker_count > host_count():
        return _synthetic_rtt_ms(broker_count, rng)
    hosts = sorted(rng.sample(range(host_count()), broker_count))
    return measured_rtt_ms()[np.ix_(hosts, hosts)]


@cache
def measured_rtt_ms() -> NDArray[np.float64]:
    """Return the round-trip times in ms between all measured hosts: symmetric, diagonal 0, cached (do not write)."""
    with np.load(DATA_DIRECTORY / "planetlab_rtt.npz") as cut:
        count = int(cut["hosts"])
        rtt_ms = np.zeros((count, count))
        rtt_ms[np.triu_indices(count, 1)] = cut["rtt_tenth_ms"] / RTT_STEPS_PER_MS
    return rtt_ms + rtt_ms.T


def _synthetic_rtt_ms(broker_count: int, rng: random.Random) -> NDArray[np.float64]:
    """Return distances in ms between random points of a square, plus an access delay for each."""
    points = np.array([(rng.random(), rng.random()) for _ in range(broker_count)]) * SYNTHETIC_SIDE_MS
    access_ms = np.array([rng.uniform(0.1, SYNTHETIC_ACCESS_MS_MAX) for _ in range(broker_count)])
    distance = np.hypot(points[:, 0, None] - points[None, :, 0], points[:, 1, None] - points[None, :, 1])
    rtt_ms: NDArray[np.float64] = distance + access_ms[:, None] + access_ms[None, :]
    np.fill_diagonal(rtt_ms, 0.0)
    return rtt_ms
