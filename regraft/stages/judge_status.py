"""Say whether the loop is well, from what its stages last wrote: well, degraded or not running, and why.

In: the documents of the stages with their ages, and the settings. Out: one JSON-ready status. Where the documents come
from belongs to :mod:`regraft.stages.read_status`, how they are shown to :mod:`regraft.commands.status_command`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from regraft.settings.run_settings import Settings
from regraft.stages.observe_run import parse_ledger
from schemas.plan import PlanPhase
from schemas.plan_life import LIFE

Document = Mapping[str, Any]

WELL, DEGRADED, NOT_RUNNING = "well", "degraded", "not running"
SILENCE_S_MAX = 15.0  # A stage writes each second; a micro-batch or a slow disk may take some.
STALL_FACTOR = 2  # A phase of a plan may take its limit, and as long again while brokers are asked anew.
PLANS_SHOWN = 5
ALERTS_SHOWN = 10
CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class ServiceState:
    """What one stage last wrote, and how long ago; ``is_over`` where it said that it had ended."""

    age_s: float
    document: Document
    is_over: bool = False

    @property
    def is_silent(self) -> bool:
        """Tell whether the stage has written nothing for too long."""
        return not self.is_over and self.age_s > SILENCE_S_MAX


def judge_status(
    services: Mapping[str, ServiceState], alerts: Document, settings: Settings, now_ms: int
) -> dict[str, Any]:
    """Return verdict, reasons and figures; ``services`` holds the stages that have written anything."""
    controller = services.get("controller")
    document: Document = {} if controller is None else controller.document
    faults = _faults(services, document, alerts, settings, now_ms)
    if controller is None:
        verdict, faults = NOT_RUNNING, ["no controller has written anything", *faults]
    elif controller.is_silent:
        verdict, faults = NOT_RUNNING, [f"the controller has been silent for {controller.age_s:.0f} s", *faults]
    else:
        verdict = DEGRADED if faults else WELL
    orders = document.get("orders") or {}
    return {
        "verdict": verdict,
        "reasons": faults,
        "notes": _notes(document, orders),
        "time_ms": now_ms,
        "window": _window(document, now_ms),
        "cost": _cost(document),
        "epoch": (document.get("configuration") or {}).get("epoch"),
        "plan_running": document.get("plan_running", ""),
        "plans_waiting": [plan["plan"] for plan in _plans(document) if plan["phase"] == PlanPhase.PROPOSED],
        "paused": orders.get("paused"),
        "maintenance": list(orders.get("maintenance") or ()),
        "plans_last": [_plan(plan) for plan in _plans(document)[-PLANS_SHOWN:]],
        "alerts": list(alerts.get("active") or ())[:ALERTS_SHOWN],
        "faults": dict(document.get("faults") or {}),
        "services": {
            name: {"age_s": round(state.age_s, 1), "is_silent": state.is_silent, "is_over": state.is_over}
            for name, state in services.items()
        },
    }


def _faults(
    services: Mapping[str, ServiceState], document: Document, alerts: Document, settings: Settings, now_ms: int
) -> list[str]:
    """Return what is wrong now; what went wrong once and is over is no fault."""
    found = [
        f"{name} has been silent for {state.age_s:.0f} s"
        for name, state in services.items()
        if state.is_silent and name != "controller"
    ]
    found += _window_faults(document, settings, now_ms) + _plan_faults(document, settings, now_ms)
    if "emulator" in services:
        ledger = parse_ledger(services["emulator"].document)
        wrong = {"lost": ledger.lost, "repeated": ledger.repeated, "out of order": ledger.out_of_order}
        found += [f"{count} notifications {what}" for what, count in wrong.items() if count]
    critical = [alert for alert in alerts.get("active") or () if alert.get("severity") == CRITICAL]
    return found + [f"alert: {alert.get('text')}" for alert in critical[:ALERTS_SHOWN]]


def _window_faults(document: Document, settings: Settings, now_ms: int) -> list[str]:
    if not document:
        return []
    window = document.get("window")
    if window is None:
        return ["no window has closed yet"]
    age_ms, age_ms_max = now_ms - window["end_ms"], settings.controller.decision.window_age_ms_max
    found = []
    if age_ms > age_ms_max:
        found.append(
            f"the newest window ended {age_ms / 1000:.0f} s ago, over {age_ms_max / 1000:.0f} s nothing is decided"
        )
    if not window["is_complete"]:
        found.append(f"the newest window is incomplete: {window['fault']}")
    return found


def _plan_faults(document: Document, settings: Settings, now_ms: int) -> list[str]:
    limits = settings.controller.transition
    found = []
    for plan in _plans(document):
        phase = PlanPhase(plan["phase"])
        since_ms = plan["history"][-1]["time_ms"] if plan["history"] else now_ms
        if LIFE[phase].is_moving and now_ms - since_ms > STALL_FACTOR * limits.of(phase):
            found.append(f"plan {plan['plan']} has been {phase} for {(now_ms - since_ms) / 1000:.0f} s")
    return found


def _notes(document: Document, orders: Document) -> list[str]:
    """Return what a person should know that is no fault."""
    found = []
    if document.get("dry_run"):
        found.append("dry run: plans wait for approval")
    if running := document.get("plan_running"):
        found.append(f"plan {running} is under way")
    waiting = [plan["plan"] for plan in _plans(document) if plan["phase"] == PlanPhase.PROPOSED]
    if waiting:
        found.append(f"{', '.join(waiting)} waits for approval")
    if paused := orders.get("paused"):
        found.append(f"paused by {paused['by']}: {paused['reason']}")
    if maintenance := orders.get("maintenance"):
        found.append(f"in maintenance: {', '.join(one['broker'] for one in maintenance)}")
    return found


def _window(document: Document, now_ms: int) -> dict[str, Any] | None:
    window = document.get("window")
    if window is None:
        return None
    kept = {name: window[name] for name in ("end_ms", "notifications", "is_complete", "fault", "queue_length_max")}
    return kept | {
        "age_ms": now_ms - window["end_ms"],
        "closed": document["windows_closed"],
        "incomplete": document["windows_incomplete"],
    }


def _cost(document: Document) -> dict[str, float] | None:
    points = document.get("cost") or ()
    if not points:
        return None
    now, first = points[-1]["cost_per_s"], points[-1]["cost_bootstrap_per_s"]
    return {"now_per_s": now, "bootstrap_per_s": first, "saved_share": 1 - now / first if first else 0.0}


def _plans(document: Document) -> list[Document]:
    return list(document.get("plans") or ())


def _plan(plan: Document) -> dict[str, Any]:
    kept = ("plan", "phase", "epoch_to", "cost_before_per_s", "cost_predicted_per_s", "cost_observed_per_s", "undoes")
    return {name: plan[name] for name in kept}
