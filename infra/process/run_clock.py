"""The clock that all stages of one run share: the wall clock, or one that runs faster from a common origin on.

At speed 1 the clock is the wall clock.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

SPEED_MAX = 1_000.0


@dataclass(frozen=True, slots=True)
class RunClock:
    """The clock of a run.

    ``origin_ms``: the time at which the clock and the wall clock were equal; 0 for none. ``speed``: how many seconds
    pass on the clock in a second of wall time. A speed above 1 makes a long run short; all its processes then need the
    same origin.
    """

    origin_ms: int = 0
    speed: float = 1.0

    def errors(self) -> list[str]:
        """Return what is wrong, one sentence each."""
        errors = []
        if not 0 < self.speed <= SPEED_MAX:
            errors.append(
                f"clock_speed is {self.speed:g}: must be above 0 and at most {SPEED_MAX:g}; 1 is the wall clock"
            )
        elif not math.isclose(self.speed, 1.0) and self.origin_ms <= 0:
            errors.append(
                f"clock_speed is {self.speed:g} without clock_origin_ms: give all processes of the run the same wall "
                "time in ms since 1970, from which on the clock runs at that speed"
            )
        if self.origin_ms < 0:
            errors.append(f"clock_origin_ms is {self.origin_ms}: ms since 1970, or 0 for none")
        return errors

    def now_ms(self) -> int:
        """Return the clock's time, ms since 1970."""
        wall_ms = time.time_ns() // 1_000_000
        if self.speed == 1.0:
            return wall_ms
        return self.origin_ms + int((wall_ms - self.origin_ms) * self.speed)

    def wall_ms(self, clock_ms: int) -> int:
        """Return the wall time at which the clock shows ``clock_ms``."""
        if self.speed == 1.0:
            return clock_ms
        return self.origin_ms + int((clock_ms - self.origin_ms) / self.speed)

    def wall_s(self, duration_ms: float) -> float:
        """Return how many seconds of wall time a duration on the clock takes."""
        return duration_ms / 1_000 / self.speed
