"""Rate, completeness and latency of each window, as a bounded series.

Windows from before the dashboard started have only what the series of costs and latencies contain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regraft.schemas.live_view import ShownWindow
from regraft.schemas.shown_state import CostPoint


@dataclass(frozen=True)
class WindowPoint:
    """One window; None means that a value is no longer known."""

    window_end_ms: int
    is_complete: bool
    notifications_per_s: float | None = None
    state_latency_ms: int | None = None
    queue_length_max: int | None = None
    rtt_ms_max: float | None = None
    brokers_short: int | None = None


class WindowSeries:
    """The points of the last windows, oldest first."""

    def __init__(self, windows_max: int) -> None:
        self._windows_max = windows_max
        self._points: dict[int, WindowPoint] = {}

    def add(self, window: ShownWindow | None, cost: Sequence[CostPoint], latencies_ms: Sequence[int]) -> None:
        """Add the newest window, and earlier ones from the series of costs and latencies.

        Both series end with the newest window, but a window without a cost has no point in the first. So latencies are
        dated by counting back from the newest end, which is correct while windows follow each other without gaps.
        """
        if window is None:
            return
        end_ms, start_ms = window.end_ms, window.start_ms
        length_ms = end_ms - start_ms
        if length_ms <= 0:
            return
        # Clocks may have been set back, or recorded telemetry be replayed: what was later is over.
        self._points = {end: point for end, point in self._points.items() if end <= end_ms}
        latency_of = {end_ms - back * length_ms: value for back, value in enumerate(reversed(latencies_ms))}
        for point in cost:
            earlier_ms = point.window_end_ms
            if earlier_ms not in self._points and earlier_ms != end_ms:
                self._points[earlier_ms] = WindowPoint(
                    earlier_ms,
                    point.is_complete,
                    point.notifications_per_s,
                    latency_of.get(earlier_ms),
                )
        self._points[end_ms] = WindowPoint(
            end_ms,
            window.is_complete,
            window.notifications * 1000 / length_ms / window.sample_share,
            latency_of.get(end_ms),
            window.queue_length_max,
            window.rtt_ms_max,
            len(window.short_brokers),
        )
        newest = sorted(self._points)[-self._windows_max :]
        self._points = {end: self._points[end] for end in newest}

    def points(self) -> list[WindowPoint]:
        """Return the points, oldest first."""
        return list(self._points.values())
