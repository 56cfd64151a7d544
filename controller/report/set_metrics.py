"""Set the gauges of the control loop to its state.

Counters are kept by the code that counts.
"""

from __future__ import annotations

from collections.abc import Mapping

from regraft.controller.decide.loop_state import LoopState
from regraft.controller.report.loop_metrics import LoopMetrics
from regraft.schemas.member import MemberState
from regraft.schemas.plan import PlanPhase
from regraft.schemas.shown_state import CostPoint


def set_costs(metrics: LoopMetrics, point: CostPoint) -> None:
    """Set the gauges of what a window cost, on the overlay of its time and on others."""
    costs_per_s = {"present": point.cost_per_s, "bootstrap": point.cost_bootstrap_per_s}
    costs_per_s |= {f"shadow:{name}": cost_per_s for name, cost_per_s in point.cost_shadows_per_s.items()}
    if point.cost_least_per_s is not None:
        costs_per_s["least"] = point.cost_least_per_s
    for overlay, cost_per_s in costs_per_s.items():
        metrics.cost_per_s.labels(overlay).set(cost_per_s)


def set_metrics(
    metrics: LoopMetrics, state: LoopState, queue_lengths: Mapping[str, int], errors: Mapping[str, int], now_ms: int
) -> None:
    """Set the gauges of plans, changes, queues of the plan runner, port errors, window age and brokers' clocks."""
    plan_log = state.plan_log
    metrics.epoch.set(plan_log.present.epoch)
    for phase in PlanPhase:
        metrics.plans.labels(phase).set(sum(plan.phase is phase for plan in plan_log.plans))
    executed = plan_log.in_force
    metrics.changes.labels("links").set(sum(len(plan.links_added) for plan in executed))
    metrics.changes.labels(plan_log.present.CLIENTS).set(sum(len(plan.moves) for plan in executed))
    metrics.changes.labels("ring_ids").set(sum(len(plan.id_moves) for plan in executed))
    for queue, length in queue_lengths.items():
        metrics.queue_length.labels(queue).set(length)
    for what, count in errors.items():
        metrics.errors.labels(what).set(count)
    for standing in MemberState:
        metrics.members.labels(standing).set(len(state.fleet.in_state(standing)))
    metrics.announced_brokers.set(len(state.announced))
    metrics.lost_brokers.set(sum(not state.fleet.members[one].state.is_serving for one in plan_log.present.brokers))
    if state.newest is not None:
        metrics.window_age_ms.set(now_ms - state.newest.end_ms)
        for broker, offset_ms in state.newest.clock_offsets_ms.items():
            metrics.clock_offset_ms.labels(broker).set(offset_ms)
