"""What operators have ordered and what of it is in force: pauses, brokers in maintenance, orders about plans."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from regraft.schemas.order import WHOLE_OVERLAY, Order, OrderKind

PLAN_ORDERS_KEPT_MAX = 10_000  # Orders about plans; the oldest concern plans that ended long ago.
BROKER_ORDERS_KEPT_MAX = 10_000  # More brokers than any overlay has; the oldest orders are dropped first.


class OrderInForce(Struct, frozen=True, kw_only=True):
    """Who gave an order in force, why and when; it expires at ``until_ms`` unless that is 0."""

    by: str
    reason: str
    since_ms: int
    until_ms: int


class Maintenance(OrderInForce, frozen=True, kw_only=True):
    """A broker in maintenance; with ``evacuate`` its clients move away."""

    broker: str
    evacuate: bool


class OrdersInForce(Struct, frozen=True):
    """The orders in force: a pause or None, and the brokers in maintenance, sorted by name."""

    paused: OrderInForce | None = None
    maintenance: tuple[Maintenance, ...] = ()


class OrderBook:
    """The newest order about each plan, each broker and the whole overlay."""

    def __init__(self, orders: Iterable[Order] = ()) -> None:
        self._pause: Order | None = None
        self._brokers: dict[str, Order] = {}
        self._plans: dict[str, Order] = {}
        for order in orders:
            self.take(order)

    def take(self, order: Order) -> None:
        """Record an order, which replaces the previous one about the same subject.

        Orders about members are not recorded: once followed, they are in the member's record.
        """
        if order.kind is OrderKind.PAUSE:
            self._pause = order
        elif order.kind is OrderKind.RESUME:
            self._pause = None
        elif order.kind is OrderKind.MAINTAIN:
            self._brokers.pop(order.subject, None)
            self._brokers[order.subject] = order
            if len(self._brokers) > BROKER_ORDERS_KEPT_MAX:
                del self._brokers[next(iter(self._brokers))]
        elif order.kind is OrderKind.RETURN:
            self._brokers.pop(order.subject, None)
        elif order.kind.scope == "plan":
            self._plans.pop(order.subject, None)  # The newest last, so that the oldest are dropped first.
            self._plans[order.subject] = order
            if len(self._plans) > PLAN_ORDERS_KEPT_MAX:
                del self._plans[next(iter(self._plans))]

    def paused(self, now_ms: int) -> Order | None:
        """Return the pause in force, or None if there is none."""
        return self._pause if self._pause is not None and self._pause.is_in_force_at(now_ms) else None

    def maintained(self, now_ms: int) -> dict[str, Order]:
        """Return the brokers in maintenance, sorted, with the order about each."""
        return {broker: order for broker, order in sorted(self._brokers.items()) if order.is_in_force_at(now_ms)}

    def about_plan(self, plan: str) -> Order | None:
        """Return the newest order about a plan, or None if there is none."""
        return self._plans.get(plan)

    def in_force(self, now_ms: int) -> OrdersInForce:
        """Return the orders in force, for display."""
        paused = self.paused(now_ms)
        return OrdersInForce(
            None if paused is None else OrderInForce(**_why(paused)),
            tuple(
                Maintenance(broker=broker, evacuate=order.evacuate, **_why(order))
                for broker, order in self.maintained(now_ms).items()
            ),
        )


def order_text(order: Order) -> str:
    """Describe what was ordered, by whom and why, for people."""
    about = "adaptation" if order.subject == WHOLE_OVERLAY else order.subject
    asked = f"{order.kind} {about}" + (" and its clients move away" if order.evacuate else "")
    key = f" (key {order.key_name})" if order.key_name not in ("", order.by) else ""
    reason = f": {order.reason}" if order.reason else ""
    return f"{asked}, by {order.by}{key}{reason}"


def _why(order: Order) -> dict[str, Any]:
    return {"by": order.by, "reason": order.reason, "since_ms": order.time_ms, "until_ms": order.until_ms}
