"""Detect when traffic has changed: a window that past windows, with their own spread, make very unlikely.

In: complete windows in the order of their time. Out: a ChangeFound with the time from which on traffic is the new one.
What follows from it belongs to the control loop.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from regraft.controller.state.closed_window import ClosedWindow

REFERENCE_WINDOWS_MIN = 5  # Fewer say nothing of the spread.
REFERENCE_WINDOWS_MAX = 60
ALLOWANCE = 1.0  # In standard deviations: tuned to steps of two; slower changes are within what a horizon forgets.
SCORE_MAX = 12.0
ALIKE_MAX = 0.8
DISTANCE_MIN = 1e-3  # Of what counting alone makes.
OVERSHOOT = 1.166  # By which a sum of normal values passes a limit on average (Siegmund, 1985).
SERIES_COUNT = 4
MEMBERS_SETTLE_WINDOWS = 4  # After this many the clients of a broker that died or came back have found their places.


@dataclass(frozen=True)
class ChangeFound:
    """Traffic has changed: found at the end of a window, new from ``since_ms`` on.

    ``statistic`` names what changed, ``value`` is its cumulated sum, ``limit`` what quiet traffic hardly passes.
    """

    window_end_ms: int
    since_ms: int
    statistic: str
    value: float
    limit: float

    @property
    def text(self) -> str:
        """One sentence for people."""
        return (
            f"traffic has changed: {self.statistic} is {self.value:.3g}, while quiet traffic stays below "
            f"{self.limit:.3g}"
        )


def limit_for(windows_per_alarm: float) -> float:
    """Return the limit of each cumulated sum at which all of them together alarm so seldom on quiet traffic.

    Siegmund (1985): a sum with allowance k and limit h alarms after (exp(2kb) - 2kb - 1) / 2k^2 values on average,
    b = h + 1.166.
    """
    values = windows_per_alarm * SERIES_COUNT
    doubled = 1.0
    for _ in range(100):
        doubled = math.log(2 * ALLOWANCE**2 * values + doubled + 1)
    return doubled / (2 * ALLOWANCE) - OVERSHOOT


def normal_score(value: float, reference: Sequence[float]) -> float:
    """Return how unlikely a value is after those of the reference, as a standard normal value.

    It is Student's t of a prediction, brought to the normal scale as Wallace (1959) does: what few values say of their
    spread counts for little. Where values resemble the one before, the spread is that of their sum in the long run,
    (1 + r) / (1 - r) times the variance with r their correlation, as they are summed up.
    """
    count = len(reference)
    spread = statistics.stdev(reference) * math.sqrt(1 + 1 / count)
    alike = _correlation(reference)
    spread *= math.sqrt((1 + alike) / (1 - alike))
    if spread <= 0:
        return 0.0 if value == reference[-1] else math.copysign(SCORE_MAX, value - reference[-1])
    freedom, off = count - 1, (value - statistics.fmean(reference)) / spread
    scale = (8 * freedom + 1) / (8 * freedom + 3)
    return math.copysign(min(scale * math.sqrt(freedom * math.log1p(off**2 / freedom)), SCORE_MAX), off)


def _correlation(values: Sequence[float]) -> float:
    """Return the correlation of each value with the one before, between 0 and ALIKE_MAX."""
    mean = statistics.fmean(values)
    off = [value - mean for value in values]
    total = sum(one * one for one in off)
    together = sum(one * other for one, other in pairwise(off))
    return min(max(together / total, 0.0), ALIKE_MAX) if total else 0.0


@dataclass
class _Series:
    """One statistic, a value a window: cumulative sums (Page, 1954) of its scores, upwards and optionally downwards."""

    name: str
    has_two_sides: bool = False
    reference: deque[float] = field(default_factory=lambda: deque(maxlen=REFERENCE_WINDOWS_MAX))
    up: float = 0.0
    down: float = 0.0
    quiet_windows: int = REFERENCE_WINDOWS_MIN

    def add(self, value: float, limit: float) -> tuple[float, float]:
        """Take a value; return the sum, above the limit when it alarms, and by how much alone the value is off.

        What alarms becomes no part of the reference, and the sum begins again. Where a second value alarms soon after,
        it is not a step but a new level: the reference begins again, too.
        """
        self.quiet_windows += 1
        if len(self.reference) < REFERENCE_WINDOWS_MIN:
            self.reference.append(value)
            return 0.0, 0.0
        score = normal_score(value, self.reference)
        self.up = max(self.up + score - ALLOWANCE, 0.0)
        self.down = max(self.down - score - ALLOWANCE, 0.0) if self.has_two_sides else 0.0
        found = max(self.up, self.down)
        if found <= limit:
            self.reference.append(value)
            return found, score
        self.up = self.down = 0.0
        if self.quiet_windows <= REFERENCE_WINDOWS_MIN:
            self.reference.clear()
        self.quiet_windows = 0
        return found, score


class ChangeDetector:
    """Looks at each complete window once.

    Three statistics, each about the step from the window before, so that a change is one large value and what follows
    is quiet again: the square root of the changes of interest, whose spread is the same at any rate if they are
    independent; the logarithm of the Hellinger distance between what was delivered in both windows, in units of what
    counting alone makes; the step of the logarithm of what a notification costs on one and the same overlay.
    ``windows_per_alarm`` is how many windows of quiet traffic there are for a false alarm, on average. ``by_broker``
    counts deliveries by broker, which plans do not change unless they move subscribers.

    Windows during a transition show no changes of interest, as the clients that it moves count as changes. That
    a broker has died, come back or joined is no change of traffic, though its clients are gone or there again: steps
    are not judged until MEMBERS_SETTLE_WINDOWS after the brokers that are heard, or their lives, are others.

    ``since_ms`` is since when traffic is as it is, None while no change is known: the start of the window in which the
    last change came, which is partly old, until the next one has closed, then the end of it.
    """

    def __init__(self, windows_per_alarm: float, *, by_broker: bool = True) -> None:
        self.limit = limit_for(windows_per_alarm)
        self.since_ms: int | None = None
        self._mixed_end_ms: int | None = None  # End of the window in which the last change came.
        self._by_broker = by_broker
        self._churn = _Series("churn")
        self._distance = _Series("distance of deliveries")
        self._cost = _Series("cost per notification", has_two_sides=True)
        self._before: tuple[ClosedWindow, dict[tuple[str, str], float], float | None] | None = None
        self._step_max = 0.0
        self._quiet_windows = REFERENCE_WINDOWS_MIN
        self._unsettled_windows = 0

    def add(self, window: ClosedWindow, cost_per_notification: float | None) -> ChangeFound | None:
        """Take a complete window; return the change that it shows.

        A change that continues, as alarms follow within a few windows, is returned again only if the step is larger
        than before, with a later ``since_ms``. ``cost_per_notification`` is that on an overlay that stays the same,
        None when it is not known.
        """
        if window.start_ms == self._mixed_end_ms:
            self.since_ms = window.start_ms
        found = self._look(window, cost_per_notification)
        if found is not None:
            self.since_ms, self._mixed_end_ms = found.since_ms, found.window_end_ms
        return found

    def _look(self, window: ClosedWindow, cost_per_notification: float | None) -> ChangeFound | None:
        before, deliveries = self._before, deliveries_in(window, by_broker=self._by_broker)
        self._before = window, deliveries, cost_per_notification
        if before is not None and before[0].boots != window.boots:
            self._unsettled_windows = MEMBERS_SETTLE_WINDOWS
        self._unsettled_windows = max(self._unsettled_windows - 1, 0)
        if before is None or before[0].end_ms != window.start_ms or self._unsettled_windows:
            return None
        found = [
            (*series.add(value, self.limit), series.name)
            for series, value in self._values(window, deliveries, cost_per_notification, before)
        ]
        alarms = [one for one in found if one[0] > self.limit]
        self._quiet_windows += 1
        if not alarms:
            return None
        goes_on, self._quiet_windows = self._quiet_windows <= REFERENCE_WINDOWS_MIN, 0
        step = max(abs(score) for _, score, _ in found)
        if goes_on and step <= self._step_max:
            return None
        self._step_max = step
        value, _, name = max(alarms)
        return ChangeFound(window.end_ms, window.start_ms, name, value, self.limit)

    def _values(
        self,
        window: ClosedWindow,
        deliveries: Mapping[tuple[str, str], float],
        cost: float | None,
        before: tuple[ClosedWindow, Mapping[tuple[str, str], float], float | None],
    ) -> list[tuple[_Series, float]]:
        values = []
        if window.epoch is not None:
            values.append((self._churn, math.sqrt(window.client_changes)))
        if deliveries and before[1]:
            distance = hellinger(deliveries, before[1]) / sampling_distance(deliveries, before[1])
            values.append((self._distance, math.log(max(distance, DISTANCE_MIN))))
        if cost and before[2]:
            values.append((self._cost, math.log(cost / before[2])))
        return values


def deliveries_in(window: ClosedWindow, *, by_broker: bool = True) -> dict[tuple[str, str], float]:
    """Return how many notifications of each publisher were delivered at each broker, or published if unknown."""
    sets = window.sets
    names = [publisher for publisher, _ in sets.columns]
    if not names:
        return {}
    publishers = sorted(set(names))
    places = np.searchsorted(publishers, names)
    words = sets.words if sets.delivered is None else sets.delivered
    if not by_broker:
        words = np.bitwise_or.reduce(sets.words, axis=0, keepdims=True)
    counts = np.zeros((len(words), len(publishers)))
    np.add.at(counts.T, places, np.bitwise_count(words).T)
    brokers = sets.brokers if by_broker else ("",)
    rows, columns = counts.nonzero()
    return {(brokers[row], publishers[column]): counts[row, column] for row, column in zip(rows, columns, strict=True)}


def hellinger(one: Mapping[tuple[str, str], float], other: Mapping[tuple[str, str], float]) -> float:
    """Return the Hellinger distance of two distributions, from counts above 0: 0 for the same, 1 for disjoint ones."""
    total = math.sqrt(sum(one.values()) * sum(other.values()))
    common = sum(math.sqrt(count * other[key]) for key, count in one.items() if key in other)
    return math.sqrt(max(1 - common / total, 0.0))


def sampling_distance(one: Mapping[tuple[str, str], float], other: Mapping[tuple[str, str], float]) -> float:
    """Return how far two samples of the same distribution lie apart: the square root of a count has a variance of 1/4.

    For cells of few counts that is too much, for both windows alike.
    """
    cells = len(one.keys() | other.keys())
    return math.sqrt(cells / 8 * (1 / sum(one.values()) + 1 / sum(other.values())))
