"""Settings of a run on an accelerated clock, for all stages, topics and Kafka, scaled with the speed.

Waiting for another process takes wall time, so windows, graces and time-outs on the clock grow with the speed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from regraft.schemas.topics import TOPICS, Topic

WINDOW_WALL_S = 1.5  # A micro-batch takes a few tenths of a second, a decision less.
GRACE_WINDOWS = 0.6
HEAP_MB = 576  # Spark needs at least 450; small enough that a leak causes a full collection within minutes.
RETENTION_PARTS = 6  # The run lasts this many retention times, so that retention shows.
RETENTION_S_MIN = 30.0


@dataclass(frozen=True, slots=True)
class SoakPlan:
    """One run: ``hours`` of its clock at ``speed``, with a regime change every ``regime_min`` and bursts in between."""

    hours: float
    speed: float
    brokers: int
    seed: int
    rate_per_s: float
    regime_min: float = 20.0
    burst_min: float = 7.0
    lifetime_s: float = 180.0

    @property
    def wall_s(self) -> float:
        """The length of the run in wall time."""
        return self.hours * 3_600 / self.speed

    @property
    def retention_s(self) -> float:
        """The retention time of topics, in wall time because Kafka uses that."""
        return max(self.wall_s / RETENTION_PARTS, RETENTION_S_MIN)

    @property
    def window_ms(self) -> int:
        """The length of a window, in ms of the run's clock."""
        return max(ceil(WINDOW_WALL_S * self.speed), 5) * 1_000


def soak_topics(plan: SoakPlan) -> tuple[Topic, ...]:
    """Return the table of topics with retention in proportion to the run."""
    retention_ms = int(plan.retention_s * 1_000)
    return tuple(topic if topic.compacted else replace(topic, retention_ms=retention_ms) for topic in TOPICS)


def kafka_properties(plan: SoakPlan) -> dict[str, str]:
    """Return properties with which Kafka drops and compacts records within minutes instead of hours or days."""
    retention_ms = int(plan.retention_s * 1_000)
    return {
        "log.roll.ms": str(retention_ms // 4),
        "log.segment.bytes": str(4 << 20),
        "log.segment.delete.delay.ms": "1000",
        "log.retention.check.interval.ms": "5000",
        "log.cleaner.backoff.ms": "5000",
        "log.cleaner.delete.retention.ms": str(retention_ms),
        "log.cleaner.max.compaction.lag.ms": str(retention_ms),
    }


def soak_flags(plan: SoakPlan, origin_ms: int, ports: dict[str, int]) -> dict[str, dict[str, Any]]:
    """Return the settings of all stages."""
    window_ms = plan.window_ms
    return {
        "run": {"seed": plan.seed, "clock_speed": plan.speed, "clock_origin_ms": origin_ms if plan.speed != 1 else 0},
        "demo": {"brokers": plan.brokers},
        "spark": {"driver_memory_mb": HEAP_MB},
        "emulator": {
            "metrics_port": ports["emulator"],
            "workload": {
                "notifications_per_s": plan.rate_per_s,
                "lifetime_s_mean": plan.lifetime_s,
                "regime_change": f"interests over 30 every {plan.regime_min * 60:g}",
                "bursts": f"every {plan.burst_min * 60:g} for 60 by 3",
            },
        },
        "streaming": {
            "window_ms": window_ms,
            "grace_ms": int(GRACE_WINDOWS * window_ms),
            "catch_up_grace_ms": 2 * window_ms,
            "future_ms_max": None,
            "metrics_port": ports["streaming"],
        },
        "controller": {"dry_run": False, "horizon_lifetimes": 1.0, "metrics_port": ports["controller"]},
    }
