"""Live views with as little content as possible, for tests to change."""

from typing import Any

from msgspec.structs import replace

from regraft.schemas.live_view import (
    CostPoint,
    LiveView,
    ShownConfiguration,
    ShownPhase,
    ShownPlan,
    ShownProposal,
    ShownShadow,
    ShownWindow,
)
from regraft.schemas.order_book import OrdersInForce
from regraft.schemas.plan import Verdict

NOTHING_CHANGES: dict[str, Any] = {
    "links_removed": (),
    "links_added": (),
    "moves": (),
    "move_count": 0,
    "id_moves": (),
    "id_move_count": 0,
}


def view_of(**changes: Any) -> LiveView:
    """Return the view of a loop that has done nothing yet, with changes."""
    view = LiveView(
        time_ms=0,
        started_ms=0,
        planner="swap_links_ci",
        dry_run=False,
        plan_in_review="",
        plan_running="",
        horizon=None,
        windows_closed=0,
        windows_incomplete=0,
        late_rows=0,
        client_changes=0,
        plans_completed=0,
        plans_aborted=0,
        plans_undone=0,
        window_close_to_command_ms={},
        window_end_to_state_ms=(),
        decision_ms={},
        configuration=ShownConfiguration(epoch=0, brokers=("b00", "b01"), links=(("b00", "b01"),), degree_max=1),
        window=None,
        network=None,
        cost=(),
        plans=(),
        orders=OrdersInForce(),
        refusals={},
        events=(),
        last_decision=None,
        errors={},
        shadows={},
    )
    return replace(view, **changes)


def shown_window(end_ms: int, **changes: Any) -> ShownWindow:
    """Return a complete window of 5 s, with changes."""
    window = ShownWindow(
        start_ms=end_ms - 5_000,
        end_ms=end_ms,
        notifications=900,
        epoch_min=0,
        epoch_max=0,
        is_complete=True,
        error="",
        short_brokers=(),
        client_changes=0,
        late_rows=0,
        queue_length_max=2,
        rtt_ms_max=None,
        users=None,
        users_strayed=0,
    )
    return replace(window, **changes)


def cost_point(end_ms: int, cost_per_s: float, bootstrap_per_s: float, **changes: Any) -> CostPoint:
    """Return the costs of a complete window, with changes."""
    point = CostPoint(
        window_end_ms=end_ms,
        cost_per_s=cost_per_s,
        cost_bootstrap_per_s=bootstrap_per_s,
        cost_counted_per_s=None,
        epoch=0,
        is_one_epoch=True,
        is_complete=True,
    )
    return replace(point, **changes)


def shown_plan(plan: str, phase: str, since_ms: int, **changes: Any) -> ShownPlan:
    """Return a plan that entered its phase at the given time and contains no proposals, with changes."""
    shown = ShownPlan(
        **NOTHING_CHANGES,
        plan=plan,
        epoch_from=0,
        epoch_to=1,
        window_end_ms=0,
        proposals=(),
        cost_before_per_s=900.0,
        cost_predicted_per_s=600.0,
        phase=phase,
        history=(ShownPhase(phase, since_ms, ""),),
        undoes="",
        cost_observed_per_s=None,
        control_messages=0,
        refused=(),
    )
    return replace(shown, **changes)


def shown_proposal(reason: str) -> ShownProposal:
    """Return an accepted proposal that changes nothing."""
    return ShownProposal(
        **NOTHING_CHANGES,
        planner="swap_links_ci",
        cost_before_per_s=900.0,
        cost_after_per_s=600.0,
        price_per_s=1.0,
        reason=reason,
        verdict=Verdict.ACCEPTED,
        verdict_reason="",
        gain_observed_per_s=None,
    )


def shown_shadow(**changes: Any) -> ShownShadow:
    """Return a shadow planner that has decided nothing yet, with changes."""
    shadow = ShownShadow(
        plans=0,
        plans_taken_back=0,
        links_exchanged=0,
        publishers_moved=0,
        users_moved=0,
        id_moves=0,
        homes={},
        links=(),
        ring=(),
        refusals={},
        errors=0,
        error_text="",
        last_plans=(),
    )
    return replace(shadow, **changes)
