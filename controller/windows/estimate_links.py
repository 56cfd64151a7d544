"""Estimate the cost of unmeasured links by network coordinates: a place for each broker. Pure.

Vivaldi (Dabek et al., SIGCOMM 2004) with height vectors, sections 2.6 and 5.4, and the adaptive timestep of section
2.5: each measured link is a spring between its ends, and an end moves less the surer it is of its place, and the less
sure the other end is. In the paper each host keeps its own place; here the controller has all measurements and keeps
all places, so no message is added, and a measurement moves both ends. Heuristic, without a guarantee: the internet
violates the triangle inequality, which no places can reproduce. ``benchmarks/bench_coordinates`` measures the error.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from regraft.overlay.inventory.estimated_costs import EstimatedCosts
from regraft.overlay.overlay_configuration import Link

DIMENSIONS = 3
ERROR_SHARE, MOVE_SHARE = 0.25, 0.25  # The paper's c_e and c_c.
ERROR_FIRST = 1.0  # Of a broker without a place; 1 is an error as large as the cost itself.
HEIGHT_MIN = 1e-3  # Of the mean cost: every link includes the access paths of its ends.
SAMPLES_MAX = 10_000  # Measurements replayed for each window: 0.1 s of a core.
MEASURED_PEERS_MIN = DIMENSIONS + 2  # A broker with fewer measured links has no meaningful place.
ERROR_SETTLED = 0.2  # Places are used while the median error of measured links is at most this.


@dataclass(slots=True)
class _Place:
    """The coordinates of one broker, its height, and the error of its links, as a share."""

    at: list[float]
    height: float
    error: float = ERROR_FIRST


@dataclass
class NetworkCoordinates:
    """The places of brokers, in the unit of costs. ``seed`` fixes the order of measurements, so runs are repeatable."""

    seed: int = 0
    _places: dict[str, _Place] = field(default_factory=dict)
    _placed: frozenset[str] = frozenset()
    _error: float = math.inf

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)

    @property
    def is_settled(self) -> bool:
        """Return True if there are places and they agreed with the measurements of the last window."""
        return bool(self._placed) and self._error <= ERROR_SETTLED

    def relax(self, measured: Mapping[Link, float]) -> None:
        """Move the places of brokers so that their distances approach the measured costs above 0."""
        links = sorted(pair for pair, cost in measured.items() if cost > 0)
        counts = Counter(broker for pair in links for broker in pair)
        self._placed = frozenset(broker for broker, count in counts.items() if count >= MEASURED_PEERS_MIN)
        if not links:
            return
        mean = statistics.fmean(measured[pair] for pair in links)
        for broker in sorted(counts.keys() - self._places.keys()):
            at = [self._rng.gauss(0.0, mean / 10) for _ in range(DIMENSIONS)]
            self._places[broker] = _Place(at, mean / 10)
        for broker in self._places.keys() - counts.keys():
            del self._places[broker]
        self._error = statistics.median(
            self._pull(self._places[pair[0]], self._places[pair[1]], measured[pair], HEIGHT_MIN * mean)
            for pair in self._rng.choices(links, k=SAMPLES_MAX)
        )

    def _pull(self, one: _Place, other: _Place, cost: float, height_min: float) -> float:
        """Let a measured link move its ends; return its error before that, as a share of its cost."""
        apart = [a - b for a, b in zip(one.at, other.at, strict=True)]
        flat = math.hypot(*apart)
        pull = flat + one.height + other.height
        error, total = abs(pull - cost) / cost, one.error + other.error
        force = cost - pull
        for end, sign in ((one, 1.0), (other, -1.0)):
            weight = end.error / total if total > 0 else 0.5
            share = MOVE_SHARE * weight * force / pull
            end.at = [a + sign * share * d for a, d in zip(end.at, apart, strict=True)]
            # Heights of both ends add up in a difference of height vectors, and so does the force along them.
            end.height = max(end.height + share * (one.height + other.height), height_min)
            end.error += ERROR_SHARE * weight * (error - end.error)
        return error

    def estimates(self, brokers: Iterable[str]) -> EstimatedCosts:
        """Return the cost of every link between those of these brokers that have a place, NaN for all others."""
        names = tuple(sorted(brokers))
        places = [self._places[name] if name in self._placed else None for name in names]
        at = np.array([[math.nan] * DIMENSIONS if place is None else place.at for place in places])
        heights = np.array([math.nan if place is None else place.height for place in places])
        costs = np.linalg.norm(at[:, None, :] - at[None, :, :], axis=2) + heights[:, None] + heights[None, :]
        np.fill_diagonal(costs, 0.0)
        return EstimatedCosts(names, costs)
