"""Alert: something a rule found wrong with one subject, since when, and who was notified (compacted topic)."""

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

    ``sending`` is stored before the first attempt. An alert stage that finds it there at its start cannot know whether
    the attempt reached the target: it makes it ``uncertain`` and, by default, does not send again.
    """

    PENDING = "pending"
    SENDING = "sending"
    SENT = "sent"
    FAILED = "failed"
    UNCERTAIN = "uncertain"


class AlertDelivery(Struct, frozen=True):
    """One target of the newest message about an alert. ``target`` names it without its secrets."""

    target: str
    state: DeliveryState
    time_ms: TimeMs
    reason: str = ""


class Alert(Struct, frozen=True):
    """One rule and one subject; the newest record of both is what holds.

    ``value`` is what was measured when the status last changed, ``brokers`` are those concerned. ``told`` is the status
    that was sent last, empty if none was; ``told_ms`` says when and ``message`` by which message. ``silenced_by`` says
    why the status is kept to ourselves, empty when it is not.
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
        """Return the key under which the newest record replaces the one before."""
        return f"{self.rule}/{self.subject}"

    @property
    def is_silenced(self) -> bool:
        """Return True if something keeps the alert from being sent now."""
        return bool(self.silenced_by)

    @property
    def is_raised(self) -> bool:
        """Return True if the condition holds."""
        return self.status is AlertStatus.RAISED
