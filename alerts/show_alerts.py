"""What is shown of alerts: the document of the live view and the status file, JSON-ready and bounded.

In: alerts. Out: plain dicts. Where they are shown does not belong here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Protocol

import structlog

from schemas.alert import Alert

log = structlog.get_logger(__name__)

ACTIVE_SHOWN_MAX = 500
RECENT_SHOWN_MAX = 100
BROKERS_SHOWN_MAX = 20
PAUSE_MS_MIN = 500  # After a failure; doubled up to the maximum, so that a lost server does not slow the loop.
PAUSE_MS_MAX = 15_000


def alerts_document(alerts: Iterable[Alert], now_ms: int) -> dict[str, Any]:
    """Return the alerts that stand and those cleared last, newest first, and how many stand in all."""
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
    """Return one alert."""
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


class KeyClient(Protocol):
    """The one call of redis-py that is needed; the client must have socket time-outs below a second."""

    def set(self, name: str, value: str) -> Any:
        """Set one key."""
        ...


class LiveAlerts:
    """The key ``<namespace>:live:alerts``, best effort: after a failure it is left alone for a pause that grows."""

    def __init__(self, client: KeyClient, namespace: str) -> None:
        self._client = client
        self._key = f"{namespace}:live:alerts"
        self._pause_ms = PAUSE_MS_MIN
        self._silent_until_ms: int | None = None
        self.failures = 0

    def publish(self, document: dict[str, Any], now_ms: int) -> None:
        """Write the document whole, unless the server failed a short while ago."""
        if self._silent_until_ms is not None and now_ms < self._silent_until_ms:
            return
        try:
            self._client.set(self._key, json.dumps(document))
        # The client library raises its own and the socket's errors, and none of them may stop the loop.
        except Exception as error:
            self._on_failure(error, now_ms)
            return
        if self._silent_until_ms is not None:
            log.info("live_alerts_are_back", failures=self.failures)
        self._silent_until_ms = None
        self._pause_ms = PAUSE_MS_MIN

    def _on_failure(self, error: Exception, now_ms: int) -> None:
        self.failures += 1
        if self._silent_until_ms is None:
            log.warning("live_alerts_are_away", reason=str(error), next_attempt_ms=self._pause_ms)
        self._silent_until_ms = now_ms + self._pause_ms
        self._pause_ms = min(self._pause_ms * 2, PAUSE_MS_MAX)
