"""The desk between rules, store and targets: what to store before acting on it. Pure, except for its logs.

In: changed alerts, the time, reports of deliveries. Out: a batch to store atomically, and actions that may follow only
once it is stored: queue a message, grant its sending. So the stored alerts always show what may have happened:

- reported, delivery pending: nothing was sent yet; sent after a restart;
- sending: it may have been sent; uncertain after a restart, or sent again with ``resend_uncertain``;
- sent, failed: final.

An alert keeps only the deliveries of its newest message. If the stage is killed when a target still lacks a message and
there is already a newer one about the same alert, only the newer one is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
import structlog

from regraft.alerts.alert_engine import AlertEngine
from regraft.alerts.alert_message import AlertMessage
from regraft.alerts.deliver_messages import DeliveryReport
from regraft.alerts.findings import NAMES_MAX
from regraft.alerts.notify_targets import Silencer, notify
from regraft.infra.kafka.dead_letters import dead_letter
from regraft.schemas.alert import Alert, AlertDelivery, AlertStatus, DeliveryState
from regraft.schemas.dead_letter import DeadLetter
from regraft.schemas.event import AdaptationEvent, EventKind
from regraft.schemas.texts import name_some

log = structlog.get_logger(__name__)

EVENT_KINDS = {AlertStatus.RAISED: EventKind.ALERT_RAISED, AlertStatus.CLEARED: EventKind.ALERT_CLEARED}


@dataclass(frozen=True)
class DeliveryAction:
    """A message and target to act on once the batch is stored."""

    message: AlertMessage
    target: str


@dataclass
class DeskBatch:
    """What to store atomically, and the actions that follow. ``forgotten`` are the keys of alerts to remove."""

    alerts: dict[str, Alert] = field(default_factory=dict)
    forgotten: list[str] = field(default_factory=list)
    events: list[AdaptationEvent] = field(default_factory=list)
    letters: list[DeadLetter] = field(default_factory=list)
    offers: list[DeliveryAction] = field(default_factory=list)
    grants: list[DeliveryAction] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Return True if there is nothing to store and nothing to do."""
        return not (self.alerts or self.forgotten or self.events or self.letters or self.offers or self.grants)


class AlertDesk:
    """Collects in ``batch`` what to store. ``topic`` is the alerts' own topic, named in dead letters."""

    def __init__(
        self, engine: AlertEngine, silencer: Silencer, targets: Sequence[str], source: str, topic: str
    ) -> None:  # fmt: skip
        self._engine = engine
        self._silencer = silencer
        self._targets = tuple(targets)
        self._source = source
        self._topic = topic
        self.batch = DeskBatch()

    def stored(self) -> DeskBatch:
        """Start a new batch after the present one was stored; return the stored one, for its actions."""
        batch, self.batch = self.batch, DeskBatch()
        return batch

    def note(self, alerts: Iterable[Alert]) -> None:
        """Add alerts that the engine has changed to the batch."""
        for alert in alerts:
            self.batch.alerts[alert.key] = alert
            log.info(
                f"alert_{alert.status}", rule=alert.rule, subject=alert.subject, value=alert.value, text=alert.text
            )

    def notify(self, now_ms: int) -> list[AlertMessage]:
        """Add the reports that are due to the batch; return their messages."""
        book, engine = self._engine.book, self._engine
        messages = notify(
            list(book.alerts.values()),
            now_ms,
            self._silencer,
            engine.orders.maintained(now_ms),
            self._targets,
            is_blast=engine.is_blast,
        )
        for alert in messages.changed:
            self._put(alert)
        for message in messages.messages:
            self.batch.events.append(_event_of(message))
            self.batch.offers += [DeliveryAction(message, target) for target in self._targets]
        return list(messages.messages)

    def forget(self) -> None:
        """Remove the oldest cleared alerts beyond the limit."""
        for key in self._engine.forget():
            self.batch.alerts.pop(key, None)
            self.batch.forgotten.append(key)

    def resume(self, now_ms: int, *, resend_uncertain: bool) -> None:
        """Resume the unfinished deliveries of an earlier stage; call it once, at the start."""
        waiting: dict[tuple[str, str], list[Alert]] = {}
        for alert in list(self._engine.book.alerts.values()):
            deliveries = []
            for delivery in alert.deliveries:
                if delivery.state is DeliveryState.SENDING:
                    delivery = _resumed(delivery, alert, now_ms, resend_uncertain=resend_uncertain)
                if delivery.state is DeliveryState.PENDING:
                    waiting.setdefault((alert.message, delivery.target), []).append(alert)
                deliveries.append(delivery)
            if tuple(deliveries) != alert.deliveries:
                self._put(msgspec.structs.replace(alert, deliveries=tuple(deliveries)))
        for (name, target), alerts in waiting.items():
            # Keeps the id of the interrupted message, even if an alert of its group has been reported again.
            group = tuple(sorted(alerts, key=lambda one: one.subject))
            message = AlertMessage(name, group, max(alert.told_ms for alert in group))
            self.batch.offers.append(DeliveryAction(message, target))

    def report(self, report: DeliveryReport, now_ms: int) -> None:
        """Process a report: mark the message's alerts, grant its sending, or write a dead letter if it failed."""
        if report.state is DeliveryState.SENDING:
            self.batch.grants.append(DeliveryAction(report.message, report.target))
        elif report.state is DeliveryState.FAILED:
            self._write_dead_letter(report, now_ms)
        for member in report.message.alerts:
            alert = self._engine.book.alerts.get(member.key)
            if alert is not None and alert.message == report.message.message:
                self._put(_marked(alert, report, now_ms))

    def _put(self, alert: Alert) -> None:
        self._engine.book.put(alert)
        self.batch.alerts[alert.key] = alert

    def _write_dead_letter(self, report: DeliveryReport, now_ms: int) -> None:
        reason = f"{report.target} did not receive the message: {report.reason}"
        log.warning("alert_not_delivered", target=report.target, title=report.message.title, reason=report.reason)
        value = report.message.encoded(self._source)
        self.batch.letters.append(dead_letter(self._topic, 0, -1, reason, value, now_ms))


def _resumed(delivery: AlertDelivery, alert: Alert, now_ms: int, *, resend_uncertain: bool) -> AlertDelivery:
    if resend_uncertain:
        return msgspec.structs.replace(delivery, state=DeliveryState.PENDING, time_ms=now_ms, reason="sent again")
    log.warning("alert_delivery_uncertain", target=delivery.target, rule=alert.rule, subject=alert.subject)
    reason = "the alert stage was killed while it was being sent"
    return msgspec.structs.replace(delivery, state=DeliveryState.UNCERTAIN, time_ms=now_ms, reason=reason)


def _marked(alert: Alert, report: DeliveryReport, now_ms: int) -> Alert:
    marked = tuple(
        AlertDelivery(report.target, report.state, now_ms, report.reason) if each.target == report.target else each
        for each in alert.deliveries
    )
    return msgspec.structs.replace(alert, deliveries=marked)


def _event_of(message: AlertMessage) -> AdaptationEvent:
    names = [alert.subject for alert in message.alerts]
    return AdaptationEvent(
        names[0] if len(names) == 1 else message.rule,
        EVENT_KINDS[message.status],
        message.severity,
        message.time_ms,
        message.text,
        details={
            "rule": message.rule,
            "message": message.message,
            "count": str(len(names)),
            "subjects": name_some(names, NAMES_MAX),
        },
    )
