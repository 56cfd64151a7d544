"""Measure how long each decision took, by role and planner. No decision depends on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from regraft.controller.decide.loop_state import LoopState
from regraft.controller.report.loop_metrics import LoopMetrics

ACTING, SHADOW = "acting", "shadow"


class DecisionTimer:
    """Measures with a stopwatch in seconds."""

    def __init__(self, stopwatch_s: Callable[[], float], metrics: LoopMetrics) -> None:
        self._stopwatch_s = stopwatch_s
        self._metrics = metrics

    @contextmanager
    def timed(self, state: LoopState, role: str, planner: str) -> Iterator[None]:
        """Record how long the block takes; ``role`` is ACTING or SHADOW."""
        began_s = self._stopwatch_s()
        yield
        duration_ms = (self._stopwatch_s() - began_s) * 1000
        self._metrics.decision_ms.labels(planner, role).observe(duration_ms)
        state.add_decision_time(f"{role}:{planner}", duration_ms)
