"""Measure how long subscriptions live, and derive how many windows a decision looks back on.

In: closed windows in the order of time, and the number of subscriptions when each was closed. Out: the mean lifetime in
seconds, and a number of windows. Counting subscriptions belongs to a port, keeping windows to the loop.
"""

from __future__ import annotations

from collections import deque

from regraft.controller.state.closed_window import ClosedWindow

ENDS_MIN = 10  # Fewer say too little: the standard error is 1 / sqrt(ends), here 32 %.


class LifetimeMeter:
    """The mean lifetime of subscriptions, over the last ``windows_max`` complete windows.

    Source: Little's law. In a steady state the number of subscriptions is the rate at which they end times their mean
    lifetime, whatever its distribution; so the mean is the total time that they spent in the windows over the number
    that ended there. A window reports changes of clients: each arrival is one, each departure is one. Arrivals less
    departures is the growth of their number, so ends = (changes - growth) / 2, and a start with thousands of newcomers
    does not look like thousands of short lives. Bias and bounds: the relative standard error is 1 / sqrt(ends) for
    independent lives, and there is no estimate below ENDS_MIN ends. A client that changes its interest in place counts
    as half an end, so if clients do only that, the result is up to twice too long. A client that moves counts as ended.
    Publishers that come and leave count as subscriptions, few as they are. Cost O(1) a window; memory two numbers a
    window. On a ring a user has many subscriptions, and one change may end any number of them; there the register of
    clients counts exactly which topics users gave up, and changes are ignored.
    """

    def __init__(self, windows_max: int) -> None:
        self._lived_s: deque[float] = deque(maxlen=windows_max)
        self._ends: deque[float] = deque(maxlen=windows_max)
        self._subscriptions_before: int | None = None
        self._ended_before = 0

    def add_window(self, window: ClosedWindow, subscriptions: int | None, ended_count: int | None = None) -> None:
        """Add a window; ``subscriptions`` is their present number, None if unknown.

        ``ended_count`` is how many have ever ended, if that is counted; else it follows from the changes. An incomplete
        window does not count, because changes may be missing, nor does one after an unknown number.
        """
        before, self._subscriptions_before = self._subscriptions_before, subscriptions
        ended_before, self._ended_before = self._ended_before, ended_count or 0
        if before is None or subscriptions is None or not window.is_complete:
            return
        self._lived_s.append((before + subscriptions) / 2 * (window.end_ms - window.start_ms) / 1000)
        if ended_count is None:
            self._ends.append((window.client_changes - (subscriptions - before)) / 2)
        else:
            self._ends.append(ended_count - ended_before)

    @property
    def mean_s(self) -> float | None:
        """The mean lifetime in seconds; None while too few subscriptions have ended."""
        ends = sum(self._ends)
        return sum(self._lived_s) / ends if ends >= ENDS_MIN else None


def horizon_window_count(
    lifetimes: float, lifetime_s: float | None, window_ms: int, windows_min: int, windows_max: int
) -> int:
    """Return how many windows hold ``lifetimes`` mean lifetimes, within the bounds.

    Without a known lifetime it is ``windows_max``: if hardly anything ends, it is right to look far back.
    """
    if lifetime_s is None:
        return windows_max
    return min(max(round(lifetimes * lifetime_s * 1000 / window_ms), windows_min), windows_max)
