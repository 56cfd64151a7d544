"""Start shadow planners on the overlay in force: when the controller starts, and again when its brokers change."""

from __future__ import annotations

from regraft.controller.control_ports import EventSink
from regraft.controller.decide.loop_state import LoopState
from regraft.controller.decide.shadow_planners import ShadowPlanner
from regraft.controller.kinds.overlay_kind import AnyKind
from regraft.controller.loop.decide_once import SHADOW, DecisionTimer
from regraft.controller.loop.find_situation import SituationFinder
from regraft.controller.planners.planner_registry import planners_of
from regraft.controller.settings.controller_settings import ControllerSettings
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
        """Let each decide, unless they have decided on this situation before; during a transition they wait."""
        if state.for_shadows is None or state.plan_log.moving is not None:
            return  # Moving clients wait for each step; they must not wait for a shadow.
        situation, state.for_shadows = state.for_shadows, None
        self._shadows.follow(state)
        if situation.state.configuration.brokers != state.plan_log.present.brokers:
            return  # The transition has changed the brokers: the next window is the first of these.
        for shadow in state.shadows:
            with self._timer.timed(state, SHADOW, shadow.name):
                has_succeeded = shadow.decide(situation, lambda one: self._situations.price_per_s(one, state))
                if not has_succeeded and shadow.errors == 1:
                    text = f"shadow planner {shadow.name} failed (nothing else is affected): {shadow.error_text}"
                    kind, severity = EventKind.PLANNER_FAILED, Severity.WARNING
                    self._events.emit(AdaptationEvent(f"planner-{shadow.name}", kind, severity, now_ms, text))


class ShadowStarter:
    """Creates the shadow planners that the settings name."""

    def __init__(self, settings: ControllerSettings, kind: AnyKind) -> None:
        self._settings = settings
        self._kind = kind

    def begin(self, state: LoopState) -> None:
        """Put new shadow planners into the state, in place of any earlier ones."""
        present = state.plan_log.present
        kind = self._kind.over(state.fleet.inventory_over(present.brokers))
        state.shadows = tuple(
            ShadowPlanner(name, planners_of(name, self._settings), present, kind, self._settings)
            for name in self._settings.shadow_planners
        )

    def follow(self, state: LoopState) -> None:
        """Make shadow planners price links as the acting planner does.

        They start again if the brokers of the overlay have changed: an overlay of other brokers cannot be compared.
        """
        brokers = state.plan_log.present.brokers
        if any(shadow.overlay.brokers != brokers for shadow in state.shadows):
            self.begin(state)
        for shadow in state.shadows:
            shadow.reprice(self._kind.over(state.fleet.inventory_over(brokers)))
