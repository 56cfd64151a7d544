"""Publish the loop's state at every change, else at a fixed interval; bound its cost; forget plans that ended long ago.

In: the state. Out: the live view and metrics. Their content belongs to :mod:`controller.report`.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from regraft.controller.control_ports import ControlPorts
from regraft.controller.decide.loop_state import LoopState
from regraft.controller.execute.execute_plan import PlanRunner
from regraft.controller.execute.take_orders import OrderTaker
from regraft.controller.kinds.overlay_kind import AnyKind
from regraft.controller.report.loop_metrics import LoopMetrics
from regraft.controller.report.render_view import render_view
from regraft.controller.report.set_metrics import set_costs, set_metrics
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.controller.windows.read_windows import WindowReader
from regraft.overlay.inventory.members import FleetView

BOUND_EVERY_MS = 60_000


class SettlePlans:
    """Makes the plan store forget what the plan log has forgotten, and send what it has queued."""

    def __init__(self, ports: ControlPorts) -> None:
        self._plans = ports.plans

    def __call__(self, state: LoopState, now_ms: int) -> None:
        """Forget plans and send the events of this step."""
        for forgotten in state.plan_log.take_forgotten():
            self._plans.forget(forgotten)
        self._plans.flush()


class ShowState:
    """Publishes the state; ``port_errors`` returns the ports' counts of errors, by name."""

    def __init__(
        self,
        settings: ControllerSettings,
        ports: ControlPorts,
        windows: WindowReader,
        orders: OrderTaker,
        runner: PlanRunner,
        metrics: LoopMetrics,
        port_errors: Callable[[], dict[str, int]],
    ) -> None:
        self._settings = settings
        self._views = ports.views
        self._windows = windows
        self._orders = orders
        self._runner = runner
        self._metrics = metrics
        self._port_errors = port_errors

    def __call__(self, state: LoopState, now_ms: int) -> None:
        """Publish the state, unless it is unchanged and was published recently."""
        if not state.is_changed and now_ms - state.shown_ms < self._settings.status_ms:
            return
        state.shown_ms, state.is_changed = now_ms, False
        errors = self._port_errors() | self._windows.errors | state.errors | self._orders.errors
        errors |= {f"shadow planner: {shadow.name}": shadow.errors for shadow in state.shadows if shadow.errors}
        set_metrics(self._metrics, state, self._runner.queue_lengths, errors, now_ms)
        view = render_view(state, self._settings, self._orders.book.in_force(now_ms), errors, now_ms)
        for sink in self._views:
            sink.publish(view, now_ms)


class BoundCost:
    """Bounds the cost of a recent, complete window that lay in one epoch, on any overlay, at most once a minute.

    It shows how much is left to save. Decisions do not use it, so it comes last.
    """

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
