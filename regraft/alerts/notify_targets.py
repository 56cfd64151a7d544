"""Choose and group what to report now, without what quiet hours, maintenance or a larger error silence.

Notification is level-triggered: a status that differs from the last one reported is reported as soon as nothing
silences it. So an alert raised and cleared during quiet hours is never reported, and one still raised at their end is
reported then, once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from regraft.alerts.alert_message import AlertMessage, message_of
from regraft.alerts.quiet_hours import parse_quiet_hours
from regraft.alerts.rule_kinds import Rule
from regraft.alerts.watch_blast import is_single
from regraft.schemas.alert import Alert, AlertDelivery, AlertStatus, DeliveryState
from regraft.schemas.event import Severity

SEVERITIES = (Severity.INFO, Severity.WARNING, Severity.CRITICAL)


@dataclass(frozen=True)
class Notified:
    """What to report now, and the alerts that change by it."""

    changed: tuple[Alert, ...]
    messages: tuple[AlertMessage, ...]


@dataclass(frozen=True)
class Silencer:
    """Decides whether and why an alert is not reported now.

    ``quiet`` are the quiet hours for all rules, empty for none; alerts at least as severe as ``quiet_below`` are
    reported anyway. A rule's own quiet hours apply at any severity.
    """

    rules: Mapping[str, Rule]
    quiet: str = ""
    quiet_below: Severity = Severity.CRITICAL

    def reason(self, alert: Alert, now_ms: int, maintained: Collection[str], *, is_blast: bool) -> str:
        """Return why the alert must not be reported now, "" if it may be."""
        rule = self.rules.get(alert.rule)
        on_single = rule is not None and is_single(rule.on)
        in_maintenance = sorted(set(alert.brokers) & set(maintained))
        if in_maintenance and (on_single or len(in_maintenance) == len(alert.brokers)):
            return f"maintenance of {', '.join(in_maintenance)}"
        if is_blast and on_single and alert.is_raised and alert.told != AlertStatus.RAISED:
            return "blast radius"
        if rule is not None and rule.quiet and parse_quiet_hours(rule.quiet).covers(now_ms):
            return f"quiet hours {rule.quiet}"
        is_minor = SEVERITIES.index(alert.severity) < SEVERITIES.index(self.quiet_below)
        if self.quiet and is_minor and parse_quiet_hours(self.quiet).covers(now_ms):
            return f"quiet hours {self.quiet}"
        return ""


def notify(
    alerts: Iterable[Alert],
    now_ms: int,
    silencer: Silencer,
    maintained: Collection[str],
    targets: Sequence[str],
    *,
    is_blast: bool,
) -> Notified:
    """Return the messages that are due, and the alerts that change with them or because they are silenced."""
    changed: list[Alert] = []
    due: list[Alert] = []
    for alert in alerts:
        reason = silencer.reason(alert, now_ms, maintained, is_blast=is_blast) if _may_notify(alert) else ""
        if reason != alert.silenced_by:
            alert = msgspec.structs.replace(alert, silenced_by=reason)
            changed.append(alert)
        if not reason and alert.told != alert.status and _may_notify(alert):
            due.append(alert)
    messages = [message_of(group, now_ms) for group in _groups(due, silencer.rules)]
    notified = {
        alert.key: _as_notified(alert, message, targets, now_ms)
        for message in messages
        for alert in message.alerts
    }  # fmt: skip
    kept = [alert for alert in changed if alert.key not in notified]
    return Notified((*kept, *notified.values()), tuple(messages))


def _may_notify(alert: Alert) -> bool:
    """Return True if the alert is raised, or was reported as raised and its end is not reported yet."""
    return alert.is_raised or alert.told == AlertStatus.RAISED


def _groups(due: Sequence[Alert], rules: Mapping[str, Rule]) -> list[tuple[Alert, ...]]:
    groups: dict[tuple[str, str, str], list[Alert]] = {}
    for alert in due:
        rule = rules.get(alert.rule)
        apart = alert.subject if rule is not None and not rule.group else ""
        groups.setdefault((alert.rule, str(alert.status), apart), []).append(alert)
    return [tuple(sorted(group, key=lambda one: one.subject)) for group in groups.values()]


def _as_notified(alert: Alert, message: AlertMessage, targets: Sequence[str], now_ms: int) -> Alert:
    deliveries = tuple(AlertDelivery(target, DeliveryState.PENDING, now_ms) for target in targets)
    return msgspec.structs.replace(
        alert, told=str(alert.status), told_ms=now_ms, message=message.message, deliveries=deliveries
    )
