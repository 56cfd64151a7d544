"""Check an operator's order against what the page shows, and send it to Kafka.

The controller judges orders; only those that make no sense are refused here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import structlog
from pydantic import BaseModel, ConfigDict, Field

from regraft.dashboard.live_board import LiveBoard
from regraft.dashboard.read_view import subscribers_shown
from regraft.infra.process.stack_error import StackError
from regraft.schemas.left_behind import left_behind_text
from regraft.schemas.live_view import ShownConfiguration, ShownPlan
from regraft.schemas.member import Member, MemberState
from regraft.schemas.member_life import why_member_order_refused
from regraft.schemas.order import WHOLE_OVERLAY, Order, OrderKind
from regraft.schemas.plan_life import why_order_refused
from regraft.schemas.shown_state import ShownFleet
from regraft.schemas.units import MINUTE_MS

REASON_LENGTH_MIN = 3
ORDERS_AT_ONCE_MAX = 4
MINUTES_MAX = 60 * 24 * 31
MAY_EXPIRE = (OrderKind.PAUSE, OrderKind.MAINTAIN)

Send = Callable[[Order], Order]  # Returns the order as stored.

log = structlog.get_logger(__name__)


class OrderRequest(BaseModel):
    """An order as requested by a page or a program; ``minutes`` is how long a pause or maintenance lasts.

    ``leaves_clients`` accepts that a drain leaves clients behind that cannot move.

    ``plan_digest`` is that of the plan on the page. A program may omit it to mean the plan with that name that is shown
    at present.
    """

    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)

    kind: OrderKind
    subject: str = Field(default=WHOLE_OVERLAY, min_length=1, max_length=200)
    reason: str = Field(min_length=REASON_LENGTH_MIN, max_length=500)
    minutes: float | None = Field(default=None, gt=0, le=MINUTES_MAX)
    evacuate: bool = False
    leaves_clients: bool = False
    plan_digest: str = Field(default="", max_length=64)


class OrderRefusedError(Exception):
    """An order was refused or not stored; ``status`` is the HTTP status, the message says why."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


class OrderDesk:
    """Checks and sends orders, at most a few at a time."""

    def __init__(self, board: LiveBoard, send: Send, now_ms: Callable[[], int] | None = None) -> None:
        self._board = board
        self._send = send
        self._now_ms = now_ms or (lambda: time.time_ns() // 1_000_000)
        self._waiting = 0

    async def give(self, request: OrderRequest, by: str, source: str = "") -> Order:
        """Store an order, and return it once Kafka has acknowledged it. Raises OrderRefusedError.

        ``by`` is the operator who gives it, ``source`` where it was given.
        """
        digest = self._check(request)
        if self._waiting >= ORDERS_AT_ONCE_MAX:
            raise OrderRefusedError(
                429, f"{self._waiting} orders are already waiting for Kafka: try again in a moment."
            )
        now_ms = self._now_ms()
        until_ms = 0 if request.minutes is None else now_ms + int(request.minutes * MINUTE_MS)
        order = Order(
            request.subject, request.kind, by, request.reason, now_ms, until_ms, request.evacuate, digest, source
        )
        self._waiting += 1
        try:
            order = await asyncio.to_thread(self._send, order)
        except StackError as error:
            raise OrderRefusedError(503, str(error)) from error
        finally:
            self._waiting -= 1
        log.info("order_given", kind=order.kind, subject=order.subject, by=by, reason=order.reason)
        return order

    def _check(self, request: OrderRequest) -> str:
        """Return the digest of the order's plan, "" if it is not about a plan."""
        kind, subject = request.kind, request.subject
        if kind.scope == "adaptation" and subject != WHOLE_OVERLAY:
            raise OrderRefusedError(422, f"{kind} concerns the whole overlay: leave the subject out, not {subject!r}.")
        if request.minutes is not None and kind not in MAY_EXPIRE:
            raise OrderRefusedError(422, f"{kind} does not expire: leave minutes out.")
        if request.evacuate and kind is not OrderKind.MAINTAIN:
            raise OrderRefusedError(422, f"Only {OrderKind.MAINTAIN} evacuates, not {kind}.")
        if request.leaves_clients and kind is not OrderKind.DRAIN:
            raise OrderRefusedError(422, f"Only {OrderKind.DRAIN} leaves clients behind, not {kind}.")
        if kind.scope == "plan":
            return self._check_plan(request)
        if kind.scope == "member":
            self._check_member(kind, subject)
        if kind is OrderKind.DRAIN and not request.leaves_clients:
            self._check_left_behind(subject)
        if kind.scope == "broker":
            configuration: ShownConfiguration | None = self._board.value("configuration")
            if configuration is None or subject not in configuration.brokers:
                raise OrderRefusedError(409, f"There is no broker {subject!r} in the overlay shown.")
        return ""

    def _check_member(self, kind: OrderKind, broker: str) -> None:
        if kind is OrderKind.ADD:
            raise OrderRefusedError(422, "Add a broker with `regraft members add`, which specifies its costs.")
        fleet: ShownFleet = self._board.value("members") or ShownFleet()
        configuration: ShownConfiguration | None = self._board.value("configuration")
        shown = next((member for member in fleet.members if member.broker == broker), None)
        if shown is not None:
            member: Member | None = Member(broker, MemberState(shown.state), shown.since_ms, shown.reason)
        elif configuration is not None and broker in configuration.brokers:
            member = Member(broker, MemberState.IN_SERVICE, 0, "")
        else:
            member = None
        if refusal := why_member_order_refused(kind, broker, member, None):
            raise OrderRefusedError(409, f"{refusal}.")

    def _check_left_behind(self, broker: str) -> None:
        """Raise OrderRefusedError if a drain leaves clients behind for all that is shown."""
        network = self._board.value("network")
        counts_of = {} if network is None else subscribers_shown(network)
        if counts_of or network is None:
            text = left_behind_text([broker], counts_of)
            raise OrderRefusedError(409, f'{text} Send "leaves_clients": true to accept that.')

    def _check_plan(self, request: OrderRequest) -> str:
        kind, subject = request.kind, request.subject
        plans: Sequence[ShownPlan] = self._board.value("plans") or ()
        shown = next((plan for plan in reversed(plans) if plan.plan == subject), None)
        if shown is None:
            raise OrderRefusedError(409, f"There is no plan {subject!r} among the {len(plans)} shown.")
        if refusal := why_order_refused(kind, subject, shown.phase):
            raise OrderRefusedError(409, f"{refusal}.")
        if request.plan_digest not in ("", shown.digest):
            raise OrderRefusedError(409, f"{subject} is no longer the plan that you were shown: review it again.")
        return shown.digest
