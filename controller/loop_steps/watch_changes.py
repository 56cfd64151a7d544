"""Watch for changes of traffic, window by window: from when on it is the new one, told once.

In: windows with what they cost. Out: in the state since when traffic is as it is, a metric, an event. How a change is
found belongs to :mod:`controller.windows.detect_changes`; who lets go of what was before, to those who did it.
"""

from __future__ import annotations

from controller.control_ports import EventSink
from controller.controller_settings import ControllerSettings
from controller.kinds.cost_over import at_first, cost_over_per_s
from controller.kinds.overlay_kind import AnyKind
from controller.loop_state import LoopState
from controller.report.loop_metrics import LoopMetrics
from controller.state.closed_window import ClosedWindow
from controller.windows.detect_changes import ChangeDetector, ChangeFound
from schemas.event import AdaptationEvent, EventKind, Severity
from schemas.live_view import CostPoint

SUBJECT = "traffic"


class ChangeWatch:
    """Looks at each complete window once, oldest first; a restarted controller looks at those that it reads again."""

    def __init__(self, settings: ControllerSettings, kind: AnyKind, events: EventSink, metrics: LoopMetrics) -> None:
        per_change, by_broker = settings.quiet_windows_per_change, not kind.NEEDS_REGISTER
        self._detector = ChangeDetector(per_change, by_broker=by_broker) if per_change else None
        self._kind = kind
        self._window_age_ms_max = settings.decision.window_age_ms_max
        self._events = events
        self._metrics = metrics

    def look(self, window: ClosedWindow, point: CostPoint | None, state: LoopState, now_ms: int) -> None:
        """Take a window; ``point`` is what it cost, None where that is not known."""
        if self._detector is None or not window.is_complete:
            return
        found = self._detector.add(window, self._cost_per_notification(window, point, state))
        state.changed_since_ms = self._detector.since_ms
        if found is None:
            return
        self._metrics.changes_found.labels(found.statistic).inc()
        # A restarted controller reads old windows again; what they showed has been told.
        if now_ms - window.end_ms <= self._window_age_ms_max:
            self._events.emit(_event(found, now_ms))

    def _cost_per_notification(self, window: ClosedWindow, point: CostPoint | None, state: LoopState) -> float | None:
        """Return it for the first overlay at the inventory's costs: that a link is measured anew changes no traffic."""
        if point is None or not point.notifications_per_s:
            return None
        cost_per_s = point.cost_bootstrap_per_s
        if state.fleet.measured:
            first = at_first(self._kind, state.plan_log.homes_origin)
            cost_per_s = cost_over_per_s(self._kind, state.fleet.with_measured({}), first, window)
        return cost_per_s / point.notifications_per_s


def _event(found: ChangeFound, now_ms: int) -> AdaptationEvent:
    details = {
        "since_ms": str(found.since_ms),
        "statistic": found.statistic,
        "value": f"{found.value:.4g}",
        "limit": f"{found.limit:.4g}",
    }
    return AdaptationEvent(SUBJECT, EventKind.CHANGE_DETECTED, Severity.INFO, now_ms, found.text, details=details)
