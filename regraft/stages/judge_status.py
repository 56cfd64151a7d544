"""Judge from the stages' last output whether the loop is healthy, degraded or not running, and why.

In: the live view, the documents of the other stages, and the age of each. Out: one JSON-ready status. The rule for
what the view holds is :mod:`regraft.schemas.loop_verdict`, which the dashboard shares. Reading belongs to
:mod:`regraft.stages.read_status`, showing to :mod:`regraft.commands.status_command`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from regraft.schemas.left_behind import subscribers_of
from regraft.schemas.live_view import LiveView, ShownPlan
from regraft.schemas.loop_verdict import ALERTS_SHOWN, SILENCE_S_MAX, is_crossed, judge_loop
from regraft.schemas.member import MemberState
from regraft.schemas.plan import PlanPhase
from regraft.schemas.sampled_blocks import share_text
from regraft.stages.explain_decision import decision_of
from regraft.stages.observe_run import parse_ledger

Document = Mapping[str, Any]

PLANS_SHOWN = 5
WINDOW_FIELDS = (
    "end_ms",
    "notifications",
    "is_complete",
    "error",
    "queue_length_max",
    "clock_offsets_ms",
    "sample_share",
)
PLAN_FIELDS = (
    "plan",
    "phase",
    "epoch_to",
    "cost_before_per_s",
    "cost_predicted_per_s",
    "cost_observed_per_s",
    "undoes",
    "sample_share",
    "gain_error_per_s",
)
NOTHING_SHOWN: dict[str, Any] = {
    "notes": [],
    "leader": "",
    "term": 0,
    "is_standby": False,
    "window": None,
    "cost": None,
    "bill": None,
    "closable": [],
    "subscribers": {},
    "staying": {},
    "epoch": None,
    "decision": None,
    "plan_running": "",
    "plans_waiting": [],
    "paused": None,
    "maintenance": [],
    "members": None,
    "plans_last": [],
    "errors": {},
}


@dataclass(frozen=True, slots=True)
class ServiceState:
    """One stage's last output, and its age; ``is_over`` if it reported its end.

    The controller's output is the live view, not a document.
    """

    age_s: float
    document: Document = field(default_factory=dict)
    is_over: bool = False

    @property
    def is_silent(self) -> bool:
        """Return True if the stage has written nothing for more than SILENCE_S_MAX."""
        return not self.is_over and self.age_s > SILENCE_S_MAX


def judge_status(
    services: Mapping[str, ServiceState],
    view: LiveView | None,
    alerts: Document,
    now_ms: int,
    errors: Sequence[str] = (),
) -> dict[str, Any]:
    """Return verdict, reasons and figures; ``services`` holds the stages that have written a status.

    ``view`` is the controller's, None if it has written nothing; ``errors`` are known elsewhere.
    """
    controller = services.get("controller")
    silent_s = 0.0 if controller is None else controller.age_s
    judged = judge_loop(view if controller else None, alerts, silent_s, now_ms, [*errors, *_stage_errors(services)])
    return {
        "verdict": judged.verdict,
        "reasons": list(judged.reasons),
        "time_ms": now_ms,
        **(NOTHING_SHOWN if view is None else _figures(view, now_ms)),
        "alerts": list(alerts.get("active") or ())[:ALERTS_SHOWN],
        "services": {
            name: {"age_s": round(state.age_s, 1), "is_silent": state.is_silent, "is_over": state.is_over}
            for name, state in services.items()
        },
    }


def _figures(view: LiveView, now_ms: int) -> dict[str, Any]:
    """Return what the status shows of the view, JSON-ready."""
    subscribers = subscribers_of(() if view.network is None else view.network.brokers)
    return {
        "notes": _notes(view),
        "leader": view.leader,
        "term": view.term,
        "is_standby": view.is_standby,
        "window": _window(view, now_ms),
        "cost": _cost(view),
        "bill": _bill(view),
        "closable": list(view.closable),
        "subscribers": {broker: [each.total, each.movable] for broker, each in subscribers.items()},
        "staying": {broker: dict(each.staying) for broker, each in subscribers.items() if each.staying},
        "epoch": view.configuration.epoch,
        "decision": decision_of(view),
        "plan_running": view.plan_running,
        "plans_waiting": _waiting(view),
        "paused": msgspec.to_builtins(view.orders.paused),
        "maintenance": msgspec.to_builtins(view.orders.maintenance),
        "members": msgspec.to_builtins(view.members),
        "plans_last": [_plan(plan) for plan in view.plans[-PLANS_SHOWN:]],
        "errors": dict(view.errors),
    }


def _stage_errors(services: Mapping[str, ServiceState]) -> list[str]:
    """Return what is wrong with the stages other than the controller, which only their status files hold."""
    errors = [
        f"{name} has been silent for {state.age_s:.0f} s"
        for name, state in services.items()
        if state.is_silent and name != "controller"
    ]
    if "emulator" in services:
        ledger = parse_ledger(services["emulator"].document)
        wrong = {"lost": ledger.lost, "repeated": ledger.repeated, "out of order": ledger.disordered}
        errors += [f"{count} notifications {what}" for what, count in wrong.items() if count]
    return errors


def _waiting(view: LiveView) -> list[str]:
    return [plan.plan for plan in view.plans if plan.phase == PlanPhase.PROPOSED]


def _notes(view: LiveView) -> list[str]:
    """Return remarks about the loop that are not errors."""
    notes = []
    if view.leader:
        who = f"{view.leader} leads with term {view.term}"
        notes.append(f"this controller stands by, {who}" if view.is_standby else who)
    if view.sampling.share_asked < 1:
        asked = view.sampling
        notes.append(f"brokers are asked to report {share_text(asked.share_asked)}, because {asked.reason}")
    if view.dry_run:
        notes.append("dry run: plans wait for approval")
    if view.plan_running:
        notes.append(f"{view.plan_running} is in progress")
    if waiting := _waiting(view):
        notes.append(f"{', '.join(waiting)} waits for approval")
    if paused := view.orders.paused:
        notes.append(f"paused by {paused.by}: {paused.reason}")
    notes += [
        f"{state.replace('_', ' ')}: {', '.join(member.broker for member in members)}"
        for state in (MemberState.JOINING, MemberState.LEAVING, MemberState.DEAD)
        if (members := [member for member in view.members.members if member.state == state and not is_crossed(member)])
    ]
    if maintenance := view.orders.maintenance:
        notes.append(f"in maintenance: {', '.join(one.broker for one in maintenance)}")
    return notes


def _window(view: LiveView, now_ms: int) -> dict[str, Any] | None:
    window = view.window
    if window is None:
        return None
    kept = {name: getattr(window, name) for name in WINDOW_FIELDS}
    return kept | {
        "age_ms": now_ms - window.end_ms,
        "closed": view.windows_closed,
        "incomplete": view.windows_incomplete,
    }


def _bill(view: LiveView) -> dict[str, Any] | None:
    if view.bill is None or view.bill_first is None:
        return None
    bills = {"now": view.bill, "first": view.bill_first}
    document: dict[str, Any] = {f"{when}_per_month": bill.per_month for when, bill in bills.items()}
    document |= {f"{when}_per_million": bill.per_million for when, bill in bills.items()}
    parts = {"links_per_month": view.bill.links_per_month, "access_per_month": view.bill.access_per_month}
    return {"currency": view.bill.currency, **document, **parts}


def _cost(view: LiveView) -> dict[str, Any] | None:
    if not view.cost:
        return None
    now, first = view.cost[-1].cost_per_s, view.cost[-1].cost_bootstrap_per_s
    bounded = next((point for point in reversed(view.cost) if point.cost_least_per_s is not None), None)
    return {
        "now_per_s": now,
        "error_per_s": view.cost[-1].cost_error_per_s,
        "sample_share": view.cost[-1].sample_share,
        "bootstrap_per_s": first,
        "saved_share": 1 - now / first if first else 0.0,
        "bounded": None
        if bounded is None
        else {
            "window_end_ms": bounded.window_end_ms,
            "cost_per_s": bounded.cost_per_s,
            "least_per_s": bounded.cost_least_per_s,
        },
    }


def _plan(plan: ShownPlan) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in PLAN_FIELDS}
