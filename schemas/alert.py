"""Alert: what a rule found wrong with a subject, since when, and who was notified (compacted topic)."""

from enum import StrEnum

from msgspec import Struct

from regraft.schemas.bounds import Entity, Name, Number, TimeMs
from regraft.schemas.event import Severity


class AlertStatus(StrEnum):
    """Whether the rule's condition holds."""

    RAISED = "raised"
    CLEARED = "cleared"


class DeliveryState(StrEnum):
    """The delivery state of one message to one target.

    ``sending`` is stored before the first attempt. An alert stage that finds it at start-up cannot know whether the
    attempt reached the target: it changes the state to ``uncertain`` and, by default, does not send again.
    """

    PENDING = "pending"
    SENDING = "sending"
    SENT = "sent"
    FAILED = "failed"
    UNCERTAIN = "uncertain"


class AlertDelivery(Struct, frozen=True):
    """The delivery of an alert's newest message to one target, named without its secrets."""

    target: str
    state: DeliveryState
    time_ms: TimeMs
    reason: str = ""


class Alert(Struct, frozen=True):
    """The state of one rule for one subject; the newest record of the pair counts.

    ``value`` is the measurement when the status last changed, ``brokers`` are the affected brokers. ``told`` is the
    status that was sent last, empty if none was; ``told_ms`` is when it was sent, ``message`` the id of the message.
    ``silenced_by`` says why the status is not sent, empty if it is.
    """

    rule: Name
    subject: Entity
    severity: Severity
    status: AlertStatus
    raised_ms: TimeMs
    changed_ms: TimeMs
    text: str
    value: Number
    brokers: tuple[str, ...] = ()
    silenced_by: str = ""
    told: str = ""
    told_ms: TimeMs = 0
    message: str = ""
    deliveries: tuple[AlertDelivery, ...] = ()

    @property
    def key(self) -> str:
        """Return the record's key in the compacted topic."""
        return f"{self.rule}/{self.subject}"

    @property
    def is_silenced(self) -> bool:
        """Return True if the alert is not sent at present."""
        return bool(self.silenced_by)

    @property
    def is_raised(self) -> bool:
        """Return True if the condition holds."""
        return self.status is AlertStatus.RAISED
