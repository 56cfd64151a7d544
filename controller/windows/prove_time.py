"""Find out from closed windows that the controller's clock is behind: a window that has closed is not in the future.

In: markers in the order read, and the time. Out: by how much the clock is behind at least. Whether it is ahead shows
only in the times that Kafka keeps with records (:mod:`controller.ports.compare_clocks`).
"""

from __future__ import annotations

from collections import deque

from regraft.schemas.state import WindowClosed

BEHIND_MS_MAX = 10_000  # As for the times of records: ages may be off by some seconds.
MARKERS_MIN = 3  # In a row, each soon after the one before: a single marker may be wrong itself.


class ProvenTime:
    """How far the clock is behind the ends of the windows that have closed; 0 while they do not prove it."""

    def __init__(self) -> None:
        self.behind_ms = 0
        self._ends_ms: deque[int] = deque(maxlen=MARKERS_MIN)

    def note(self, marker: WindowClosed, clock_ms: int) -> None:
        """Note the next marker, at a time by the uncorrected clock."""
        end_ms, length_ms = marker.window_end_ms, marker.window_end_ms - marker.window_start_ms
        if end_ms <= clock_ms:
            self.behind_ms = 0  # It is right again, or this window is old.
        is_future = end_ms > clock_ms + self.behind_ms + BEHIND_MS_MAX
        follows = not self._ends_ms or 0 < end_ms - self._ends_ms[-1] <= 2 * length_ms
        if not (is_future and follows):
            self._ends_ms.clear()
        if is_future:
            self._ends_ms.append(end_ms)
        if len(self._ends_ms) == MARKERS_MIN:
            self.behind_ms = end_ms - clock_ms
            self._ends_ms.clear()
