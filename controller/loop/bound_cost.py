"""Compute a lower bound of a window's cost on any overlay, at most once a minute: it shows how much is left to save.

Decisions do not use it, so it comes last.
"""

from __future__ import annotations

from msgspec.structs import replace

from regraft.controller.decide.loop_state import LoopState
from regraft.controller.kinds.overlay_kind import AnyKind
from regraft.controller.report.loop_metrics import LoopMetrics
from regraft.controller.report.set_metrics import set_costs
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.overlay.members import FleetView

BOUND_EVERY_MS = 60_000


class BoundCost:
    """Bounds the cost of a recent, complete window that lay in one epoch."""

    def __init__(self, settings: ControllerSettings, kind: AnyKind, metrics: LoopMetrics) -> None:
        self._age_ms_max = settings.decision.window_age_ms_max
        self._kind = kind
        self._metrics = metrics
        self._bounded_ms = -BOUND_EVERY_MS
        self._fleet: FleetView | None = None
        self._costed_ms = -1

    def __call__(self, state: LoopState, now_ms: int) -> None:
        """Bound the newest window's cost, unless another window's was bounded within the last minute."""
        window = state.newest
        if window is None or not state.cost_points or window.end_ms - self._bounded_ms < BOUND_EVERY_MS:
            return
        if state.fleet is not self._fleet:  # The window was costed with the previous link costs.
            self._fleet, self._costed_ms = state.fleet, window.end_ms
        point = state.cost_points[-1]
        is_fresh = now_ms - window.end_ms <= self._age_ms_max and point.window_end_ms == window.end_ms
        if window.end_ms == self._costed_ms or not is_fresh or not point.is_complete or not point.is_one_epoch:
            return
        self._bounded_ms = window.end_ms
        brokers = state.plan_log.present.brokers
        kind = self._kind.over(state.fleet.inventory_over(brokers))
        least_per_s = kind.least_cost_per_s([window.over(brokers)])
        if least_per_s is not None:
            state.cost_points[-1] = replace(point, cost_least_per_s=float(least_per_s))
            set_costs(self._metrics, state.cost_points[-1])
            state.is_changed = True
