"""Render the state of the control loop as the live view. Pure: the same state gives the same view."""

from __future__ import annotations

from collections import Counter
from typing import Any

from regraft.controller.decide.loop_state import PLANS_MAX, LoopState
from regraft.controller.report.show_sections import (
    shown_configuration,
    shown_decision,
    shown_fleet,
    shown_network,
    shown_plan,
    shown_shadow,
    shown_window,
)
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.schemas.live_view import LiveView, ShownSampling
from regraft.schemas.order_book import OrdersInForce
from regraft.schemas.plan import PlanPhase
from regraft.schemas.plan_life import LIFE
from regraft.schemas.shown_state import ShownLimits


def render_view(
    state: LoopState, settings: ControllerSettings, orders: OrdersInForce, errors: dict[str, int], now_ms: int
) -> LiveView:
    """Return the present state as a view. ``errors`` counts what went wrong at the ports, by name."""
    log, newest, decision = state.plan_log, state.newest, state.last_decision
    plans = log.plans
    phases = Counter(plan.phase for plan in plans)
    return LiveView(
        time_ms=now_ms,
        started_ms=state.started_ms,
        planner=settings.planner,
        dry_run=settings.dry_run,
        plan_in_review=log.proposed.plan if log.proposed else "",
        plan_running=next((plan.plan for plan in (log.moving, *reversed(log.verifying)) if plan), ""),
        horizon=state.horizon,
        windows_closed=state.windows_closed,
        windows_incomplete=state.windows_incomplete,
        late_rows=state.late_rows,
        client_changes=state.client_changes,
        plans_completed=phases[PlanPhase.COMPLETED],
        plans_aborted=phases[PlanPhase.ABORTED],
        plans_undone=sum(bool(plan.undoes) for plan in plans),
        window_close_to_command_ms=dict(state.command_latencies_ms),
        window_end_to_state_ms=tuple(state.state_latencies_ms),
        decision_ms=dict(state.decision_times),
        **(_leader(state) | _money(state)),
        sampling=ShownSampling(state.asked.share, state.asked.since_ms, state.asked.reason),
        limits=_limits(settings),
        configuration=shown_configuration(log.present),
        window=None if newest is None else shown_window(newest),
        network=None if newest is None else shown_network(newest, clients_stay=state.fleet.inventory.clients_stay),
        cost=tuple(state.cost_points),
        plans=tuple(shown_plan(plan) for plan in plans[-PLANS_MAX:]),
        orders=orders,
        refusals=dict(state.refusals),
        events=tuple(state.events),
        last_decision=None if decision is None else shown_decision(decision, log.present.HAS_SLOTS),
        errors=errors,
        members=shown_fleet(state, now_ms),
        shadows={shadow.name: shown_shadow(shadow) for shadow in state.shadows},
    )


def _limits(settings: ControllerSettings) -> ShownLimits:
    moving = {str(phase): settings.transition.of(phase) for phase, facts in LIFE.items() if facts.is_moving}
    return ShownLimits(settings.decision.window_age_ms_max, moving)


def _money(state: LoopState) -> dict[str, Any]:
    """Return what traffic costs in money, and which brokers serve no clients."""
    return {"closable": state.closable, "bill_first": state.bill_first, "bill": state.bill}


def _leader(state: LoopState) -> dict[str, Any]:
    """Return the leader."""
    return {
        "leader": state.leader,
        "term": state.term,
        "is_standby": state.is_standby,
        "standby_reason": state.standby_reason,
    }
