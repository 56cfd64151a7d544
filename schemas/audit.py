"""AuditEntry: one order and its outcome, kept long."""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from regraft.schemas.bounds import SEQUENCE_MAX, TEXT_LENGTH_MAX, TIME_MS_MAX, Name, NameOrNone, Text, TimeMs
from regraft.schemas.order import Order


class AuditOutcome(StrEnum):
    """The outcome of an order. Most have two: ``accepted`` first, and later what was done about the plan."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    CARRIED_OUT = "carried_out"
    TOO_LATE = "too_late"


class AuditEntry(Struct, frozen=True):
    """Who ordered what, when and from where, and with what outcome.

    ``outcome`` and ``why`` are the controller's, who says so at ``time_ms``. ``ordered_ms`` is the time that the order
    itself names, ``written_ms`` that of its record in Kafka, ``offset`` its place in the topic of orders, -1 where it
    has none. The others are fields of the order; where its record was none, ``kind`` and ``by`` are empty and
    ``subject`` is its key.
    """

    subject: Name
    kind: NameOrNone
    by: Text
    reason: Text
    outcome: AuditOutcome
    why: Text
    time_ms: TimeMs
    ordered_ms: TimeMs = 0
    written_ms: TimeMs = 0
    offset: Annotated[int, Meta(ge=-1, le=SEQUENCE_MAX)] = -1
    source: Text = ""
    key_name: NameOrNone = ""
    nonce: NameOrNone = ""
    plan_digest: NameOrNone = ""
    until_ms: TimeMs = 0
    evacuate: bool = False


class GivenOrder(Struct, frozen=True):
    """What was found in the topic of orders: an order, or a record that takes one out (None), under ``key``.

    ``refusal`` says why it must not be followed, whatever it asks for; empty if it is authentic. ``is_new`` marks one
    whose outcome has not been reported yet.
    """

    order: Order | None
    written_ms: int = 0
    offset: int = -1
    key: str = ""
    refusal: str = ""
    is_new: bool = True

    def entry(self, outcome: AuditOutcome, why: str, now_ms: int) -> AuditEntry:
        """Return what is kept of it, within the bounds of what is read: ``why`` may quote the order, and a writer may
        choose its record's time.
        """
        order, why = self.order, why[:TEXT_LENGTH_MAX]
        written_ms = min(max(self.written_ms, 0), TIME_MS_MAX)
        if order is None:
            return AuditEntry(self.key, "", "", "", outcome, why, now_ms, 0, written_ms, self.offset)
        return AuditEntry(
            subject=order.subject,
            kind=order.kind,
            by=order.by,
            reason=order.reason,
            outcome=outcome,
            why=why,
            time_ms=now_ms,
            ordered_ms=order.time_ms,
            written_ms=written_ms,
            offset=self.offset,
            source=order.source,
            key_name=order.key_name,
            nonce=order.nonce,
            plan_digest=order.plan_digest,
            until_ms=order.until_ms,
            evacuate=order.evacuate,
        )
