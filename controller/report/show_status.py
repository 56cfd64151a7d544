"""What the loop has seen and done as one JSON-ready document: the content of the live view and of the status file.

In: closed windows, plans, decisions. Out: a document. All series are bounded. Everything in it but the refusals can be
rebuilt from Kafka, so a lost view loses nothing.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import msgspec

from controller.control_ports import Document
from controller.decide.decide_plan import Decision
from controller.decide.shadow_planners import ShadowPlanner
from controller.kinds.overlay_kind import AnyKind
from controller.report.status_parts import (
    configuration_summary,
    decision_summary,
    network_summary,
    plan_summary,
    shadow_summary,
    window_summary,
)
from controller.state.closed_window import ClosedWindow
from controller.state.plan_log import PlanLog
from controller.windows.read_windows import Horizon
from overlay.overlay_configuration import OverlayConfiguration
from schemas.event import AdaptationEvent
from schemas.plan import Plan, PlanPhase

COST_POINTS_MAX = 2000
EVENTS_MAX = 200
PLANS_MAX = 200


@dataclass(frozen=True)
class CostPoint:
    """What the overlay cost in one window, per second.

    ``cost_per_s`` is that of the window's overlay with clients where they were, ``cost_bootstrap_per_s`` what the first
    overlay with clients where they were before any plan moved them would have cost on the same window,
    ``cost_counted_per_s`` what the brokers' counters add up to, None on a ring. ``epoch`` is the newest epoch of the
    window; where a transition ran through it, ``is_one_epoch`` is False. ``cost_shadows_per_s`` is what the overlays of
    shadow planners would have cost, by planner, without windows from before this controller.
    """

    window_end_ms: int
    cost_per_s: float
    cost_bootstrap_per_s: float
    cost_counted_per_s: float | None
    epoch: int
    is_one_epoch: bool
    is_complete: bool
    notifications_per_s: float
    cost_shadows_per_s: Mapping[str, float] = field(default_factory=dict)


@dataclass
class DecisionTimes:
    """How long the decisions of one planner took, judge and choice included."""

    count: int = 0
    last_ms: float = 0.0
    mean_ms: float = 0.0
    max_ms: float = 0.0

    def add(self, duration_ms: float) -> None:
        """Take one more."""
        self.count += 1
        self.last_ms = duration_ms
        self.mean_ms += (duration_ms - self.mean_ms) / self.count
        self.max_ms = max(self.max_ms, duration_ms)


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
        point = CostPoint(
            window.end_ms,
            kind.cost_per_s(overlay.with_homes({}), window),
            kind.cost_per_s(kind.inventory.bootstrap.with_homes(homes_origin), window),
            kind.counted_cost_per_s(window),
            window.epoch_max,
            window.epoch is not None,
            window.is_complete,
            window.sets.notification_count * 1000 / (window.end_ms - window.start_ms),
            shadow_costs,
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
        self.decision_times.setdefault(who, DecisionTimes()).add(duration_ms)

    def document(self, log: PlanLog, orders: Document, faults: dict[str, int], now_ms: int) -> Document:
        """Return everything as plain dicts, lists, strings and numbers.

        ``orders`` are those of people that stand. ``faults`` are counters of what went wrong on the borders, by name.
        """
        plans = log.plans
        phases = Counter(plan.phase for plan in plans)
        present = log.present
        newest = self.newest
        return {
            "time_ms": now_ms,
            "started_ms": self.started_ms,
            "planner": self._planner,
            "dry_run": self._is_dry_run,
            "configuration": configuration_summary(present),
            "window": None if newest is None else window_summary(newest),
            "network": None if newest is None else network_summary(newest),
            "orders": orders,
            "plan_in_review": log.proposed.plan if log.proposed else "",
            "horizon": None if self.horizon is None else asdict(self.horizon),
            "windows_closed": self.windows_closed,
            "windows_incomplete": self.windows_incomplete,
            "late_rows": self.late_rows,
            "client_changes": self.client_changes,
            "plans_completed": phases[PlanPhase.COMPLETED],
            "plans_aborted": phases[PlanPhase.ABORTED],
            "plans_undone": sum(bool(plan.undoes) for plan in plans),
            "plan_running": next((plan.plan for plan in (log.moving, log.verifying) if plan), ""),
            "plans": [plan_summary(plan) for plan in plans[-PLANS_MAX:]],
            "window_close_to_command_ms": dict(self.command_latencies_ms),
            "window_end_to_state_ms": list(self.state_latencies_ms),
            "cost": [asdict(point) for point in self.cost_points],
            "refusals": dict(self.refusals),
            "last_decision": None if self.last_decision is None else decision_summary(self.last_decision),
            "shadows": {shadow.name: shadow_summary(shadow) for shadow in self.shadows},
            "decision_ms": {who: asdict(times) for who, times in self.decision_times.items()},
            "events": [msgspec.to_builtins(event) for event in self.events],
            "faults": faults,
        }
