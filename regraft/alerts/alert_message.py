"""One message about the alerts of one rule: its text for people, its JSON for programs, and its id.

The id follows from the content, so a message made again after a restart has the same id, and receivers recognise it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regraft.alerts.findings import NAMES_MAX
from regraft.schemas.alert import Alert, AlertStatus
from regraft.schemas.event import Severity
from regraft.schemas.texts import name_some

ID_CHARACTERS = 24


@dataclass(frozen=True)
class AlertMessage:
    """Alerts of one rule with one status, reported together, sorted by subject."""

    message: str
    alerts: tuple[Alert, ...]
    time_ms: int

    @property
    def rule(self) -> str:
        """Return the name of the alerts' rule."""
        return self.alerts[0].rule

    @property
    def status(self) -> AlertStatus:
        """Return the status of the alerts."""
        return self.alerts[0].status

    @property
    def severity(self) -> Severity:
        """Return the severity of the alerts."""
        return self.alerts[0].severity

    @property
    def title(self) -> str:
        """Return the subject line."""
        names = [alert.subject for alert in self.alerts]
        about = names[0] if len(names) == 1 else f"{len(names)} subjects"
        return f"{self.rule} {self.status} ({self.severity}): {about}"

    @property
    def text(self) -> str:
        """Return the text of the alert, or those of the first alerts and how many more there are."""
        if len(self.alerts) == 1:
            return self.alerts[0].text
        subjects = [alert.subject for alert in self.alerts]
        lines = [f"{len(self.alerts)} alerts {self.status}: {name_some(subjects, NAMES_MAX)}."]
        lines += [f"- {alert.text}" for alert in self.alerts[:NAMES_MAX]]
        if len(self.alerts) > NAMES_MAX:
            lines.append(f"- and {len(self.alerts) - NAMES_MAX} more")
        return "\n".join(lines)

    def document(self) -> dict[str, Any]:
        """Return the document for webhooks, JSON-ready."""
        return {
            "id": self.message,
            "time_ms": self.time_ms,
            "rule": self.rule,
            "status": str(self.status),
            "severity": str(self.severity),
            "title": self.title,
            "text": self.text,
            "count": len(self.alerts),
            "alerts": [
                {
                    "subject": alert.subject,
                    "raised_ms": alert.raised_ms,
                    "changed_ms": alert.changed_ms,
                    "value": alert.value,
                    "brokers": list(alert.brokers[:NAMES_MAX]),
                    "text": alert.text,
                }
                for alert in self.alerts[:NAMES_MAX]
            ],
        }

    def encoded(self, source: str) -> bytes:
        """Return the document as JSON bytes, with ``source``, the overlay it is about."""
        return json.dumps({"source": source, **self.document()}, ensure_ascii=False).encode()


def message_of(alerts: Sequence[Alert], time_ms: int) -> AlertMessage:
    """Return the message about alerts of one rule and status, sorted by subject; raise ValueError if there are none."""
    if not alerts:
        raise ValueError("a message is about at least one alert")
    parts = [alerts[0].rule, str(alerts[0].status)]
    parts += [f"{alert.subject}@{alert.raised_ms}@{alert.changed_ms}" for alert in alerts]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return AlertMessage(digest[:ID_CHARACTERS], tuple(alerts), time_ms)
