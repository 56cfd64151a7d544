"""Detect changes of traffic: windows that are very unlikely given the past windows and their spread.

In: complete windows in the order of time. Out: a TrafficShift with the time since which traffic is new. Reacting to it
belongs to the control loop.
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

REFERENCE_WINDOWS_MIN = 5  # Fewer do not show the spread.
REFERENCE_WINDOWS_MAX = 60
ALLOWANCE = 1.0  # In standard deviations: tuned to steps of two; slower changes leave with the horizon.
SCORE_MAX = 12.0
CORRELATION_MAX = 0.8
DISTANCE_MIN = 1e-3  # In units of the sampling distance.
OVERSHOOT = 1.166  # The mean excess of a sum of normal values over a limit that it passes (Siegmund, 1985).
SERIES_COUNT = 4
MEMBERS_SETTLE_WINDOWS = 4  # By then the clients of a broker that died or came back have settled.


@dataclass(frozen=True)
class TrafficShift:
    """A change of traffic found at the end of a window; traffic is new since ``since_ms``.

    ``statistic`` names what changed, ``value`` is its cumulative sum, ``limit`` what quiet traffic hardly ever exceeds.
    """

    window_end_ms: int
    since_ms: int
    statistic: str
    value: float
    limit: float

    @property
    def text(self) -> str:
        """The change in one sentence, for people."""
        return (
            f"traffic has changed: {self.statistic} is {self.value:.3g}, while quiet traffic stays below "
            f"{self.limit:.3g}"
        )


def limit_for(windows_per_alarm: float) -> float:
    """Return the limit of each cumulative sum for one false alarm of any in ``windows_per_alarm`` quiet windows.

    Siegmund (1985): a sum with allowance k and limit h alarms after (exp(2kb) - 2kb - 1) / 2k^2 values on average, b =
    h + 1.166.
    """
    values = windows_per_alarm * SERIES_COUNT
    doubled = 1.0
    for _ in range(100):
        doubled = math.log(2 * ALLOWANCE**2 * values + doubled + 1)
    return doubled / (2 * ALLOWANCE) - OVERSHOOT


def normal_score(value: float, reference: Sequence[float]) -> float:
    """Return how unlikely a value is given the reference, as a standard normal value.

    It is Student's t of a prediction, transformed to the normal scale by Wallace (1959), so that a spread from few
    values counts for little. If successive values correlate, the spread is that of their long-run sum, (1 + r) / (1 -
    r) times the variance with r their correlation, because scores are summed.
    """
    count = len(reference)
    spread = statistics.stdev(reference) * math.sqrt(1 + 1 / count)
    correlation = _correlation(reference)
    spread *= math.sqrt((1 + correlation) / (1 - correlation))
    if spread <= 0:
        return 0.0 if value == reference[-1] else math.copysign(SCORE_MAX, value - reference[-1])
    freedom, deviation = count - 1, (value - statistics.fmean(reference)) / spread
    scale = (8 * freedom + 1) / (8 * freedom + 3)
    return math.copysign(min(scale * math.sqrt(freedom * math.log1p(deviation**2 / freedom)), SCORE_MAX), deviation)


def _correlation(values: Sequence[float]) -> float:
    """Return the correlation of each value with the previous one, clipped to 0..CORRELATION_MAX."""
    mean = statistics.fmean(values)
    deviations = [value - mean for value in values]
    variance = sum(one * one for one in deviations)
    covariance = sum(one * other for one, other in pairwise(deviations))
    return min(max(covariance / variance, 0.0), CORRELATION_MAX) if variance else 0.0


@dataclass
class _Series:
    """One statistic, a value per window: cumulative sums (Page, 1954) of its scores, upwards, optionally downwards."""

    name: str
    has_two_sides: bool = False
    reference: deque[float] = field(default_factory=lambda: deque(maxlen=REFERENCE_WINDOWS_MAX))
    up: float = 0.0
    down: float = 0.0
    quiet_windows: int = REFERENCE_WINDOWS_MIN

    def add(self, value: float, limit: float) -> tuple[float, float]:
        """Add a value; return the sum, above the limit if it alarms, and the score of the value alone.

        A value that alarms is not added to the reference, and the sum restarts at 0. If a second value alarms soon
        after, it is not a step but a new level: the reference restarts, too.
        """
        self.quiet_windows += 1
        if len(self.reference) < REFERENCE_WINDOWS_MIN:
            self.reference.append(value)
            return 0.0, 0.0
        score = normal_score(value, self.reference)
        self.up = max(self.up + score - ALLOWANCE, 0.0)
        self.down = max(self.down - score - ALLOWANCE, 0.0) if self.has_two_sides else 0.0
        step = max(self.up, self.down)
        if step <= limit:
            self.reference.append(value)
            return step, score
        self.up = self.down = 0.0
        if self.quiet_windows <= REFERENCE_WINDOWS_MIN:
            self.reference.clear()
        self.quiet_windows = 0
        return step, score


class ShiftDetector:
    """Checks each complete window once.

    Three statistics, each of the step from the previous window, so that a change is one large value followed by quiet
    ones: the square root of the changes of interest, whose spread does not depend on their rate if they are
    independent; the logarithm of the Hellinger distance between the deliveries of both windows, in units of the
    sampling distance; the step of the logarithm of the cost per notification on a fixed overlay. ``windows_per_alarm``
    is the mean number of windows of quiet traffic for one false alarm. ``by_broker`` counts deliveries by broker, which
    plans do not change unless they move subscribers.

    Windows in which plans move subscribers are skipped for changes of interest, because these count as changes.
    A broker that dies, comes back or joins is no change of traffic, though its clients disappear or reappear: steps are
    ignored for MEMBERS_SETTLE_WINDOWS after a change of the brokers that report, or of their incarnations.

    ``since_ms`` is when traffic last changed, None while no change is known: the start of the window with the last
    change, which is partly old, until the next one has closed, then its end.
    """

    def __init__(self, windows_per_alarm: float, *, by_broker: bool = True) -> None:
        self.limit = limit_for(windows_per_alarm)
        self.since_ms: int | None = None
        self._mixed_end_ms: int | None = None  # The end of the window with the last change.
        self._by_broker = by_broker
        self._churn = _Series("churn")
        self._distance = _Series("distance of deliveries")
        self._cost = _Series("cost per notification", has_two_sides=True)
        self._before: tuple[ClosedWindow, dict[tuple[str, str], float], float | None] | None = None
        self._step_max = 0.0
        self._quiet_windows = REFERENCE_WINDOWS_MIN
        self._unsettled_windows = 0

    def add(
        self, window: ClosedWindow, cost_per_notification: float | None, *, moves_interests: bool = False
    ) -> TrafficShift | None:
        """Add a complete window; return the change that it shows, or None.

        If further alarms follow within a few windows, the change is returned again only if the step is larger than
        before, with a later ``since_ms``. ``cost_per_notification`` is that on a fixed overlay, None if unknown.
        ``moves_interests``: plans moved subscribers in this window.
        """
        if window.start_ms == self._mixed_end_ms:
            self.since_ms = window.start_ms
        change = self._change_in(window, cost_per_notification, moves_interests)
        if change is not None:
            self.since_ms, self._mixed_end_ms = change.since_ms, change.window_end_ms
        return change

    def _change_in(
        self, window: ClosedWindow, cost_per_notification: float | None, moves_interests: bool
    ) -> TrafficShift | None:
        before, deliveries = self._before, deliveries_in(window, by_broker=self._by_broker)
        self._before = window, deliveries, cost_per_notification
        if before is not None and before[0].boots != window.boots:
            self._unsettled_windows = MEMBERS_SETTLE_WINDOWS
        self._unsettled_windows = max(self._unsettled_windows - 1, 0)
        if before is None or before[0].end_ms != window.start_ms or self._unsettled_windows:
            return None
        values = self._values(deliveries, cost_per_notification, *before[1:])
        if not moves_interests:
            values.append((self._churn, math.sqrt(window.client_changes)))
        changes = [(*series.add(value, self.limit), series.name) for series, value in values]
        alarms = [one for one in changes if one[0] > self.limit]
        self._quiet_windows += 1
        if not alarms:
            return None
        is_continuing, self._quiet_windows = self._quiet_windows <= REFERENCE_WINDOWS_MIN, 0
        step = max(abs(score) for _, score, _ in changes)
        if is_continuing and step <= self._step_max:
            return None
        self._step_max = step
        value, _, name = max(alarms)
        return TrafficShift(window.end_ms, window.start_ms, name, value, self.limit)

    def _values(
        self,
        deliveries: Mapping[tuple[str, str], float],
        cost: float | None,
        deliveries_before: Mapping[tuple[str, str], float],
        cost_before: float | None,
    ) -> list[tuple[_Series, float]]:
        values = []
        if deliveries and deliveries_before:
            distance = hellinger(deliveries, deliveries_before) / sampling_distance(deliveries, deliveries_before)
            values.append((self._distance, math.log(max(distance, DISTANCE_MIN))))
        if cost and cost_before:
            values.append((self._cost, math.log(cost / cost_before)))
        return values


def deliveries_in(window: ClosedWindow, *, by_broker: bool = True) -> dict[tuple[str, str], float]:
    """Return how many notifications of each publisher were delivered at each broker.

    Keys are (broker, publisher). Without ``by_broker`` the broker is "", and counts are of notifications seen anywhere.
    """
    sets = window.sets
    names = [publisher for publisher, _ in sets.columns]
    if not names:
        return {}
    publishers = sorted(set(names))
    places = np.searchsorted(publishers, names)
    words = sets.delivered
    if not by_broker:
        words = np.bitwise_or.reduce(sets.words, axis=0, keepdims=True)
    counts = np.zeros((len(words), len(publishers)))
    np.add.at(counts.T, places, np.bitwise_count(words).T)
    brokers = sets.brokers if by_broker else ("",)
    rows, columns = counts.nonzero()
    return {(brokers[row], publishers[column]): counts[row, column] for row, column in zip(rows, columns, strict=True)}


def hellinger(one: Mapping[tuple[str, str], float], other: Mapping[tuple[str, str], float]) -> float:
    """Return the Hellinger distance of two distributions, given as positive counts: 0 if equal, 1 if disjoint."""
    total = math.sqrt(sum(one.values()) * sum(other.values()))
    common = sum(math.sqrt(count * other[key]) for key, count in one.items() if key in other)
    return math.sqrt(max(1 - common / total, 0.0))


def sampling_distance(one: Mapping[tuple[str, str], float], other: Mapping[tuple[str, str], float]) -> float:
    """Return the expected distance of two samples of one distribution; the square root of a count has variance 1/4.

    It is too high for cells with few counts, but equally for both windows.
    """
    cells = len(one.keys() | other.keys())
    return math.sqrt(cells / 8 * (1 / sum(one.values()) + 1 / sum(other.values())))
