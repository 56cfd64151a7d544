"""OverlayState: the present configuration and the windows of the horizon, for any kind of overlay.

What only planners of one kind need is in the state of that kind, in :mod:`controller.kinds`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.cut_off import CutOff, DeliveryPairs
from regraft.overlay.derived_values import derived_value, hand_on
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.sets.time_slices import groups_max, time_slices
from regraft.schemas.arrays import Floats, Places

Span = tuple[float, float]  # From and to, in seconds.
SPANS_MIN = 16  # With 15 degrees of freedom Student's limit is a third above the normal one, with 3 six times.
NOTIFICATIONS_PER_SLICE_MIN = 2  # The mean per publisher: with fewer, slices differ by chance.


@dataclass(frozen=True, eq=False)
class HandOvers:
    """``counts[k]`` notifications of ``publishers[owners[k]]`` were handed over at broker ``targets[k]``.

    Brokers are positions of the inventory. Full counts, such as hand-overs, cover the whole length of the windows
    (``length_s``), whatever share of notifications is sampled.
    """

    publishers: tuple[str, ...]
    owners: Places
    targets: Places
    counts: Floats
    length_s: float

    @classmethod
    def of(cls, windows: Sequence[ClosedWindow], index: Mapping[str, int]) -> HandOvers:
        """Count over these windows; hand-overs at brokers that are not in ``index`` are left out."""
        total: Counter[tuple[str, str]] = Counter()
        for window in windows:
            total.update(window.local_deliveries)
        handed = [(*pair, count) for pair, count in total.items() if pair[1] in index]
        publishers = tuple(sorted({publisher for publisher, _, _ in handed}))
        place = {publisher: position for position, publisher in enumerate(publishers)}
        owners = np.array([place[publisher] for publisher, _, _ in handed], dtype=np.intp)
        targets = np.array([index[broker] for _, broker, _ in handed], dtype=np.intp)
        counts = np.array([count for _, _, count in handed], dtype=np.float64)
        length_s = max(sum(window.sets.span_s / window.sets.share for window in windows), 1e-9)
        return cls(publishers, owners, targets, counts, length_s)

    def of_publisher(self, publisher: str) -> tuple[Places, Floats]:
        """Return at which brokers what a publisher publishes is handed over, and how often at each."""
        if publisher not in self.publishers:
            return self.targets[:0], self.counts[:0]
        rows = self.owners == self.publishers.index(publisher)
        return self.targets[rows], self.counts[rows]

    def between(self, homes: Mapping[str, str], index: Mapping[str, int]) -> DeliveryPairs:
        """Return the hand-overs by the home of their publisher; publishers without a home are left out."""
        home_of = np.array([index.get(homes.get(name, ""), -1) for name in self.publishers], dtype=np.intp)
        sources = home_of[self.owners]
        placed = sources >= 0
        return DeliveryPairs(sources[placed], self.targets[placed], self.counts[placed], self.length_s)


def cut_spans(windows: Sequence[ClosedWindow], count: int = 1) -> tuple[Span, ...]:
    """Return the start and end of ``count`` equal parts of each window, in seconds since the first one's start."""
    first_ms, spans = windows[0].start_ms, []
    for window in windows:
        step_ms = (window.end_ms - window.start_ms) / count
        start_ms = window.start_ms - first_ms
        spans += [(start_ms + step_ms * part, start_ms + step_ms * (part + 1)) for part in range(count)]
    return tuple((start / 1000, end / 1000) for start, end in spans)


def count_slices(windows: Sequence[ClosedWindow]) -> int:
    """Return into how many spans to cut each window: enough for SPANS_MIN, if publishers are busy.

    If windows hold samples, several windows stay whole, and a single one is cut into its groups. The sampling errors of
    two parts are independent however close in time, and larger the shorter the parts are; treated as a process with
    memory, they would make the error of the mean of short spans many times too large.
    """
    groups = groups_max(window.sets for window in windows)
    if groups is not None:
        return 1 if len(windows) > 1 else min(SPANS_MIN, groups)
    publishers = len({name for window in windows for name, _ in window.sets.columns})
    count = sum(window.sets.notification_count for window in windows)
    busy = count / max(publishers * len(windows), 1) / NOTIFICATIONS_PER_SLICE_MIN
    return max(min(math.ceil(SPANS_MIN / len(windows)), int(busy)), 1)


@dataclass(frozen=True, eq=False)
class OverlayState:
    """The present configuration and the windows of the horizon, oldest first.

    The newest window must end in the configuration's epoch (the judge checks it). The older ones may be of earlier
    epochs: what a broker delivered depends neither on the links it came over nor on the publisher's home. Raises
    ValueError without a window.
    """

    configuration: OverlayConfiguration
    inventory: Inventory
    windows: tuple[ClosedWindow, ...]

    def __post_init__(self) -> None:
        if not self.windows:
            raise ValueError("a state needs at least one closed window, got none")

    @property
    def cut_off(self) -> CutOff | None:
        """What the death of each broker would cut off with the traffic of the horizon; None if unknown."""
        return None

    @property
    def sample_share(self) -> float:
        """The share of the notifications of all windows that is known in full, weighted by time."""
        known_s = sum(window.sets.span_s for window in self.windows)
        whole_s = sum(window.sets.span_s / window.sets.share for window in self.windows)
        return known_s / whole_s if whole_s and known_s < whole_s else 1.0

    @property
    def newest(self) -> ClosedWindow:
        """The window that closed last."""
        return self.windows[-1]


class ContentState(OverlayState):
    """The state of an overlay that routes by content: publishers have homes, and any of them could be elsewhere."""

    @derived_value
    def slice_count(self) -> int:
        """The number of spans into which each window is cut."""
        return count_slices(self.windows)

    @derived_value
    def spans(self) -> tuple[Span, ...]:
        """The start and end of each span over which the noise of a gain is estimated, in seconds."""
        return cut_spans(self.windows, self.slice_count)

    @derived_value
    def hand_overs(self) -> HandOvers:
        """The number of hand-overs to subscribers, by publisher and broker."""
        return HandOvers.of(self.windows, self.inventory.index)

    @derived_value
    def slices(self) -> list[tuple[DeliverySets, ...]]:
        """The delivery sets of each window, cut into spans."""
        return [time_slices(window.sets, self.slice_count) for window in self.windows]

    @property
    def span_sets(self) -> list[DeliverySets]:
        """The delivery sets of each span."""
        return [part for window in self.slices for part in window]

    def hand_on_of_windows(self, seen: ContentState) -> None:
        """Give another overlay on the same windows what depends on them alone."""
        hand_on(self, seen, ContentState.slice_count, ContentState.spans, ContentState.slices, ContentState.hand_overs)

    @property
    def can_move_publishers(self) -> bool:
        """Return True if homes are known.

        A publisher whose home's telemetry is lost has no home here and stays; others may move.
        """
        return bool(self.configuration.homes)
