"""What the loop has seen and done as one JSON-ready document: the content of the live view and of the status file.

In: closed windows, plans, decisions. Out: a document. All series are bounded. Everything in it but the refusals can be
rebuilt from Kafka, so a lost view loses nothing.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import msgspec

from controller.closed_window import ClosedWindow
from controller.control_ports import Document
from controller.decide_plan import Decision
from controller.plan_log import PlanLog
from controller.shadow_planners import ShadowPlanner
from controller.verify_gain import counted_cost_per_s
from overlay.configuration import Configuration
from overlay.cost import overlay_cost
from overlay.delivery_sets import DeliverySets
from overlay.inventory import Inventory
from schemas.event import AdaptationEvent
from schemas.plan import Plan, PlanPhase

COST_POINTS_MAX = 2000
EVENTS_MAX = 200
PLANS_MAX = 200
REFUSALS_SHOWN_MAX = 20


@dataclass(frozen=True)
class CostPoint:
    """What the overlay cost in one window, per second.

    ``cost_per_s`` is that of the overlay in force by the delivery sets, ``cost_bootstrap_per_s`` what the first tree
    with the publishers at their first homes would have cost on the same window, ``cost_counted_per_s`` what the
    brokers' counters add up to. ``epoch`` is the newest epoch of the window; where a transition ran through it,
    ``is_one_epoch`` is False. ``cost_shadows_per_s`` is what the overlays of shadow planners would have cost, by
    planner, without windows from before this controller.
    """

    window_end_ms: int
    cost_per_s: float
    cost_bootstrap_per_s: float
    cost_counted_per_s: float | None
    epoch: int
    is_one_epoch: bool
    is_complete: bool
    cost_shadows_per_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Horizon:
    """How far the last decision looked back.

    ``windows_wanted`` follows from the settings and ``lifetime_s``, the mean lifetime of a subscription (None when too
    little is known); ``windows`` of them were there. ``is_measured`` is False where the settings give the lifetime.
    """

    windows: int
    windows_wanted: int
    lifetime_s: float | None
    is_measured: bool


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

    def __init__(self, inventory: Inventory, planner: str, is_dry_run: bool) -> None:
        self._inventory = inventory
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
        in_force: Configuration,
        at_first_homes: DeliverySets,
        shadow_costs: Mapping[str, float],
        now_ms: int,
    ) -> CostPoint:
        """Count a window and return its point of the cost series.

        ``at_first_homes``: the window's delivery sets, had no plan ever moved a publisher.
        """
        self.state_latencies_ms.append(now_ms - window.end_ms)
        self.newest = window
        self.windows_closed += 1
        self.windows_incomplete += not window.is_complete
        self.late_rows += window.late_rows
        self.client_changes += window.client_changes
        point = CostPoint(
            window.end_ms,
            overlay_cost(in_force, self._inventory, window.sets).total_per_s,
            overlay_cost(self._inventory.bootstrap_tree, self._inventory, at_first_homes).total_per_s,
            counted_cost_per_s(window, self._inventory),
            window.epoch_max,
            window.epoch is not None,
            window.is_complete,
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

    def document(self, log: PlanLog, faults: dict[str, int], now_ms: int) -> Document:
        """Return everything as plain dicts, lists, strings and numbers.

        ``faults`` are counters of what went wrong on the borders, by name.
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
            "configuration": {
                "epoch": present.epoch,
                "brokers": list(present.brokers),
                "links": [list(pair) for pair in present.links],
                "degree_max": present.degree_max,
            },
            "window": None if newest is None else _window_summary(newest),
            "horizon": None if self.horizon is None else asdict(self.horizon),
            "windows_closed": self.windows_closed,
            "windows_incomplete": self.windows_incomplete,
            "late_rows": self.late_rows,
            "client_changes": self.client_changes,
            "plans_completed": phases[PlanPhase.COMPLETED],
            "plans_aborted": phases[PlanPhase.ABORTED],
            "plans_undone": sum(bool(plan.undoes) for plan in plans),
            "plan_running": next((plan.plan for plan in (log.moving, log.verifying) if plan), ""),
            "plans": [_plan_summary(plan) for plan in plans[-PLANS_MAX:]],
            "window_close_to_command_ms": dict(self.command_latencies_ms),
            "window_end_to_state_ms": list(self.state_latencies_ms),
            "cost": [asdict(point) for point in self.cost_points],
            "refusals": dict(self.refusals),
            "last_decision": None if self.last_decision is None else _decision_summary(self.last_decision),
            "shadows": {shadow.name: _shadow_summary(shadow) for shadow in self.shadows},
            "decision_ms": {who: asdict(times) for who, times in self.decision_times.items()},
            "events": [msgspec.to_builtins(event) for event in self.events],
            "faults": faults,
        }


def _window_summary(window: ClosedWindow) -> Document:
    return {
        "start_ms": window.start_ms,
        "end_ms": window.end_ms,
        "notifications": window.sets.notification_count,
        "epoch_min": window.epoch_min,
        "epoch_max": window.epoch_max,
        "is_complete": window.is_complete,
        "fault": window.fault,
        "short_brokers": list(window.short_brokers),
        "client_changes": window.client_changes,
        "late_rows": window.late_rows,
        "queue_length_max": max((queue.queue_length_max for queue in window.queues), default=0),
        "rtt_ms_max": max((rtt.rtt_ms_min for rtt in window.rtts), default=None),
    }


def _plan_summary(plan: Plan) -> Document:
    summary: Document = msgspec.to_builtins(plan)
    # The target of each plan follows from the bootstrap and the changes; 400 links a plan would crowd the view.
    del summary["links_target"]
    return summary


def _shadow_summary(shadow: ShadowPlanner) -> Document:
    return {
        "plans": shadow.plans_made,
        "plans_taken_back": shadow.plans_taken_back,
        "links_exchanged": shadow.links_exchanged,
        "publishers_moved": shadow.publishers_moved,
        "homes": shadow.homes_moved,
        "links": [list(pair) for pair in shadow.tree.links],
        "refusals": dict(shadow.refusals),
        "faults": shadow.faults,
        "fault_text": shadow.fault_text,
        "last_plans": [
            {
                "window_end_ms": plan.window_end_ms,
                "links_removed": [list(pair) for pair in plan.links_removed],
                "links_added": [list(pair) for pair in plan.links_added],
                "moves": msgspec.to_builtins(plan.moves),
                "cost_before_per_s": plan.cost_before_per_s,
                "cost_predicted_per_s": plan.cost_predicted_per_s,
                "cost_observed_per_s": plan.cost_observed_per_s,
            }
            for plan in shadow.plans
        ],
    }


def _decision_summary(decision: Decision) -> Document:
    refused: Sequence[object] = decision.refused[:REFUSALS_SHOWN_MAX]
    return {
        "window_end_ms": decision.window_end_ms,
        "plan": None if decision.plan is None else _plan_summary(decision.plan),
        "state_verdict": decision.state_verdict,
        "state_reason": decision.state_reason,
        "refused": [msgspec.to_builtins(proposal) for proposal in refused],
    }
