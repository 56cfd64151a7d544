"""Which brokers are in maintenance, by the orders of people.

In: orders in the order of their topic. Out: the brokers whose alerts nobody is to be told now. Orders about plans and
pauses silence nothing.
"""

from __future__ import annotations

from collections.abc import Collection

from schemas.order import Order, OrderKind


class StandingOrders:
    """The newest order about each broker, as long as it sets it aside."""

    def __init__(self) -> None:
        self._brokers: dict[str, Order] = {}

    def take(self, order: Order) -> None:
        """Take an order in the place of the one before about the same broker."""
        if order.kind is OrderKind.MAINTAIN:
            self._brokers[order.subject] = order
        elif order.kind is OrderKind.RETURN:
            self._brokers.pop(order.subject, None)

    def maintained(self, now_ms: int) -> Collection[str]:
        """Return the brokers in maintenance, sorted."""
        return [broker for broker, order in sorted(self._brokers.items()) if order.stands_at(now_ms)]
