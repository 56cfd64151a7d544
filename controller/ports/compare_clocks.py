"""Compare this controller's clock with the times of the records that it reads as they are written.

Records of windows are written all the time, by the streaming job; with a topic whose timestamps are Kafka's own, the
comparison is with Kafka's clock.
"""

from __future__ import annotations

from collections import deque

OFF_MS_MAX = 10_000  # Ages of windows and phases may be off by some seconds, see docs/clocks.md.
SAMPLES = 8  # The least of these counts: a record may be read late, but not before it is written.


class ClockCheck:
    """The offsets in ms of the last records read at the end of a topic; a pause of the reader makes none of them."""

    def __init__(self) -> None:
        self._samples_ms: deque[int] = deque(maxlen=SAMPLES)

    def add(self, record_ms: int, read_ms: int) -> None:
        """Add the newest record of one read."""
        self._samples_ms.append(read_ms - record_ms)

    @property
    def ahead_ms(self) -> int:
        """How far this clock is ahead, below 0 if it is behind; 0 while that is unknown or within OFF_MS_MAX."""
        if len(self._samples_ms) < SAMPLES:
            return 0
        least_ms = min(self._samples_ms)
        return least_ms if abs(least_ms) > OFF_MS_MAX else 0


def clock_text(ahead_ms: int) -> str:
    """Describe an offset for people."""
    where = "ahead of" if ahead_ms > 0 else "behind"
    return f"its clock is {abs(ahead_ms) / 1000:,.0f} s {where} the times of records in Kafka"
