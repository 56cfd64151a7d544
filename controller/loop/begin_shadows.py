"""Start shadow planners on the overlay in force: when the controller starts, and again when its brokers change.

In: the loop's state. Out: shadow planners that have decided nothing yet.
"""

from __future__ import annotations

from regraft.controller.decide.loop_state import LoopState
from regraft.controller.decide.shadow_planners import ShadowPlanner
from regraft.controller.kinds.overlay_kind import AnyKind
from regraft.controller.planners.find_planners import planners_of
from regraft.controller.settings.controller_settings import ControllerSettings


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
