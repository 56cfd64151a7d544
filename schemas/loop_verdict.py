"""Whether the loop is healthy, and why not: the one rule of `regraft status` and of the dashboard. Pure.

Errors of stages that the live view does not hold belong to :mod:`regraft.stages.judge_status`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from regraft.schemas.clock_offsets import CLOCK_OFFSET_MS_MAX, offset_text
from regraft.schemas.live_view import LiveView
from regraft.schemas.member import MemberState
from regraft.schemas.shown_state import ShownMember

HEALTHY, DEGRADED, NOT_RUNNING = "healthy", "degraded", "not running"
SILENCE_S_MAX = 15.0  # A stage writes every second, but a micro-batch or a slow disk may take a few.
STALL_FACTOR = 2  # A phase may take its time limit, and as long again while commands are repeated.
ALERTS_SHOWN = 10
CRITICAL, WARNING = "critical", "warning"
SILENT_BECAUSE = "it stopped, or cannot read Kafka or write its status, which its log says"
NO_CONTROLLER = "no controller has written a status (start one: regraft run, or regraft stage control)"


class LoopVerdict(Struct, frozen=True):
    """HEALTHY, DEGRADED or NOT_RUNNING, with the reasons; ``warnings`` are alerts that leave a loop healthy."""

    verdict: str
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]


def judge_loop(
    view: LiveView | None, alerts: Mapping[str, Any], silent_s: float, now_ms: int, other_errors: Sequence[str] = ()
) -> LoopVerdict:
    """Return the verdict; ``view`` is None if no controller has written one, ``other_errors`` are known elsewhere."""
    reasons = [*other_errors, *([] if view is None else _view_errors(view, now_ms))]
    reasons += [f"alert: {text}" for text in _alert_texts(alerts, CRITICAL)]
    warnings = tuple(_alert_texts(alerts, WARNING))
    if view is None:
        return LoopVerdict(NOT_RUNNING, (NO_CONTROLLER, *reasons), warnings)
    if silent_s > SILENCE_S_MAX:
        silence = f"the controller has been silent for {silent_s:.0f} s: {SILENT_BECAUSE}"
        return LoopVerdict(NOT_RUNNING, (silence, *reasons), warnings)
    return LoopVerdict(DEGRADED if reasons else HEALTHY, tuple(reasons), warnings)


def is_crossed(member: ShownMember) -> bool:
    """Return True if notifications still pass a broker that does not serve them."""
    return member.in_overlay and member.state in (MemberState.DEAD, MemberState.JOINING, MemberState.LEFT)


def _view_errors(view: LiveView, now_ms: int) -> list[str]:
    """Return what is wrong now, without past errors."""
    errors = []
    if view.is_standby and not view.leader:
        errors.append("this standby knows of no leading controller")
    errors += [f"the controller's {what}: {count}" for what, count in view.errors.items() if what.startswith("clock")]
    if view.standby_reason:
        errors.append(f"this controller must not lead: {view.standby_reason}")
    if not view.is_standby:
        errors += _window_errors(view, now_ms) + _plan_errors(view, now_ms) + _deaths(view)
    return errors


def _window_errors(view: LiveView, now_ms: int) -> list[str]:
    window, age_ms_max = view.window, view.limits.window_age_ms_max
    if window is None:
        return ["no window has closed yet"]
    age_ms = now_ms - window.end_ms
    errors = []
    if age_ms > age_ms_max:
        errors.append(
            f"the newest window ended {age_ms / 1000:.0f} s ago, and nothing is decided on windows older "
            f"than {age_ms_max / 1000:.0f} s"
        )
    if not window.is_complete:
        errors.append(f"the newest window is incomplete: {window.error}")
    wrong = {name: ms for name, ms in window.clock_offsets_ms.items() if abs(ms) > CLOCK_OFFSET_MS_MAX}
    return errors + [f"the clock of {broker} is {offset_text(offset_ms)}" for broker, offset_ms in wrong.items()]


def _plan_errors(view: LiveView, now_ms: int) -> list[str]:
    errors = []
    for plan in view.plans:
        since_ms = plan.history[-1].time_ms if plan.history else now_ms
        limit_ms = view.limits.phase_ms_max.get(plan.phase)
        if limit_ms is not None and now_ms - since_ms > STALL_FACTOR * limit_ms:
            errors.append(f"{plan.plan} has been {plan.phase} for {(now_ms - since_ms) / 1000:.0f} s")
    return errors


def _deaths(view: LiveView) -> list[str]:
    """Return an error if dead or departed brokers are in the overlay in force; outside it they are not an error."""
    crossed = [member.broker for member in view.members.members if is_crossed(member)]
    if not crossed:
        return []
    at_risk = view.members.traffic_at_risk_per_s
    rate = "" if at_risk is None else f", {at_risk:.0f} notifications per second passed them"
    return [f"dead and still in the overlay: {', '.join(crossed)}{rate}"]


def _alert_texts(alerts: Mapping[str, Any], severity: str) -> list[str]:
    texts = [str(alert.get("text")) for alert in alerts.get("active") or () if alert.get("severity") == severity]
    return texts[:ALERTS_SHOWN]
