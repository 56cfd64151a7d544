"""What one broker published and delivered, gathered in the cells that telemetry carries (schemas.telemetry.Delivery).

In: one notification after the other. Out: the cells that changed since they were last taken. When they are sent
belongs to :mod:`producers.emit_telemetry`.
"""

from __future__ import annotations

from producers.broker_messages import Notification
from schemas.telemetry import BLOCK_SIZE, Delivery

SECOND_MS = 1_000
SIGN_BIT = 1 << (BLOCK_SIZE - 1)
_CellKey = tuple[int, str, int]  # second, publisher, block


class DeliveryCells:
    """Cumulative cells of one broker; those older than ``keep_s`` in publish time are forgotten.

    A notification that comes still later opens its cell anew, which the idempotent aggregates bear: its bit is set,
    and counts may only be too low.
    """

    def __init__(self, keep_s: int) -> None:
        self._keep_s = keep_s
        self._cells: dict[int, dict[_CellKey, list[int]]] = {}  # second -> cell -> [mask, local deliveries, bytes]
        self._changed: dict[_CellKey, list[int]] = {}

    def note(self, notification: Notification, local_delivery_count: int) -> None:
        """Set the notification's bit and add hand-overs to local subscriptions, 0 when it was only published here."""
        block, bit = divmod(notification.sequence, BLOCK_SIZE)
        second = int(notification.publish_ms) // SECOND_MS
        key = (second, notification.publisher, block)
        cells = self._cells.get(second)
        if cells is None:
            cells = self._cells[second] = {}
        cell = cells.get(key)
        if cell is None:
            cell = cells[key] = [0, 0, 0]
        cell[0] |= 1 << bit
        cell[1] += local_delivery_count
        cell[2] += local_delivery_count * notification.size_bytes
        self._changed[key] = cell

    def take_changed(self, now_ms: float) -> tuple[Delivery, ...]:
        """Return the cells that changed since the last call, in order of time, publisher and block."""
        taken = tuple(
            Delivery(publisher, block, second, mask - ((mask & SIGN_BIT) << 1), local_deliveries, size_bytes)
            for (second, publisher, block), (mask, local_deliveries, size_bytes) in sorted(self._changed.items())
        )
        self._changed.clear()
        oldest = int(now_ms) // SECOND_MS - self._keep_s
        for second in [second for second in self._cells if second < oldest]:
            del self._cells[second]
        return taken
