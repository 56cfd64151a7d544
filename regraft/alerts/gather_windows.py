"""Assemble windows from their queue rows and the marker that follows them, read in any order.

Rows of other kinds are ignored because no rule uses them. What a window means for a rule belongs to
:mod:`alerts.watch_windows`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from regraft.schemas.state import BrokerClock, BrokerCompleteness, QueueState, StateRow, WindowClosed

ROWS_WAIT_MS = 5_000  # A marker is written after all rows of its window, but reading two topics may reverse the order.
OPEN_WINDOWS_MAX = 64
ROWS_PER_WINDOW_MAX = 100_000
AHEAD_MS_MAX = 60_000  # How far ahead of now a window may end: one from the year 9999 would hide all real ones.


@dataclass(frozen=True)
class SeenWindow:
    """A closed window as rules see it.

    ``written_ms`` is when its marker was written. ``rows_missing`` counts rows that the marker announced but that did
    not arrive. ``is_known`` means that an earlier alert stage has judged it.
    """

    start_ms: int
    end_ms: int
    written_ms: int
    queues: tuple[QueueState, ...]
    brokers: tuple[BrokerCompleteness, ...]
    late_rows: int
    rows_missing: int
    is_known: bool
    clocks: tuple[BrokerClock, ...] = ()

    @property
    def broker_names(self) -> frozenset[str]:
        """Return the brokers with at least one batch."""
        return frozenset(entry.broker for entry in self.brokers if entry.received)


@dataclass(frozen=True)
class _Marker:
    window: WindowClosed
    written_ms: int
    read_ms: int
    is_known: bool


class WindowGatherer:
    """Windows that are not complete yet, at most OPEN_WINDOWS_MAX.

    ``dropped`` counts the records that were dropped, by reason.
    """

    def __init__(self, rows_wait_ms: float = ROWS_WAIT_MS) -> None:
        self._rows_wait_ms = rows_wait_ms
        self._rows: dict[int, dict[str, QueueState]] = {}
        self._markers: dict[int, _Marker] = {}
        self._closed_until_ms = -1
        self.dropped: Counter[str] = Counter()

    @property
    def waiting_starts_ms(self) -> frozenset[int]:
        """Return the starts of the windows whose marker has arrived but that were not returned yet."""
        return frozenset(self._markers)

    def take_row(self, row: StateRow) -> None:
        """Add a row; a repeated one overwrites."""
        if row.queue is None or row.window_end_ms <= self._closed_until_ms:
            return
        rows = self._rows.setdefault(row.window_start_ms, {})
        if row.entity not in rows and len(rows) >= ROWS_PER_WINDOW_MAX:
            self.dropped["too many queues in a window"] += 1
            return
        rows[row.entity] = row.queue
        if len(self._rows) > OPEN_WINDOWS_MAX:
            self._rows.pop(min(self._rows))
            self.dropped["rows without a window marker"] += 1

    def take_marker(self, marker: WindowClosed, written_ms: int, now_ms: int, *, is_known: bool) -> None:
        """Add a marker; it is dropped if its window or a later one was already returned."""
        if marker.window_end_ms <= self._closed_until_ms:
            self.dropped["duplicate or late marker"] += 1
            return
        if marker.window_end_ms > max(now_ms, written_ms) + AHEAD_MS_MAX:
            self.dropped["marker of a future window"] += 1
            return
        self._markers.setdefault(marker.window_start_ms, _Marker(marker, written_ms, now_ms, is_known))

    def windows(self, now_ms: int) -> list[SeenWindow]:
        """Return the windows that are complete or have waited long enough, oldest first."""
        windows: list[SeenWindow] = []
        while self._markers:
            start_ms = min(self._markers)
            marker = self._markers[start_ms]
            rows = self._rows.get(start_ms, {})
            missing = max(marker.window.row_counts.get("queue", 0) - len(rows), 0)
            can_wait = now_ms - marker.read_ms < self._rows_wait_ms and len(self._markers) <= OPEN_WINDOWS_MAX
            if missing and can_wait:
                break
            windows.append(_seen(marker, rows, missing))
            self._forget(marker.window)
        return windows

    def _forget(self, window: WindowClosed) -> None:
        self._closed_until_ms = window.window_end_ms
        del self._markers[window.window_start_ms]
        for start_ms in [start_ms for start_ms in self._rows if start_ms <= window.window_start_ms]:
            del self._rows[start_ms]


def _seen(marker: _Marker, rows: dict[str, QueueState], missing: int) -> SeenWindow:
    window = marker.window
    return SeenWindow(
        window.window_start_ms,
        window.window_end_ms,
        marker.written_ms,
        tuple(rows[entity] for entity in sorted(rows)),
        window.brokers,
        window.late_rows,
        missing,
        marker.is_known,
        window.clocks,
    )
