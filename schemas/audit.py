"""AuditEntry: one order and its outcome, kept for long."""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from regraft.schemas.bounds import SEQUENCE_MAX, TIME_MS_MAX, Name, NameOrNone, Text, TimeMs
from regraft.schemas.order import Order
from regraft.schemas.same_fields import like
from regraft.schemas.texts import shortened


class AuditOutcome(StrEnum):
    """The outcome of an order.

    Accepted orders about plans have two: ``accepted``, and later what was done with the plan.
    """

    ACCEPTED = "accepted"
    REFUSED = "refused"
    EXECUTED = "carried_out"
    TOO_LATE = "too_late"


class AuditEntry(Struct, frozen=True):
    """Who ordered what, when, from where, and with which outcome.

    The controller writes ``outcome`` and ``why`` at ``time_ms``. ``ordered_ms`` is the time in the order itself,
    ``written_ms`` that of its record in Kafka, ``offset`` the record's offset in the topic of orders, -1 if it has
    none. The other fields are those of the order; if the record was not an order, ``kind`` and ``by`` are empty and
    ``subject`` is the record's key.
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
    """A record of the topic of orders under ``key``: an order, or None for a record that deletes one.

    ``refusal`` says why the order must not be followed whatever it asks for, empty if it is authentic. ``is_new`` marks
    orders whose outcome has not been reported yet.
    """

    order: Order | None
    written_ms: int = 0
    offset: int = -1
    key: str = ""
    refusal: str = ""
    is_new: bool = True

    def entry(self, outcome: AuditOutcome, why: str, now_ms: int) -> AuditEntry:
        """Return the audit entry of the order.

        Values are cut to the bounds that readers accept: ``why`` may quote the order, and a writer may choose its
        record's time.
        """
        order, why = self.order, shortened(why)
        written_ms = min(max(self.written_ms, 0), TIME_MS_MAX)
        if order is None:
            return AuditEntry(self.key, "", "", "", outcome, why, now_ms, 0, written_ms, self.offset)
        return like(
            AuditEntry,
            order,
            outcome=outcome,
            why=why,
            time_ms=now_ms,
            ordered_ms=order.time_ms,
            written_ms=written_ms,
            offset=self.offset,
        )
