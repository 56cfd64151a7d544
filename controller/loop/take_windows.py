"""Take the windows that have closed, and cost each on the overlay of its time and on others."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from regraft.controller.control_ports import EventSink
from regraft.controller.decide.loop_state import LoopState
from regraft.controller.kinds.cost_over import at_first, cost_by_time_per_s, cost_over_per_s, sample_error_per_s
from regraft.controller.kinds.overlay_kind import AnyKind
from regraft.controller.loop.watch_idle import WatchIdle
from regraft.controller.loop.watch_shifts import ShiftWatch
from regraft.controller.report.loop_metrics import LoopMetrics
from regraft.controller.report.report_refusals import RefusalEvents
from regraft.controller.report.set_metrics import set_costs
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.state.overlays_in_window import overlays_in
from regraft.controller.windows.read_windows import WindowReader
from regraft.infra.process.handle_each import handle_each
from regraft.schemas.event import ENDED, AdaptationEvent, EventKind, Severity
from regraft.schemas.shown_state import CostPoint
from regraft.schemas.stay_reasons import reasons_text
from regraft.schemas.texts import figure

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
                is_new = now_ms - window.end_ms <= self._window_age_ms_max
                self._count(window, caps_per_s, is_new=is_new, clients_stay=state.fleet.inventory.clients_stay)

    def _count(self, window: ClosedWindow, caps_per_s: dict[str, float], *, is_new: bool, clients_stay: bool) -> None:
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
                relief = _relief_of(broker, window, clients_stay=clients_stay)
                self._report(broker, queue.notifications_out_per_s, cap_per_s, window, relief)
            elif self._within_for[broker] >= WINDOWS_IN_A_ROW and broker in self._reported:
                self._reported.remove(broker)
                self._report(broker, queue.notifications_out_per_s, cap_per_s, window)

    def _report(
        self, broker: str, passed_per_s: float, cap_per_s: float, window: ClosedWindow, relief: str = ""
    ) -> None:
        """Report that a broker is above its cap, and what relieves it; without ``relief``, that it no longer is."""
        is_over = not relief
        passes = f"{broker} passes {figure(passed_per_s)} notifications/s, but its limit is {figure(cap_per_s)}"
        text = f"{passes}: below it again" if is_over else f"{passes} (load_max_per_s): {relief}"
        details = {"passed_per_s": f"{passed_per_s:.4g}", "load_max_per_s": f"{cap_per_s:.4g}"}
        details |= {ENDED: "true"} if is_over else {}
        severity = Severity.INFO if is_over else Severity.WARNING
        self._events.emit(
            AdaptationEvent(broker, EventKind.BROKER_OVERLOADED, severity, window.end_ms, text, details=details)
        )


def _relief_of(broker: str, window: ClosedWindow, *, clients_stay: bool) -> str:
    """Return what relieves a broker; where clients stay, only those beside agents can be moved away."""
    relief = "--planner pack_drop moves subscribers away, `regraft members maintain --evacuate` by order"
    if not clients_stay:
        return relief
    total = (window.subscribers_at or {}).get(broker, 0)
    count = sum(home == broker for home in window.movable.values())
    why = reasons_text(window.staying.get(broker, {}), total - count)
    others = f", others stay{why}" if why else ""
    relieved = f": {relief}" if count else ", so the links must relieve it"
    return f"{count} of its {total} subscribers may move{others}{relieved}"


def _caps_per_s(state: LoopState) -> dict[str, float]:
    inventory = state.fleet.inventory
    if inventory.load_max_per_s is None:
        return {}
    return dict(zip(inventory.brokers, inventory.load_max_per_s.tolist(), strict=True))


class TakeWindows:
    """Takes each window once, oldest first."""

    def __init__(
        self,
        settings: ControllerSettings,
        kind: AnyKind,
        windows: WindowReader,
        changes: ShiftWatch,
        refusals: RefusalEvents,
        events: EventSink,
        metrics: LoopMetrics,
    ) -> None:
        self._settings = settings
        self._kind = kind
        self._windows = windows
        self._changes = changes
        self._refusals = refusals
        self._events = events
        self._metrics = metrics
        self._watches = WatchIdle(settings, kind, events), WatchCaps(settings, events)
        self._billed_epoch: int | None = None  # The epoch whose newest bill is the baseline for later ones.

    def __call__(self, state: LoopState, now_ms: int) -> None:
        """Take the windows that have been assembled since the last step."""
        state.taken = tuple(self._windows.read(state.plan_log, state.fleet, now_ms))
        self._note_clock(state, now_ms)
        for window in state.taken:
            self._take(window, state, now_ms)
        for watch in self._watches:
            watch(state, now_ms)

    def _note_clock(self, state: LoopState, now_ms: int) -> None:
        """Report once that the clock is behind; from the next step on, the loop's time is that of the windows."""
        was_ms, state.behind_ms = state.behind_ms, self._windows.behind_ms
        if state.behind_ms and not was_ms:
            text = (
                f"the controller's clock is at least {state.behind_ms / 1000:,.0f} s behind: windows that have closed "
                "end in its future, so it uses their time; set its clock"
            )
            self._events.emit(AdaptationEvent("controller", EventKind.WINDOW_STALE, Severity.CRITICAL, now_ms, text))

    def _take(self, window: ClosedWindow, state: LoopState, now_ms: int) -> None:
        """Cost a window, count it, and report its error; one that cannot be costed counts as well."""
        points: list[CostPoint | None] = []
        handle_each(
            [window], lambda one: points.append(self._judged(one, state, now_ms)), state.errors, "window not costed"
        )
        point = points[0] if points else None
        state.add_window(window, point, now_ms)
        handle_each([window], lambda one: self._add_bill(one, state), state.errors, "window not billed")
        self._metrics.windows.labels(str(window.is_complete).lower()).inc()
        if point is not None:
            set_costs(self._metrics, point)
        # A restarted controller reads old windows again; their errors were reported before.
        if now_ms - window.end_ms <= self._settings.decision.window_age_ms_max:
            event = self._refusals.about_window(window, now_ms)
            if event is not None:
                self._events.emit(event)

    def _judged(self, window: ClosedWindow, state: LoopState, now_ms: int) -> CostPoint | None:
        """Return the window's point of the cost series, after all that watch its traffic have seen it."""
        point = self._cost_point(window, state)
        self._changes.add(window, state, now_ms)
        shadow_costs_per_s = _shadow_costs_per_s(window, state, now_ms)
        return point and replace(point, cost_shadows_per_s=shadow_costs_per_s)

    def _add_bill(self, window: ClosedWindow, state: LoopState) -> None:
        """Note the bill, in money, of a complete window that lay in one epoch, if the kind of overlay charges."""
        overlay = None if window.epoch is None else state.plan_log.configuration_of(window.epoch)
        if overlay is None or not window.is_complete:
            return
        kind = self._kind.over(state.fleet.inventory_over(overlay.brokers))
        bill = kind.bill(overlay, [window.over(overlay.brokers)])
        if bill is None:
            return
        state.bill = bill
        if self._billed_epoch in (None, window.epoch):
            self._billed_epoch, state.bill_first = window.epoch, bill

    def _cost_point(self, window: ClosedWindow, state: LoopState) -> CostPoint | None:
        """Return the window's point of the cost series; None for a window of a ring without interests."""
        kind, plan_log = self._kind, state.plan_log
        if not kind.can_be_costed(window):
            return None
        overlays = overlays_in(
            window, plan_log.plans, lambda epoch: plan_log.configuration_of(epoch) or plan_log.present
        )
        first = at_first(kind, plan_log.homes_origin)
        counted_per_s = kind.over(state.fleet.inventory).counted_cost_per_s(window)
        return CostPoint(
            window_end_ms=window.end_ms,
            cost_per_s=cost_by_time_per_s(kind, state.fleet, overlays, window),
            cost_bootstrap_per_s=cost_over_per_s(kind, state.fleet, first, window),
            cost_counted_per_s=None if counted_per_s is None else float(counted_per_s),
            epoch=window.epoch_max,
            is_one_epoch=window.epoch is not None,
            is_complete=window.is_complete,
            notifications_per_s=window.sets.notification_count / window.sets.span_s if window.sets.span_s else 0.0,
            sample_share=window.sets.share,
            cost_error_per_s=sample_error_per_s(kind, state.fleet, overlays[-1][1], window),
        )


def _shadow_costs_per_s(window: ClosedWindow, state: LoopState, now_ms: int) -> dict[str, float]:
    """Pass the window to the shadow planners, and return what their overlays would have cost on it."""
    # What a shadow would have decided on windows from before this controller's start is unknown.
    shadows = state.shadows if window.end_ms >= state.started_ms else ()
    homes_before = state.plan_log.homes_before_plans_since
    costs = {
        shadow.name: shadow.add_window(
            window.over(shadow.overlay.brokers), now_ms, homes_before, state.changed_since_ms
        )
        for shadow in shadows
    }
    return {name: float(cost_per_s) for name, cost_per_s in costs.items() if cost_per_s is not None}
