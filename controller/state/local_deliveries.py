"""Count hand-overs to subscribers by publisher and delivering broker, over the windows of a horizon. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.cut_off import DeliveryPairs
from regraft.schemas.arrays import Floats, Places


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
