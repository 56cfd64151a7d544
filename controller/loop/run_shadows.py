"""Run the shadow planners once on the acting planner's latest situation.

In: the situation that the acting planner had. Out: their overlays and plans, an event when one fails for the first
time. What they do belongs to :mod:`controller.decide.shadow_planners`.
"""

from __future__ import annotations

from regraft.controller.control_ports import EventSink
from regraft.controller.decide.loop_state import LoopState
from regraft.controller.loop.begin_shadows import ShadowStarter
from regraft.controller.loop.decision_timer import SHADOW, DecisionTimer
from regraft.controller.loop.find_situation import SituationFinder
from regraft.schemas.event import AdaptationEvent, EventKind, Severity


class RunShadows:
    """Runs one shadow planner after the other."""

    def __init__(
        self, situations: SituationFinder, shadows: ShadowStarter, timer: DecisionTimer, events: EventSink
    ) -> None:
        self._shadows = shadows
        self._situations = situations
        self._timer = timer
        self._events = events

    def __call__(self, state: LoopState, now_ms: int) -> None:
        """Let each decide, unless they have decided on this situation before."""
        situation, state.for_shadows = state.for_shadows, None
        if situation is None:
            return
        self._shadows.follow(state)
        for shadow in state.shadows:
            with self._timer.timed(state, SHADOW, shadow.name):
                has_succeeded = shadow.decide(situation, lambda one: self._situations.price_per_s(one, state))
                if not has_succeeded and shadow.faults == 1:
                    text = f"shadow planner {shadow.name} failed (nothing else is affected): {shadow.fault_text}"
                    kind, severity = EventKind.PLANNER_FAILED, Severity.WARNING
                    self._events.emit(AdaptationEvent(f"planner-{shadow.name}", kind, severity, now_ms, text))
