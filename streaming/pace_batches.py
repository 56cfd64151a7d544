"""Begin the next micro-batch just when the next window is complete, if the job keeps up.

Closing windows belongs to :mod:`streaming.decide_closing`.

A micro-batch that runs when a window becomes complete delays the one that closes it. So none starts that would still
run then, unless waiting would leave more telemetry to the closing one than that saves. The margin, after a window's end
and settling, at which the window is complete is learnt: a step later whenever a micro-batch that began then found the
window incomplete, a tenth of a step earlier whenever it was complete. So about one window in eleven costs one more
micro-batch, whatever the clocks of brokers, Kafka and this machine show.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from dataclasses import dataclass, field

RECENT_BATCHES = 20
RECENT_BATCHES_MIN = 5  # With fewer, durations are unknown.
MARGIN_MS = 325.0  # At first: a flush of the brokers, and what Kafka adds.
LATER_MS = 50.0
EARLIER_MS = LATER_MS / 10
EARLIER_AT_FIRST_MS = LATER_MS / 2  # Until a micro-batch first begins too soon.
SPREAD_MIN = 0.05  # Relative to the mean; below, the spans read do not explain the durations.
WORTHWHILE = 0.5  # An extra micro-batch must save the closing one this share of an empty one's duration.


@dataclass(slots=True)
class BatchPace:
    """Timing of micro-batches; times in ms since 1970. Each begins at most 2 ``pause_ms_max`` after the one before.

    ``closed_ms``, ``settle_ms``: by when windows are closed, and how long they settle, as the last one reported.
    """

    window_ms: int
    pause_ms_max: int
    closed_ms: int = 0
    settle_ms: int = 0
    began_ms: float = 0.0
    margin_ms: float = MARGIN_MS
    _tried_end_ms: int = 0
    _earlier_ms: float = EARLIER_AT_FIRST_MS
    _read_ms: float = 0.0
    _recent_ms: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=RECENT_BATCHES))

    def begin(self, now_ms: float) -> None:
        """Note that the next micro-batch begins about now; it reads what arrived since the last one began."""
        self._read_ms, self.began_ms = self.began_ms, now_ms

    def end(self, now_ms: float, closed_ms: int, settle_ms: int) -> None:
        """Note that a micro-batch has ended, and what it reported."""
        if self._read_ms:
            self._recent_ms.append((self.began_ms - self._read_ms, now_ms - self.began_ms))
        end_ms = self.closed_ms + self.window_ms
        is_late_enough = closed_ms >= end_ms  # One that began before it was due may be, too.
        if self.closed_ms and (is_late_enough or self.began_ms >= self.due_ms) and end_ms != self._tried_end_ms:
            self._tried_end_ms = end_ms  # Later ones do not show how soon one could have begun.
            change_ms = -self._earlier_ms if is_late_enough else LATER_MS
            self._earlier_ms = self._earlier_ms if is_late_enough else EARLIER_MS
            self.margin_ms = min(max(self.margin_ms + change_ms, -float(self.window_ms)), float(self.window_ms))
        self.closed_ms, self.settle_ms = closed_ms, settle_ms

    @property
    def due_ms(self) -> float:
        """When the first open window is expected to be complete."""
        return self.closed_ms + self.window_ms + self.settle_ms + self.margin_ms

    def wait_ms(self, now_ms: float) -> float:
        """Return how long to delay the next micro-batch, now that the last one has ended."""
        if not self.closed_ms or len(self._recent_ms) < RECENT_BATCHES_MIN or self.due_ms <= now_ms:
            return 0.0
        best_ms = min(self._best_ms(now_ms), self.began_ms + 2 * self.pause_ms_max)
        return max(best_ms - now_ms, 0.0)

    def _best_ms(self, now_ms: float) -> float:
        due_ms, began_ms = self.due_ms, self.began_ms
        floor_ms, work = self._effort()

        def ended_ms(begin_ms: float, read_ms: float) -> float:
            return begin_ms + floor_ms + work * (begin_ms - read_ms)

        next_ms = max(began_ms + self.pause_ms_max, now_ms)
        if ended_ms(next_ms, began_ms) <= due_ms:
            return next_ms
        latest_begin_ms = (due_ms - floor_ms + work * began_ms) / (1 + work)  # The latest start that ends by then.
        if latest_begin_ms >= now_ms:
            return latest_begin_ms if work * (latest_begin_ms - began_ms) > WORTHWHILE * floor_ms else due_ms
        end_if_waiting_ms, end_if_begun_ms = ended_ms(due_ms, began_ms), ended_ms(ended_ms(now_ms, began_ms), now_ms)
        return due_ms if end_if_waiting_ms <= end_if_begun_ms else now_ms

    def _effort(self) -> tuple[float, float]:
        """Return how long a micro-batch takes if it reads nothing, and per ms of telemetry that it reads.

        Fits a line through the last ones; if all read about the same, attributes the whole time to what they read.
        """
        spans_ms, took_ms = zip(*self._recent_ms, strict=True)
        span_ms, mean_ms = statistics.fmean(spans_ms), statistics.fmean(took_ms)
        most = mean_ms / span_ms
        spread = statistics.pstdev(spans_ms, span_ms)
        work = most if spread < SPREAD_MIN * span_ms else statistics.linear_regression(spans_ms, took_ms).slope
        work = min(max(work, 0.0), most)
        return mean_ms - work * span_ms, work


class BatchHold:
    """Delays the end of a micro-batch, in its thread; ``release`` ends that delay and all later ones."""

    def __init__(self, window_ms: int, pause_ms_max: int) -> None:
        self._pace = BatchPace(window_ms, pause_ms_max)
        self._released = threading.Event()
        self._held_ms: dict[int, int] = {}

    def hold(self, number: int, closed_ms: int, settle_ms: int, *, may_wait: bool) -> None:
        """Note the report of micro-batch ``number``; if it ``may_wait``, wait for the best start of the next one."""
        pace, now_ms = self._pace, time.time() * 1_000
        pace.end(now_ms, closed_ms, settle_ms)
        if may_wait and (wait_ms := pace.wait_ms(now_ms)):
            self._released.wait(wait_ms / 1_000)
        end_ms = time.time() * 1_000
        pace.begin(end_ms)
        self._held_ms[number] = round(end_ms - now_ms)
        self._held_ms.pop(number - RECENT_BATCHES, None)

    def held_ms(self, number: int) -> int:
        """Return how long one of the last micro-batches was held."""
        return self._held_ms.get(number, 0)

    def release(self) -> None:
        """Release all waiting callers, and delay none from now on."""
        self._released.set()
