"""Measure how long notifications of bursts take, separately for bursts with and without detours around congestion.

No decision depends on them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from regraft.producers.brokers.broker_messages import Notification

DELAY_MS_MAX = 600_000  # Longer delays count as this; delays are counted in whole ms.
BURSTS_MAX = 1_000


@dataclass
class Burst:
    """One burst: when its publishing began and ended, and the delays of its notifications."""

    is_dynamic: bool
    from_ms: float
    to_ms: float = float("inf")
    last_ms: float = 0.0
    delays_ms: Counter[int] = field(default_factory=Counter)


class BurstMeter:
    """Receives bursts and deliveries; ``figures`` returns the results so far."""

    def __init__(self) -> None:
        self._bursts: list[Burst] = []

    def begin(self, now_ms: float, *, is_dynamic: bool) -> None:
        """Begin a burst; those beyond BURSTS_MAX are not measured."""
        if len(self._bursts) < BURSTS_MAX:
            self._bursts.append(Burst(is_dynamic, now_ms))

    def end(self, now_ms: float) -> None:
        """End the current burst."""
        if self._bursts:
            self._bursts[-1].to_ms = min(self._bursts[-1].to_ms, now_ms)

    def take(self, notification: Notification, now_ms: float) -> None:
        """Count a delivered notification in the burst during which it was published."""
        self.note(notification.publish_ms, now_ms)

    def note(self, published_ms: float, now_ms: float) -> None:
        """Count a delivery by when the notification was published."""
        for burst in reversed(self._bursts):
            if published_ms >= burst.from_ms:
                if published_ms <= burst.to_ms:
                    burst.last_ms = now_ms
                    burst.delays_ms[min(round(now_ms - published_ms), DELAY_MS_MAX)] += 1
                return

    @property
    def begun_ms(self) -> list[int]:
        """The time at which each burst began."""
        return [round(burst.from_ms) for burst in self._bursts]

    def figures(self) -> dict[str, float | None]:
        """Return p95 of the delays and the mean time from a burst's end to its last delivery; None without bursts."""
        measured: dict[str, float | None] = {}
        for name, is_dynamic in (("static", False), ("dynamic", True)):
            bursts = [one for one in self._bursts if one.is_dynamic is is_dynamic and one.delays_ms]
            ended = [one for one in bursts if one.to_ms < float("inf")]
            delays_ms: Counter[int] = sum((one.delays_ms for one in bursts), Counter())
            drains_s = [max(one.last_ms - one.to_ms, 0.0) / 1000 for one in ended]
            measured[f"delay_ms_p95_{name}"] = _percentile_95(delays_ms)
            measured[f"drain_s_{name}"] = round(sum(drains_s) / len(drains_s), 3) if drains_s else None
        return measured


def _percentile_95(counted: Counter[int]) -> float | None:
    left = 0.95 * counted.total()
    for value, count in sorted(counted.items()):
        left -= count
        if left <= 0:
            return float(value)
    return None
