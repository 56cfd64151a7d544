"""Hold orders until the controller has answered them: alerts follow no order that it refused.

Whether an order is authentic belongs to :mod:`infra.orders.judge_orders`.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from regraft.schemas.audit import AuditEntry, AuditOutcome
from regraft.schemas.order import OrderKind

KINDS = frozenset((OrderKind.MAINTAIN, OrderKind.RETURN))  # All other orders mean nothing to alerts.
ANSWERS_MAX = 200_000  # The oldest are forgotten first; an order whose answer is forgotten is not followed.
WAITING_MAX = 10_000

Given = TypeVar("Given")
Place = tuple[int, int]  # An order's offset, and when Kafka received it: a topic may be created again.


class AnswerChangedError(RuntimeError):
    """An order was refused that had been accepted: start over with a new reader, which knows all answers."""


class AnsweredOrders(Generic[Given]):
    """The orders that wait for an answer, and the answers.

    A refusal is final. It may follow an acceptance, by a leader that ended before it had stored that it answered.
    """

    def __init__(self) -> None:
        self._answers: dict[Place, bool] = {}
        self._waiting: dict[Place, Given] = {}
        self._released: dict[Place, None] = {}

    def hold(self, place: Place, given: Given) -> None:
        """Hold an authentic order."""
        self._waiting[place] = given
        if len(self._waiting) > WAITING_MAX:
            del self._waiting[next(iter(self._waiting))]

    def take(self, entry: AuditEntry) -> None:
        """Note an answer. Raises AnswerChangedError if it refuses an order that was released."""
        place, is_accepted = (entry.offset, entry.written_ms), entry.outcome is AuditOutcome.ACCEPTED
        if entry.kind not in KINDS or entry.offset < 0:
            return
        self._answers[place] = is_accepted and self._answers.get(place, True)
        if len(self._answers) > ANSWERS_MAX:
            del self._answers[next(iter(self._answers))]
        if place in self._released and not is_accepted:
            raise AnswerChangedError(f"the order to {entry.kind} {entry.subject} by {entry.by} was refused after all")

    def released(self) -> list[Given]:
        """Return, once, the held orders that were accepted, in their order; forget those that were refused."""
        answered = [place for place in self._waiting if place in self._answers]
        released = {place: self._waiting.pop(place) for place in answered}
        accepted = {place: given for place, given in released.items() if self._answers[place]}
        self._released |= dict.fromkeys(accepted)
        while len(self._released) > WAITING_MAX:
            del self._released[next(iter(self._released))]
        return list(accepted.values())
