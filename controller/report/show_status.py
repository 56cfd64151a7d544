"""What the loop has seen and done as one record: the content of the live view and of the status file.

In: closed windows, plans, decisions. Out: a LiveView. All series are bounded. Everything in it but the refusals can be
rebuilt from Kafka, so a lost view loses nothing.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping

from controller.decide.decide_plan import Decision
from controller.decide.shadow_planners import ShadowPlanner
from controller.kinds.overlay_kind import AnyKind
from controller.report.show_parts import (
    shown_configuration,
    shown_decision,
    shown_network,
    shown_plan,
    shown_shadow,
    shown_window,
)
from controller.state.closed_window import ClosedWindow
from controller.state.plan_log import PlanLog
from overlay.overlay_configuration import OverlayConfiguration
from schemas.event import AdaptationEvent
from schemas.live_view import CostPoint, DecisionTimes, Horizon, LiveView
from schemas.order_book import StandingOrders
from schemas.plan import Plan, PlanPhase

COST_POINTS_MAX = 2000
EVENTS_MAX = 200
PLANS_MAX = 200


class LoopStatus:
    """Counts and series of one control loop since its start (windows of the look-back included).

    ``shadows`` are the planners that look on, ``decision_times`` is by role and planner.
    """

    def __init__(self, kind: AnyKind, planner: str, is_dry_run: bool) -> None:
        self._kind = kind
        self._planner = planner
        self._is_dry_run = is_dry_run
        self.started_ms = 0
        self.shadows: tuple[ShadowPlanner, ...] = ()
        self.horizon: Horizon | None = None
        self.decision_times: dict[str, DecisionTimes] = {}
        self.windows_closed = 0
        self.windows_incomplete = 0
        self.late_rows = 0
        self.client_changes = 0
        self.refusals: Counter[str] = Counter()
        self.command_latencies_ms: dict[str, int] = {}
        self.cost_points: deque[CostPoint] = deque(maxlen=COST_POINTS_MAX)
        self.state_latencies_ms: deque[int] = deque(maxlen=COST_POINTS_MAX)
        self.events: deque[AdaptationEvent] = deque(maxlen=EVENTS_MAX)
        self.newest: ClosedWindow | None = None
        self.last_decision: Decision | None = None

    def add_window(
        self,
        window: ClosedWindow,
        overlay: OverlayConfiguration,
        homes_origin: Mapping[str, str],
        shadow_costs: Mapping[str, float],
        now_ms: int,
    ) -> CostPoint | None:
        """Count a window and return its point of the cost series; None where the window of a ring knows no interests.

        ``overlay`` is that of the window's newest epoch. ``homes_origin``: where clients would be, had no plan ever
        moved them.
        """
        self.state_latencies_ms.append(now_ms - window.end_ms)
        self.newest = window
        self.windows_closed += 1
        self.windows_incomplete += not window.is_complete
        self.late_rows += window.late_rows
        self.client_changes += window.client_changes
        if not self._kind.can_be_costed(window):
            return None
        kind = self._kind
        counted_per_s = kind.counted_cost_per_s(window)
        point = CostPoint(
            window_end_ms=window.end_ms,
            cost_per_s=float(kind.cost_per_s(overlay.with_homes({}), window)),
            cost_bootstrap_per_s=float(kind.cost_per_s(kind.inventory.bootstrap.with_homes(homes_origin), window)),
            cost_counted_per_s=None if counted_per_s is None else float(counted_per_s),
            epoch=window.epoch_max,
            is_one_epoch=window.epoch is not None,
            is_complete=window.is_complete,
            notifications_per_s=window.sets.notification_count * 1000 / (window.end_ms - window.start_ms),
            cost_shadows_per_s={name: float(cost_per_s) for name, cost_per_s in shadow_costs.items()},
        )
        self.cost_points.append(point)
        return point

    def add_decision(self, decision: Decision) -> None:
        """Count what a decision refused."""
        self.last_decision = decision
        if decision.state_verdict is not None:
            self.refusals[decision.state_verdict] += 1
        self.refusals.update(str(proposal.verdict) for proposal in decision.refused)

    def add_first_command(self, plan: Plan, now_ms: int) -> None:
        """Note when the first command of a plan went out; later calls for the same plan change nothing."""
        self.command_latencies_ms.setdefault(plan.plan, now_ms - plan.window_end_ms)
        while len(self.command_latencies_ms) > PLANS_MAX:
            del self.command_latencies_ms[next(iter(self.command_latencies_ms))]

    def add_decision_time(self, who: str, duration_ms: float) -> None:
        """Note how long a decision took; ``who`` is role and planner, ``shadow:swap_links_ci``."""
        self.decision_times[who] = self.decision_times.get(who, DecisionTimes()).and_one(duration_ms)

    def view(self, log: PlanLog, orders: StandingOrders, faults: dict[str, int], now_ms: int) -> LiveView:
        """Return everything as it is now. ``faults`` are counters of what went wrong on the borders, by name."""
        plans, newest, decision = log.plans, self.newest, self.last_decision
        phases = Counter(plan.phase for plan in plans)
        return LiveView(
            time_ms=now_ms,
            started_ms=self.started_ms,
            planner=self._planner,
            dry_run=self._is_dry_run,
            plan_in_review=log.proposed.plan if log.proposed else "",
            plan_running=next((plan.plan for plan in (log.moving, log.verifying) if plan), ""),
            horizon=self.horizon,
            windows_closed=self.windows_closed,
            windows_incomplete=self.windows_incomplete,
            late_rows=self.late_rows,
            client_changes=self.client_changes,
            plans_completed=phases[PlanPhase.COMPLETED],
            plans_aborted=phases[PlanPhase.ABORTED],
            plans_undone=sum(bool(plan.undoes) for plan in plans),
            window_close_to_command_ms=dict(self.command_latencies_ms),
            window_end_to_state_ms=tuple(self.state_latencies_ms),
            decision_ms=dict(self.decision_times),
            configuration=shown_configuration(log.present),
            window=None if newest is None else shown_window(newest),
            network=None if newest is None else shown_network(newest),
            cost=tuple(self.cost_points),
            plans=tuple(shown_plan(plan) for plan in plans[-PLANS_MAX:]),
            orders=orders,
            refusals=dict(self.refusals),
            events=tuple(self.events),
            last_decision=None if decision is None else shown_decision(decision),
            faults=faults,
            shadows={shadow.name: shown_shadow(shadow) for shadow in self.shadows},
        )
