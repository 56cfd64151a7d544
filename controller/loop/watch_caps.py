"""Watch for brokers that forward more notifications than their cap, and report when that starts and when it ends."""

from __future__ import annotations

from collections import Counter

from regraft.controller.control_ports import EventSink
from regraft.controller.decide.loop_state import LoopState
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.controller.state.closed_window import ClosedWindow
from regraft.schemas.event import ENDED, AdaptationEvent, EventKind, Severity
from regraft.schemas.write_figures import figure

WINDOWS_IN_A_ROW = 2  # A burst within one window does not count; a lasting one is reported at its second window.


class WatchCaps:
    """Counts for how many windows in a row each broker has been above its cap, and within it."""

    def __init__(self, settings: ControllerSettings, events: EventSink) -> None:
        self._window_age_ms_max = settings.decision.window_age_ms_max
        self._events = events
        self._above_for: Counter[str] = Counter()
        self._within_for: Counter[str] = Counter()
        self._reported: set[str] = set()

    def __call__(self, state: LoopState, now_ms: int) -> None:
        """Process the windows taken in this step; incomplete ones, and brokers that are not heard, do not count."""
        caps_per_s = _caps_per_s(state)
        for window in state.taken if caps_per_s else ():
            if window.is_complete:
                self._count(window, caps_per_s, is_new=now_ms - window.end_ms <= self._window_age_ms_max)

    def _count(self, window: ClosedWindow, caps_per_s: dict[str, float], *, is_new: bool) -> None:
        for queue in window.queues:
            broker, cap_per_s = queue.broker, caps_per_s.get(queue.broker)
            if queue.peer or cap_per_s is None:
                continue
            is_above = queue.notifications_out_per_s > cap_per_s
            self._above_for[broker] = self._above_for[broker] + 1 if is_above else 0
            self._within_for[broker] = 0 if is_above else self._within_for[broker] + 1
            if not is_new:
                continue  # A restarted controller reads old windows again.
            if self._above_for[broker] >= WINDOWS_IN_A_ROW and broker not in self._reported:
                self._reported.add(broker)
                self._report(broker, queue.notifications_out_per_s, cap_per_s, window, is_over=False)
            elif self._within_for[broker] >= WINDOWS_IN_A_ROW and broker in self._reported:
                self._reported.remove(broker)
                self._report(broker, queue.notifications_out_per_s, cap_per_s, window, is_over=True)

    def _report(
        self, broker: str, passed_per_s: float, cap_per_s: float, window: ClosedWindow, *, is_over: bool
    ) -> None:
        passes = f"{broker} passes {figure(passed_per_s)} notifications/s, its limit is {figure(cap_per_s)}"
        what_to_do = "--planner pack_drop moves subscribers away, `regraft members maintain --evacuate` by order"
        text = f"{passes}: below it again" if is_over else f"{passes} (load_max_per_s): {what_to_do}"
        details = {"passed_per_s": f"{passed_per_s:.4g}", "load_max_per_s": f"{cap_per_s:.4g}"}
        details |= {ENDED: "true"} if is_over else {}
        severity = Severity.INFO if is_over else Severity.WARNING
        self._events.emit(
            AdaptationEvent(broker, EventKind.BROKER_OVERLOADED, severity, window.end_ms, text, details=details)
        )


def _caps_per_s(state: LoopState) -> dict[str, float]:
    inventory = state.fleet.inventory
    if inventory.load_max_per_s is None:
        return {}
    return dict(zip(inventory.brokers, inventory.load_max_per_s.tolist(), strict=True))
