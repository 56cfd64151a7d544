"""How long decisions take, as counted since the start of a control loop."""

from msgspec import Struct


class DecisionTimes(Struct, frozen=True):
    """The durations of one planner's decisions, judge and choice included."""

    count: int = 0
    last_ms: float = 0.0
    mean_ms: float = 0.0
    max_ms: float = 0.0

    def with_decision(self, duration_ms: float) -> "DecisionTimes":
        """Return the times with one more decision."""
        count = self.count + 1
        mean_ms = self.mean_ms + (duration_ms - self.mean_ms) / count
        return DecisionTimes(count, duration_ms, mean_ms, max(self.max_ms, duration_ms))
