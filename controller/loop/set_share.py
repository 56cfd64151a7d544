"""Ask brokers to report a smaller share of their deliveries under overload, and a larger one when it has passed.

In: the windows taken in this step. Out: a request in the topic of sampling, an event, metrics. Which share is right
belongs to :mod:`controller.decide.choose_share`.
"""

from __future__ import annotations

from collections import deque

import msgspec
import numpy as np

from regraft.controller.control_ports import EventSink, PlanStore
from regraft.controller.decide.choose_share import CALM_FACTOR_MAX, WindowLoad, choose_share
from regraft.controller.decide.loop_state import LoopState
from regraft.controller.report.loop_metrics import LoopMetrics
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.schemas.event import ENDED, AdaptationEvent, EventKind, Severity
from regraft.schemas.sample_request import SampleRequest
from regraft.schemas.sampled_blocks import power_of, share_text

SUBJECT = "telemetry"


class SetShare:
    """Follows the load; windows that a restarted controller reads again do not count."""

    def __init__(
        self, settings: ControllerSettings, plans: PlanStore, events: EventSink, metrics: LoopMetrics, term: int
    ) -> None:
        self._settings = settings.sampling
        self._plans = plans
        self._events = events
        self._metrics = metrics
        self._term = term
        self._loads: deque[WindowLoad] = deque(maxlen=CALM_FACTOR_MAX * self._settings.calm_windows)

    def __call__(self, state: LoopState, now_ms: int) -> None:
        """Process the windows taken in this step, and ask for another share if one is due."""
        for window in state.taken:
            self._metrics.window_share.set(window.sets.share)
            if window.end_ms >= state.started_ms:
                power = power_of(window.sets.share)
                count = int(np.bitwise_count(window.sets.words).sum())
                delay_ms = max(now_ms - window.end_ms, 0)
                self._loads.append(WindowLoad(window.start_ms, window.end_ms, delay_ms, count, power))
        share = choose_share(state.asked, self._loads, self._settings, now_ms)
        if share is not None:
            self._ask(msgspec.structs.replace(share, term=self._term), state, now_ms)
        self._metrics.share_asked.set(state.asked.share)

    def _ask(self, request: SampleRequest, state: LoopState, now_ms: int) -> None:
        before, state.asked, state.is_changed = state.asked, request, True
        self._plans.ask_sample(request)
        is_less = request.power > before.power
        self._metrics.share_changes.labels("down" if is_less else "up").inc()
        text = f"brokers are asked to report {share_text(request.share)}, not {share_text(before.share)}: "
        severity = Severity.WARNING if is_less else Severity.INFO
        event = AdaptationEvent(SUBJECT, EventKind.SHARE_CHANGED, severity, now_ms, text + request.reason)
        event.details.update({"share": f"{request.share:g}", "share_before": f"{before.share:g}"})
        if not request.power:
            event.details[ENDED] = "true"
        self._events.emit(event)
