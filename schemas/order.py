"""Order: what a person tells the controller, and what stands until it is taken back (compacted topic)."""

from enum import StrEnum

from msgspec import Struct

from schemas.bounds import Name, Text, TimeMs

WHOLE_OVERLAY = "overlay"  # The subject of orders that concern all of it.


class OrderKind(StrEnum):
    """What is asked for. The newest order of a (scope, subject) is the one that stands."""

    APPROVE = "approve"
    REFUSE = "refuse"
    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    MAINTAIN = "maintain"
    RETURN = "return"

    @property
    def scope(self) -> str:
        """What the order's subject is: a plan, a broker, or the whole overlay."""
        if self in (OrderKind.PAUSE, OrderKind.RESUME):
            return "adaptation"
        return "broker" if self in (OrderKind.MAINTAIN, OrderKind.RETURN) else "plan"


class Order(Struct, frozen=True):
    """One order about one subject: a plan, a broker, or WHOLE_OVERLAY.

    ``by`` says who gave it and ``reason`` why, both for people. An order ends by itself at ``until_ms`` (0: it stands
    until it is taken back); only ``pause`` and ``maintain`` may. ``evacuate`` asks that clients move away from the
    broker that is maintained.
    """

    subject: Name
    kind: OrderKind
    by: Text
    reason: Text
    time_ms: TimeMs
    until_ms: TimeMs = 0
    evacuate: bool = False

    @property
    def key(self) -> str:
        """Return the key under which the newest order replaces the one before."""
        return f"{self.kind.scope}/{self.subject}"

    def stands_at(self, now_ms: int) -> bool:
        """Tell whether the order has not ended by itself."""
        return not self.until_ms or now_ms < self.until_ms
