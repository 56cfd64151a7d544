"""Correct link costs by the brokers' measurements, and report when the model of the overlay's cost is wrong.

How a link's cost is estimated belongs to :mod:`controller.windows.measure_links`.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping

from regraft.controller.control_ports import EventSink
from regraft.controller.decide.loop_state import LoopState
from regraft.controller.report.loop_metrics import LoopMetrics
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.windows.measure_links import LinkMeter, counted_drift
from regraft.overlay.overlay_configuration import Link
from regraft.schemas.event import AdaptationEvent, EventKind, Severity
from regraft.schemas.shown_state import CostPoint
from regraft.schemas.texts import figure, name_some

LINKS, MESSAGES, UNIT = "links", "messages", "unit"  # Subjects of MODEL_DRIFT: what is wrong with the model.
DRIFT_WINDOWS = 3  # Each of one epoch; drift is their median, so that no single window decides.
NAMED_MAX = 5
COST_MIN_PER_S = 1e-9  # Avoids dividing by zero: a window without traffic shows no drift.
ERRORS_MAX = 2.0  # Deviations within this many standard errors of a sampled window's cost are not drift.


class CorrectLinks:
    """Keeps the measured link costs in the fleet up to date; without probes it changes nothing."""

    def __init__(self, settings: ControllerSettings, events: EventSink, metrics: LoopMetrics) -> None:
        self._settings = settings.links
        self._window_age_ms_max = settings.decision.window_age_ms_max
        self._events = events
        self._metrics = metrics
        self._meter = LinkMeter(settings.links)
        self._drifts: deque[float] = deque(maxlen=DRIFT_WINDOWS)
        self._errors: deque[float] = deque(maxlen=DRIFT_WINDOWS)  # The sampling error of each drift, as a share.
        self._is_drift_reported = False
        self._is_unit_reported = False

    def __call__(self, state: LoopState, now_ms: int) -> None:
        """Process the windows taken in this step."""
        for window in state.taken:
            changed = self._meter.add(window, state.fleet.inventory_announced)
            has_estimates = self._meter.estimated is not state.fleet.estimated
            # A restarted controller reads old windows again; they were reported before.
            is_new = now_ms - window.end_ms <= self._window_age_ms_max
            if is_new:
                self._report_unit(now_ms)
            if changed or has_estimates:
                self._correct(state)
                if self._settings.estimate_unmeasured:  # A first measurement is not drift of the model.
                    changed = {pair: costs for pair, costs in changed.items() if pair in state.plan_log.present.links}
                if is_new and changed:
                    self._report_links(changed, now_ms)
            elif is_new:
                self._watch_drift(window, state, now_ms)
        self._metrics.links_corrected.set(len(state.fleet.measured))
        estimated = [pair for pair in state.plan_log.present.links if state.fleet.is_estimate(pair)]
        self._metrics.links_estimated.set(len(estimated))

    def _correct(self, state: LoopState) -> None:
        state.fleet = state.fleet.with_measured(self._meter.costs, self._meter.estimated)
        state.is_changed = True
        self._drifts.clear()  # Drifts of the former model do not apply.
        self._errors.clear()

    def _watch_drift(self, window: ClosedWindow, state: LoopState, now_ms: int) -> None:
        """Compare the brokers' counters with what the model predicts; refit the model if they differ too much."""
        point = state.cost_points[-1] if state.cost_points else None
        if point is None or point.window_end_ms != window.end_ms or point.cost_counted_per_s is None:
            return
        if not (point.is_complete and point.is_one_epoch):
            return
        inventory, links = state.fleet.inventory, state.plan_log.present.links
        costs = {pair: inventory.cost_of_link(*pair) for pair in links}
        self._drifts.append(counted_drift(self._meter, window, costs, point.cost_counted_per_s, point.cost_per_s))
        self._errors.append(_error_share(point))
        drift = statistics.median(self._drifts)
        limit = self._settings.drift_share_max + ERRORS_MAX * statistics.median(self._errors)
        self._metrics.model_drift_share.set(drift)
        is_far = len(self._drifts) == DRIFT_WINDOWS and abs(drift) > limit
        if is_far and not self._is_drift_reported:
            is_refitted = self._meter.refit(links)
            self._report(MESSAGES, _drift_text(drift, limit, is_refitted=is_refitted), now_ms)
            if is_refitted:
                self._correct(state)
        self._is_drift_reported = is_far or (self._is_drift_reported and abs(drift) > limit / 2)

    def _report_links(self, changed: Mapping[Link, tuple[float, float]], now_ms: int) -> None:
        by_factor = sorted(changed.items(), key=lambda item: -abs(item[1][1] - item[1][0]))
        texts = [f"{a}-{b} {figure(before)} -> {figure(after)}" for (a, b), (before, after) in by_factor]
        text = f"measured round trips have changed link costs: {name_some(texts, NAMED_MAX)}"
        self._report(LINKS, text, now_ms)

    def _report_unit(self, now_ms: int) -> None:
        if not self._meter.is_usable and not self._is_unit_reported:
            text = (
                f"the median measured link costs {self._meter.unit_factor:.3g} times what the inventory says: no "
                "link is corrected; set controller.links.cost_per_ms to what a millisecond costs there, or to 0; or "
                "controller.links.estimate_unmeasured, if the inventory's costs are placeholders"
            )
            self._report(UNIT, text, now_ms)
        self._is_unit_reported = not self._meter.is_usable

    def _report(self, subject: str, text: str, now_ms: int) -> None:
        self._events.emit(AdaptationEvent(subject, EventKind.MODEL_DRIFT, Severity.WARNING, now_ms, text))


def _error_share(point: CostPoint) -> float:
    """Return the standard error of a sampled window's cost as a share of it; 1 if unknown."""
    if point.sample_share >= 1:
        return 0.0
    return 1.0 if point.cost_error_per_s is None else point.cost_error_per_s / max(point.cost_per_s, COST_MIN_PER_S)


def _drift_text(drift: float, limit: float, *, is_refitted: bool) -> str:
    text = f"counted messages cost {drift:+.0%} versus the model at measured delays (limit {limit:.0%})"
    if is_refitted:
        return f"{text}: all links of the overlay now cost what was measured"
    return (
        f"{text}: link costs agree with measurements, so brokers send different messages from those that the model "
        "counts"
    )
