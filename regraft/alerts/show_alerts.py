"""The alerts in the live view and the status file, as a JSON-ready document of bounded size."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from regraft.infra.live.live_keys import KeyClient, LiveKeys
from regraft.schemas.alert import Alert

ACTIVE_SHOWN_MAX = 500
RECENT_SHOWN_MAX = 100
BROKERS_SHOWN_MAX = 20


def alerts_document(alerts: Iterable[Alert], now_ms: int) -> dict[str, Any]:
    """Return the raised alerts and those cleared last, newest first, and the number of all raised ones."""
    newest = sorted(alerts, key=lambda alert: (-alert.changed_ms, alert.key))
    active = [alert for alert in newest if alert.is_raised]
    recent = [alert for alert in newest if not alert.is_raised]
    return {
        "time_ms": now_ms,
        "active_count": len(active),
        "active": [alert_entry(alert) for alert in active[:ACTIVE_SHOWN_MAX]],
        "recent": [alert_entry(alert) for alert in recent[:RECENT_SHOWN_MAX]],
    }


def alert_entry(alert: Alert) -> dict[str, Any]:
    """Return one alert, JSON-ready."""
    return {
        "rule": alert.rule,
        "subject": alert.subject,
        "severity": str(alert.severity),
        "status": str(alert.status),
        "raised_ms": alert.raised_ms,
        "changed_ms": alert.changed_ms,
        "text": alert.text,
        "value": alert.value,
        "brokers": list(alert.brokers[:BROKERS_SHOWN_MAX]),
        "is_silenced": alert.is_silenced,
        "silenced_by": alert.silenced_by,
        "told": alert.told,
        "told_ms": alert.told_ms,
        "deliveries": [
            {"target": one.target, "state": str(one.state), "time_ms": one.time_ms, "reason": one.reason}
            for one in alert.deliveries
        ],
    }


class LiveAlerts:
    """Writes the key ``<namespace>:live:alerts``, best effort: after a failure it pauses, longer each time."""

    def __init__(self, client: KeyClient, namespace: str) -> None:
        self._keys = LiveKeys(client, "alerts")
        self._key = f"{namespace}:live:alerts"

    @property
    def failures(self) -> int:
        """The number of failed writes."""
        return self._keys.failures

    def publish(self, document: dict[str, Any], now_ms: int) -> None:
        """Write the document, unless the server failed a short time ago."""
        self._keys.write(lambda: {self._key: json.dumps(document)}, now_ms)
