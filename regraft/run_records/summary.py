"""Turn the record of a run into the flat figures of ``summary.json``, and return why a run failed.

In: a RunRecord. Out: plain values. Reading files and drawing do not belong here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.run_records.judge_plans import began_after, has_saved, is_to_save, serves_members
from regraft.run_records.run_record import BURST_NAMES, RunRecord, ShadowRun
from regraft.schemas.agent_names import is_client
from regraft.schemas.plan import Plan, PlanPhase, moves_of_clients
from regraft.schemas.plan_life import LIFE

ERRORS = {
    "lost": "lost",
    "repeated": "repeated",
    "out_of_order": "out of order",
    "unexpected": "to subscriptions that should not have received them",
}

# A plan completes once the windows after it have been checked; with the demo's windows of 5 s that took 30 s.
SHIFT_ANSWER_S_MIN = 35
BEHIND_S_MAX = 10.0  # Of the emulator's clock; with more, windows come late and plans later.
WITHHELD_SHARE_MAX = 0.5  # Of the notifications that were due; with more, a run shows nothing about this traffic.


def summarise(record: RunRecord) -> dict[str, Any]:
    """Return the figures of a run. A figure that could not be measured is None, never 0."""
    comparison = record.comparison
    completed = [plan for plan in record.plans if plan.phase is PlanPhase.COMPLETED]
    return {
        "notifications_published": record.ledger.published,
        "deliveries_expected": record.ledger.expected,
        "deliveries": record.ledger.delivered,
        **_ledger_errors(record),
        "windows_closed": len(record.windows),
        "windows_incomplete": record.windows_incomplete,
        **_plan_figures(record, completed),
        **MOVED_FIGURES[record.inventory.bootstrap.KIND](record, completed),
        **_shift_figures(record, completed),
        **_outage_figures(record),
        "cost_initial": _rounded(comparison.before.total_per_s if comparison else None),
        "cost_final": _rounded(comparison.after.total_per_s if comparison else None),
        "cost_reduction_share": _rounded(comparison.cost_reduction_share if comparison else None, 4),
        "cost_least": _rounded(comparison.least_per_s if comparison else None),
        "links_corrected": record.links_corrected,
        "planner": record.planner,
        "shadows": {shadow.planner: _shadow_figures(shadow) for shadow in record.shadows},
        "horizon_windows": record.horizon.windows if record.horizon else None,
        "subscription_lifetime_s": _rounded(record.horizon.lifetime_s if record.horizon else None),
        "cost_compared_windows": comparison.window_count if comparison else 0,
        "cost_first_window": _rounded(record.first_window_cost_per_s),
        "window_close_to_command_ms_p50": _rounded(percentile(record.latencies_ms, 50)),
        "window_close_to_command_ms_p95": _rounded(percentile(record.latencies_ms, 95)),
        "emulator_behind_ms_max": record.emulator_behind_ms_max,
        **_telemetry_figures(record),
        "seed": record.seed,
        "restarts": {service.name: service.restarts for service in record.services},
        "given_up": list(record.given_up),
        "memory_bytes_max": {
            "total": record.memory_total_bytes_max,
            **{service.name: service.memory_bytes_max for service in record.services},
        },
        "duration_s": round((record.ended_ms - record.started_ms) / 1000, 1),
    }


def failures(summary: dict[str, Any]) -> list[str]:
    """Return why a run failed, one sentence each; empty on success.

    A run that was too short to show something fails as well; the sentence says so.
    """
    errors = {
        **summary,
        "lost": summary["lost"] - summary["lost_to_deaths"],
        "out_of_order": summary["out_of_order"] - summary["out_of_order_on_detours"],  # See docs/scot.md.
    }
    texts = list(summary["given_up"])
    texts += [f"{errors[name]} deliveries {what}: there must be none" for name, what in ERRORS.items() if errors[name]]
    if not summary["ledger_final"]:
        texts.append("the emulator wrote no final ledger: what was still in transit is not counted")
    if not summary["notifications_published"]:
        texts.append("no notification was published: see the log of the emulator")
    elif not summary["deliveries_expected"]:
        texts.append("no delivery was due, so the absence of losses proves nothing: see the log of the emulator")
    if not summary["windows_closed"]:
        texts.append("no window closed: see the log of the streaming job")
    if not summary["plans_completed"]:
        texts.append("no plan was completed, but at least 1 is needed: see the refusals in the report")
    elif summary["plans_completed"] == summary["plans_of_members"] + summary["plans_undoing"]:
        texts.append(f"no plan that was to save was completed, only {_others(summary)}: see the refusals in the report")
    texts += _withheld_failures(summary) + _overlay_failures(summary)
    texts += _shift_failures(summary) + _bill_failures(summary)
    behind_s = summary["emulator_behind_ms_max"] / 1_000
    if texts and behind_s > BEHIND_S_MAX:  # What follows may have no other cause.
        texts.insert(0, f"this machine was too slow: the emulator fell {behind_s:,.0f} s behind; stop other work on it")
    return texts


def _others(summary: dict[str, Any]) -> str:
    counts = {"repairs or changes of members": summary["plans_of_members"], "rollbacks": summary["plans_undoing"]}
    return " and ".join(f"{count} {what}" for what, count in counts.items() if count)


def _withheld_failures(summary: dict[str, Any]) -> list[str]:
    """Return an error if most of the traffic never took place."""
    withheld = summary["notifications_withheld"]
    due = withheld + summary["notifications_published"]
    if withheld <= WITHHELD_SHARE_MAX * due:
        return []
    return [
        f"{withheld:,} of {due:,} notifications that were due ({withheld / due:.0%}) were not sent because the machine "
        "was too busy: this run proves nothing; stop other work on the machine, or run it with fewer brokers "
        "(--brokers)"
    ]


def _bill_failures(summary: dict[str, Any]) -> list[str]:
    """Return an error if traffic is charged and does not cost less in the end."""
    if not summary.get("is_charged"):
        return []
    before, after = summary["bill_before_per_million"], summary["bill_after_per_million"]
    if before is None or after is None:
        return [
            "the bill before and after was not compared: no complete window lies before the first plan, or none after"
        ]
    if after >= before:
        return [f"a million deliveries cost {after:g} at the end, {before:g} initially: see the plans"]
    return []


def _bill_figures(record: RunRecord, completed: Sequence[Plan]) -> dict[str, Any]:
    """Return the bill for 30 days and for a million deliveries, before any plan and at the end."""
    if record.inventory.prices is None:
        return {}
    before, after = record.bills or (None, None)
    bills = {"before": before, "after": after}
    return {
        "is_charged": True,
        "bill_currency": record.inventory.prices.currency,
        **{f"bill_{when}_per_month": _rounded(bill.per_month if bill else None) for when, bill in bills.items()},
        **{f"bill_{when}_links": _rounded(bill.links_per_month if bill else None) for when, bill in bills.items()},
        **{f"bill_{when}_access": _rounded(bill.access_per_month if bill else None) for when, bill in bills.items()},
        **{f"bill_{when}_per_million": _rounded(bill.per_million if bill else None, 5) for when, bill in bills.items()},
        "brokers_emptied": len({move.home_from for plan in completed for move in plan.subscribers_moved}),
    }


def _overlay_failures(summary: dict[str, Any]) -> list[str]:
    before, after = summary["cost_initial"], summary["cost_final"]
    if before is None or after is None:
        return ["the final overlay was not compared with the initial one: no complete window lies within the traffic"]
    if after > before:
        return [
            f"the final overlay costs {after:g} per second, the first {before:g} on the same traffic: see the plans"
        ]
    if after == before and summary["regime_change_expected"]:
        return [f"nothing was saved: the final overlay costs as much as the first, {before:g} per second"]
    return []


def _shift_failures(summary: dict[str, Any]) -> list[str]:
    """Return errors if no plan has saved anything after an expected shift of the interests."""
    after_s = summary["traffic_after_regime_change_s"]
    if not summary["regime_change_expected"] or summary["plans_saved_after_regime_change"]:
        return []
    if after_s is None:
        return ["the interests never shifted, although they should have: see the log of the emulator"]
    if summary["plans_completed_after_regime_change"]:
        return [
            "no plan that began after the shift of the interests is known to have saved anything: see the gain of each "
            "in the report"
        ]
    what = "no plan that was to save and began after the shift of the interests was completed"
    if after_s < SHIFT_ANSWER_S_MIN:
        return [
            f"{what}, and {after_s:g} s of traffic after it "
            f"are too few to show one: run it long enough to leave {SHIFT_ANSWER_S_MIN} s (--duration)"
        ]
    return [
        f"{what}: see the plans and the refusals in the "
        "report; one that was still in progress, as on a busy machine, needs a longer run (--duration)"
    ]


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Return the nearest-rank percentile, None if there are no values."""
    if not values:
        return None
    return sorted(values)[max(math.ceil(len(values) * percent / 100) - 1, 0)]


def _shadow_figures(shadow: ShadowRun) -> dict[str, Any]:
    return {
        "cost_start": _rounded(shadow.start_cost_per_s),
        "cost_final": _rounded(shadow.final_cost_per_s),
        "cost_reduction_share": _rounded(shadow.saved_share, 4),
        "epoch_start": shadow.epoch_start,
        "starts": shadow.starts,
        "plans": shadow.plans,
        "plans_taken_back": shadow.plans_rolled_back,
        "links_exchanged": shadow.links_exchanged,
        "publishers_moved": shadow.publishers_moved,
        "users_moved": shadow.users_moved,
        "id_moves": shadow.id_moves,
        "errors": shadow.errors,
    }


def _telemetry_figures(record: RunRecord) -> dict[str, Any]:
    """Return how much telemetry there was, and the smallest sampled share of notifications in a window."""
    share = min((window.sample_share for window in record.windows), default=None)
    counts = {"telemetry_records": record.telemetry_records, "notifications_withheld": record.withheld_count}
    return {**counts, "telemetry_share": share}


def _plan_figures(record: RunRecord, completed: Sequence[Plan]) -> dict[str, Any]:
    """Return counts of plans; those that were to save apart from repairs, changes of members and rollbacks."""
    of_members = [plan for plan in completed if serves_members(plan)]
    return {
        "plans_executed": sum(LIFE[plan.phase].is_in_force for plan in record.plans),
        "plans_completed": len(completed),
        "plans_aborted": sum(plan.phase is PlanPhase.ABORTED for plan in record.plans),
        "plans_to_save": sum(map(is_to_save, completed)),
        "plans_saved": sum(map(has_saved, completed)),
        "plans_of_members": len(of_members),
        "plans_undoing": sum(bool(plan.undoes) for plan in completed),
        "links_exchanged": sum(len(plan.links_added) for plan in completed if not serves_members(plan)),
        "links_repaired": sum(len(plan.links_added) for plan in of_members),
    }


def _publisher_figures(record: RunRecord, completed: Sequence[Plan]) -> dict[str, Any]:
    moves = [move for plan in completed for move in moves_of_clients(plan.moves)]
    clients_moved = sum(is_client(move.client) for move in moves)  # Beside agents.
    counts = {"publishers_moved": len(moves) - clients_moved, "clients_moved": clients_moved}
    return {**counts, **record.mobile, **_bill_figures(record, completed)}


def _ledger_errors(record: RunRecord) -> dict[str, Any]:
    ledger = record.ledger
    return {
        "lost": ledger.lost,
        "lost_to_deaths": ledger.excused,
        "repeated": ledger.repeated,
        "out_of_order": ledger.out_of_order,
        "out_of_order_on_detours": ledger.out_of_order_on_detours,
        "unexpected": ledger.unexpected,
        "lost_by_reason": dict(ledger.lost_by_reason),
        "ledger_final": ledger.final,
    }


def _outage_figures(record: RunRecord) -> dict[str, Any]:
    """Return counts of outages, deaths and alerts, and how long repairs took."""
    timeline = record.outages
    return {
        "outages": dict(timeline.by_kind),
        "broker_deaths": timeline.deaths,
        "alerts_raised": dict(timeline.alerts_raised),
        "alerts_cleared": dict(timeline.alerts_cleared),
        "repairs": len(timeline.repairs_ms),
        "death_to_whole_ms_p50": percentile(timeline.repairs_ms, 50),
        "death_to_whole_ms_p95": percentile(timeline.repairs_ms, 95),
        "traffic_at_risk_per_s_max": _rounded(timeline.traffic_at_risk_per_s_max),
    }


def _user_figures(record: RunRecord, completed: Sequence[Plan]) -> dict[str, Any]:
    """Return how many users and IDs moved, and what moving users saved."""
    users = record.users
    return {
        "users_moved": sum(len(plan.moves) for plan in completed),
        "id_moves": sum(len(plan.id_moves) for plan in completed),
        "subscription_changes_cut": _rounded(users.subscription_changes_cut if users else None, 4),
        "broker_subscription_changes": users.subscription_changes if users else None,
        "user_wait_ms_max": users.wait_ms_max if users else None,
    }


BURST_FIGURES = ("clusters_diverted", "congested_link_windows", *BURST_NAMES.values())


def _burst_figures(record: RunRecord, completed: Sequence[Plan]) -> dict[str, Any]:
    """Return how many publishers moved, and how detours around congestion changed bursts."""
    bursts = record.bursts
    figures = msgspec.to_builtins(bursts) or {}
    return {
        **_publisher_figures(record, completed),
        "places_changed": sum(len(plan.id_moves) for plan in completed),
        "bursts": len(bursts.bursts_begun_ms) if bursts else None,
        "bursts_answered_by_plan": bursts.answered_by(completed) if bursts else None,
        **{name: figures.get(name) for name in BURST_FIGURES},
    }


MOVED_FIGURES = {
    TreeConfiguration.KIND: _publisher_figures,
    RingConfiguration.KIND: _user_figures,
    ScotConfiguration.KIND: _burst_figures,
}


def _shift_figures(record: RunRecord, completed: Sequence[Plan]) -> dict[str, Any]:
    """Return whether interests were to shift, and which plans that were to save followed if they did."""
    followed = began_after(completed, record.regime_change_ms)
    return {
        "plans_completed_after_regime_change": sum(map(is_to_save, followed)),
        "plans_saved_after_regime_change": sum(map(has_saved, followed)),
        "regime_change_expected": record.expects_regime_change,
        "traffic_after_regime_change_s": _traffic_after_shift_s(record),
    }


def _traffic_after_shift_s(record: RunRecord) -> float | None:
    if record.regime_change_ms is None:
        return None
    return _rounded(max(record.traffic_end_ms - record.regime_change_ms, 0) / 1000, 1)


def _rounded(value: float | None, digits: int = 2) -> float | None:
    return None if value is None else round(value, digits)
