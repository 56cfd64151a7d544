"""The cost per second of an overlay of any kind, broken down by link and broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from regraft.overlay.overlay_configuration import Link

Key = TypeVar("Key")


@dataclass(frozen=True)
class CostBreakdown:
    """The cost per second of an overlay, broken down by link and by broker."""

    links_per_s: Mapping[Link, float]
    brokers_per_s: Mapping[str, float]
    link_notifications_per_s: Mapping[Link, float]

    @property
    def total_per_s(self) -> float:
        """The sum over all links and brokers."""
        return sum(self.links_per_s.values()) + sum(self.brokers_per_s.values())


def mean_breakdown(parts: Sequence[CostBreakdown], spans_s: Sequence[float]) -> CostBreakdown:
    """Return the mean of the breakdowns, weighted by their spans."""
    return _added(parts, spans_s, sum(spans_s))


def summed_breakdown(parts: Sequence[CostBreakdown]) -> CostBreakdown:
    """Return the sum of the breakdowns; the cost is 0 if there are none."""
    return _added(parts, [1.0] * len(parts), 1.0)


def _added(parts: Sequence[CostBreakdown], weights: Sequence[float], whole: float) -> CostBreakdown:
    """Return the sum of the breakdowns, of each as much as its weight is of the whole."""

    def added(values_of: Callable[[CostBreakdown], Mapping[Key, float]]) -> dict[Key, float]:
        sums: dict[Key, float] = {}
        for part, weight in zip(parts, weights, strict=True):
            for key, value in values_of(part).items():
                sums[key] = sums.get(key, 0.0) + value * weight / whole
        return sums

    return CostBreakdown(
        added(lambda part: part.links_per_s),
        added(lambda part: part.brokers_per_s),
        added(lambda part: part.link_notifications_per_s),
    )
