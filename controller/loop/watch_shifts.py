"""Watch for changes of traffic, window by window, and report each once.

How a change is found belongs to :mod:`controller.windows.find_shifts`; each owner of older data drops it.
"""

from __future__ import annotations

from regraft.controller.control_ports import EventSink
from regraft.controller.decide.loop_state import LoopState
from regraft.controller.kinds.overlay_kind import AnyKind
from regraft.controller.report.loop_metrics import LoopMetrics
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.windows.detect_shifts import TrafficShift
from regraft.controller.windows.find_shifts import ShiftFinder
from regraft.schemas.event import AdaptationEvent, EventKind, Severity

SUBJECT = "traffic"


class ShiftWatch:
    """Checks each complete window once, oldest first; a restarted controller checks those that it reads again."""

    def __init__(self, settings: ControllerSettings, kind: AnyKind, events: EventSink, metrics: LoopMetrics) -> None:
        self._finder = ShiftFinder(settings, kind)
        self._window_age_ms_max = settings.decision.window_age_ms_max
        self._events = events
        self._metrics = metrics

    def add(self, window: ClosedWindow, state: LoopState, now_ms: int) -> None:
        """Check a window."""
        change = self._finder.add(window, state.fleet, state.plan_log)
        state.changed_since_ms = self._finder.since_ms
        if change is None:
            return
        self._metrics.changes_found.labels(change.statistic).inc()
        # A restarted controller reads old windows again; their changes were reported before.
        if now_ms - window.end_ms <= self._window_age_ms_max:
            self._events.emit(_event(change, now_ms))


def _event(change: TrafficShift, now_ms: int) -> AdaptationEvent:
    details = {
        "since_ms": str(change.since_ms),
        "statistic": change.statistic,
        "value": f"{change.value:.4g}",
        "limit": f"{change.limit:.4g}",
    }
    return AdaptationEvent(SUBJECT, EventKind.CHANGE_DETECTED, Severity.INFO, now_ms, change.text, details=details)
