"""Put lines about a run in order of time although some arrive late.

In: texts with their times, and the present time. Out: lines whose times never decrease. Lines are held for HOLD_S, long
enough for what status files report a second late. A line that arrives even later gets the time of the line before it,
with its own time in the text. Printing does not belong here.
"""

from __future__ import annotations

import heapq

HOLD_S = 2.0  # Status files are written and read every second.
LATE_S_MIN = 0.05  # Times have one decimal.


class LineOrder:
    """Holds lines and returns them in order."""

    def __init__(self) -> None:
        self._held: list[tuple[float, int, str]] = []
        self._count = 0
        self._given_s = 0.0

    def add(self, text: str, elapsed_s: float) -> None:
        """Hold a line about what happened ``elapsed_s`` after the start of the run."""
        self._count += 1  # Lines with the same time keep the order in which they were added.
        heapq.heappush(self._held, (elapsed_s, self._count, text))

    def due(self, now_s: float) -> list[str]:
        """Return the lines that have been held long enough."""
        lines = []
        while self._held and self._held[0][0] <= now_s - HOLD_S:
            lines.append(self._line(*heapq.heappop(self._held)))
        return lines

    def rest(self) -> list[str]:
        """Return all lines that are still held."""
        return self.due(float("inf"))

    def _line(self, elapsed_s: float, _count: int, text: str) -> str:
        late_s = self._given_s - elapsed_s
        self._given_s = max(self._given_s, elapsed_s)
        own = f" (at {elapsed_s:.1f} s)" if late_s >= LATE_S_MIN else ""
        return f"{self._given_s:6.1f} s  {text}{own}"
