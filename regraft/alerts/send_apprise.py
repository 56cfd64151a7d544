"""Send messages with apprise, to the service that its URL names.

Apprise's logs may contain tokens of the URL, so none of them are shown: only the HTTP status of a failure is reported,
if there is one.
"""

from __future__ import annotations

import re

from apprise import NotifyFormat, NotifyType

from regraft.alerts.alert_message import AlertMessage
from regraft.alerts.message_senders import SendError
from regraft.alerts.name_targets import load_apprise
from regraft.schemas.alert import AlertStatus
from regraft.schemas.event import Severity

NOTIFY_TYPES = {
    Severity.INFO: NotifyType.INFO,
    Severity.WARNING: NotifyType.WARNING,
    Severity.CRITICAL: NotifyType.FAILURE,
}
PACE_S = 10.0  # Some services may be called only every few seconds; apprise itself waits for that.
HTTP_STATUS = re.compile(r"error=(\d{3})\b")


class AppriseSender:
    """One apprise URL. ``source`` precedes each title and says which overlay it is about."""

    def __init__(self, url: str, timeout_s: float, source: str) -> None:
        apprise = load_apprise()
        service = apprise.instantiate(url)
        if service is None:
            raise ValueError("apprise cannot use the URL; AlertSettings.errors() says so earlier")
        if "cto=" not in url:
            service.socket_connect_timeout = timeout_s
        if "rto=" not in url:
            service.socket_read_timeout = timeout_s
        self._apprise = apprise()
        self._apprise.add(service)
        self._timeout_s = 2 * timeout_s + PACE_S
        self._source = source

    def send(self, message: AlertMessage) -> None:
        """Send a message once. Raises SendError if it was not sent."""
        kind = NOTIFY_TYPES[message.severity] if message.status is AlertStatus.RAISED else NotifyType.SUCCESS
        result = self._apprise.notify(
            body=message.text,
            title=f"{self._source}: {message.title}",
            notify_type=kind,
            body_format=NotifyFormat.TEXT,
            timeout=self._timeout_s,
        )
        if result:
            return
        if result.timeout_count:
            raise SendError(f"no answer within {self._timeout_s:g} s", is_uncertain=True)
        codes = [HTTP_STATUS.search(str(entry.message)) for entry in result.logs()]
        statuses = [match[1] for match in codes if match is not None]
        raise SendError(f"it answered HTTP {statuses[-1]}" if statuses else "apprise could not deliver it")
