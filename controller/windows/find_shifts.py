"""Find changes of traffic as windows close, using their cost on the first overlay. Pure.

Controller and backtests share this; the method belongs to :mod:`controller.windows.detect_shifts`.
"""

from __future__ import annotations

from collections.abc import Iterable

from regraft.controller.kinds.cost_over import at_first, cost_over_per_s
from regraft.controller.kinds.overlay_kind import AnyKind
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.state.plan_log import PlanLog
from regraft.controller.windows.detect_shifts import ShiftDetector, TrafficShift
from regraft.overlay.inventory.members import FleetView
from regraft.schemas.plan import Plan


class ShiftFinder:
    """Checks each complete window once, oldest first; finds nothing if the settings disable it.

    Windows delayed by congestion are skipped, because they show fewer deliveries than there were.
    """

    def __init__(self, settings: ControllerSettings, kind: AnyKind) -> None:
        per_change, by_broker = settings.quiet_windows_per_change, not kind.NEEDS_REGISTER
        self._detector = ShiftDetector(per_change, by_broker=by_broker) if per_change else None
        self._kind = kind
        self._wait_ms_max = settings.decision.queue_wait_ms_max

    @property
    def since_ms(self) -> int | None:
        """When traffic last changed, in ms; None while no change is known."""
        return None if self._detector is None else self._detector.since_ms

    def add(self, window: ClosedWindow, fleet: FleetView, plan_log: PlanLog) -> TrafficShift | None:
        """Add a window; return the change that it shows, or None."""
        if self._detector is None or not window.is_complete or window.is_delayed(self._wait_ms_max):
            return None
        cost = self._cost_per_notification(window, fleet, plan_log.homes_origin)
        return self._detector.add(window, cost, moves_interests=moves_interests_in(window, plan_log.plans, self._kind))

    def _cost_per_notification(
        self, window: ClosedWindow, fleet: FleetView, homes_origin: dict[str, str]
    ) -> float | None:
        """Return the cost per notification on the first overlay, without measured links: these are no change."""
        count = window.sets.notification_count
        if not count or not self._kind.can_be_costed(window):
            return None
        first = at_first(self._kind, homes_origin)
        cost_per_s = cost_over_per_s(self._kind, fleet.with_measured({}), first, window)
        return cost_per_s * (window.end_ms - window.start_ms) / 1000 / count


def moves_interests_in(window: ClosedWindow, plans: Iterable[Plan], kind: AnyKind) -> bool:
    """Return True if plans may have moved subscriptions in a window, not only links and publishers."""
    if kind.NEEDS_REGISTER:  # Users are what plans move.
        return window.epoch is None
    publishers = window.homes.keys() | window.homeless
    return any(
        plan.is_membership or plan.subscribers_moved or any(move.client not in publishers for move in plan.moves)
        for plan in plans
        if window.epoch_min < plan.epoch_to <= window.epoch_max
    )
