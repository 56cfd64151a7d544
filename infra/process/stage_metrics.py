"""The metrics of one stage: a registry, and a description of each metric that can be printed without running the stage.

Durations are in ms, as everywhere in the project; sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

DURATION_MS_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000)


@dataclass(frozen=True, slots=True)
class MetricInfo:
    """Description of a metric: its name when scraped, type, labels and meaning."""

    name: str
    type: str
    labels: tuple[str, ...]
    help: str


class StageMetrics:
    """Makes and describes metrics; each instance has its own registry, so a process may have several."""

    def __init__(self, stage: str) -> None:
        self.registry = CollectorRegistry()
        self.described: list[MetricInfo] = []
        self._prefix = f"regraft_{stage}_"
        ProcessCollector(registry=self.registry)  # memory, CPU time, open files, start: process_...

    def counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        """Return a new counter; ``_total`` is appended to its name when scraped."""
        self._describe(f"{name}_total", "counter", labels, text)
        return Counter(self._prefix + name, text, labels, registry=self.registry)

    def gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
        """Return a new gauge."""
        self._describe(name, "gauge", labels, text)
        return Gauge(self._prefix + name, text, labels, registry=self.registry)

    def histogram(
        self, name: str, text: str, labels: Sequence[str] = (), buckets: Sequence[float] = DURATION_MS_BUCKETS
    ) -> Histogram:
        """Return a new histogram; by default the buckets suit durations in ms."""
        self._describe(name, "histogram", labels, text)
        return Histogram(self._prefix + name, text, labels, buckets=buckets, registry=self.registry)

    def _describe(self, name: str, type_: str, labels: Sequence[str], text: str) -> None:
        if not text.endswith("."):
            raise ValueError(
                f"metric {self._prefix}{name} is described by {text!r}: write a sentence that ends with a full stop"
            )
        self.described.append(MetricInfo(self._prefix + name, type_, tuple(labels), text))
