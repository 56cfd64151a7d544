"""LoopState: what the control loop knows between two steps: plans, the newest window, counts and series.

Steps change it in place; nothing here decides, sends or renders. All series are bounded. Everything in it except the
refusals can be rebuilt from Kafka.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Self

from regraft.controller.decide.decide_plan import Decision
from regraft.controller.decide.judge_proposals import Situation
from regraft.controller.decide.shadow_planners import ShadowPlanner
from regraft.controller.settings.controller_settings import TERM_FIRST
from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.state.plan_log import PlanLog
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.inventory.members import FleetView
from regraft.schemas.event import AdaptationEvent
from regraft.schemas.live_view import Horizon, ShownBill
from regraft.schemas.plan import Plan
from regraft.schemas.sample_request import SampleRequest
from regraft.schemas.shown_state import CostPoint, DecisionTimes, ShownAnnounced

COST_POINTS_MAX = 2000
EVENTS_MAX = 200
PLANS_MAX = 200
NOTHING_ASKED = SampleRequest(0, 0, "")


@dataclass
class LoopState:
    """The state of one control loop; counts and series are since its start, including the windows of the look-back.

    ``term`` is that of the leader, which ``leader`` names: this controller, unless it ``is_standby``.
    ``standby_reason`` is why it must not lead, empty if it may.

    ``plan_log`` is empty, and nothing may be done, until ``has_plans``: the stored plans have been read. ``fleet`` is
    all known brokers with their states. ``has_begun`` is whether a plan has begun in this step of the loop, ``taken``
    are the windows that were assembled in it. ``shadows`` are the shadow planners; ``for_shadows`` is the situation on
    which they have yet to decide. ``decided_until_ms`` is the end of the newest window on which the acting planner has
    decided. ``changed_since_ms`` is when traffic last changed, None while no change is known. ``is_changed`` is whether
    anything is new since the state was shown at ``shown_ms``. ``closable`` are the brokers without clients.
    ``bill_first`` and ``bill`` are the cost in money in the last complete window of the initial overlay, and in the
    newest one; None if it is not charged. ``announced`` are the brokers that ask to join, by name. ``passed_per_s`` is
    how many notifications per second passed each broker when it last reported. ``asked`` is the share that brokers are
    asked to report. ``decision_times`` are by role and planner. ``errors`` counts records and windows whose handling
    failed, by kind. ``behind_ms`` is how far the clock is behind, by the windows that have closed.
    """

    plan_log: PlanLog
    fleet: FleetView
    term: int = TERM_FIRST
    leader: str = ""
    is_standby: bool = False
    standby_reason: str = ""
    has_plans: bool = False
    started_ms: int = 0
    is_winding_down: bool = False
    has_begun: bool = False
    shadows: tuple[ShadowPlanner, ...] = ()
    for_shadows: Situation | None = None
    newest: ClosedWindow | None = None
    horizon: Horizon | None = None
    decided_until_ms: int = -1
    changed_since_ms: int | None = None
    last_decision: Decision | None = None
    is_changed: bool = False
    shown_ms: int = -1
    behind_ms: int = 0
    taken: tuple[ClosedWindow, ...] = ()
    windows_closed: int = 0
    windows_incomplete: int = 0
    late_rows: int = 0
    client_changes: int = 0
    announced: tuple[ShownAnnounced, ...] = ()
    closable: tuple[str, ...] = ()
    bill_first: ShownBill | None = None
    bill: ShownBill | None = None
    asked: SampleRequest = NOTHING_ASKED
    passed_per_s: dict[str, float] = field(default_factory=dict)
    refusals: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    command_latencies_ms: dict[str, int] = field(default_factory=dict)
    decision_times: dict[str, DecisionTimes] = field(default_factory=dict)
    cost_points: deque[CostPoint] = field(default_factory=lambda: deque(maxlen=COST_POINTS_MAX))
    state_latencies_ms: deque[int] = field(default_factory=lambda: deque(maxlen=COST_POINTS_MAX))
    events: deque[AdaptationEvent] = field(default_factory=lambda: deque(maxlen=EVENTS_MAX))

    @classmethod
    def at_start(cls, inventory: Inventory, term: int = TERM_FIRST) -> Self:
        """Return the state before any plan or member has been read."""
        return cls(PlanLog(inventory), FleetView(inventory), term)

    def add_window(self, window: ClosedWindow, point: CostPoint | None, now_ms: int) -> None:
        """Count a window that has been assembled; ``point`` is its cost, None if unknown."""
        self.newest = window
        self.passed_per_s |= {one.broker: one.notifications_out_per_s for one in window.queues if not one.peer}
        self.state_latencies_ms.append(now_ms - window.end_ms)
        self.windows_closed += 1
        self.windows_incomplete += not window.is_complete
        self.late_rows += window.late_rows
        self.client_changes += window.client_changes
        if point is not None:
            self.cost_points.append(point)
        self.is_changed = True

    def add_decision(self, decision: Decision) -> None:
        """Count what a decision refused."""
        self.last_decision = decision
        if decision.state_verdict is not None:
            self.refusals[decision.state_verdict] += 1
        self.refusals.update(str(proposal.verdict) for proposal in decision.refused)

    def add_decision_time(self, who: str, duration_ms: float) -> None:
        """Record how long a decision took; ``who`` is role and planner, such as ``shadow:swap_links_ci``."""
        self.decision_times[who] = self.decision_times.get(who, DecisionTimes()).with_decision(duration_ms)

    def add_first_command(self, plan: Plan, now_ms: int) -> None:
        """Record when the first command of a plan was sent; later calls for the same plan change nothing."""
        self.command_latencies_ms.setdefault(plan.plan, now_ms - plan.window_end_ms)
        while len(self.command_latencies_ms) > PLANS_MAX:
            del self.command_latencies_ms[next(iter(self.command_latencies_ms))]

    def add_event(self, event: AdaptationEvent) -> None:
        """Keep an event that was emitted."""
        self.events.append(event)
        self.is_changed = True
