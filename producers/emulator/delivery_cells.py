"""What one broker delivered and published, gathered in the cells that telemetry carries (schemas.telemetry.Delivery).

In: one notification after the other. Out: the cells that changed since they were last taken. When they are sent
belongs to :mod:`producers.emulator.emit_telemetry`.
"""

from __future__ import annotations

from regraft.producers.brokers.broker_messages import Notification
from regraft.schemas.telemetry import BLOCK_SIZE, Delivery

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
        # second -> cell -> [delivered bits, local deliveries, bytes, published bits]
        self._cells: dict[int, dict[_CellKey, list[int]]] = {}
        self._changed: dict[_CellKey, list[int]] = {}

    def note_delivered(self, notification: Notification, local_delivery_count: int) -> None:
        """Set the notification's bit among those delivered, and add its hand-overs to local subscriptions."""
        cell = self._changing_cell(notification)
        cell[0] |= 1 << notification.sequence % BLOCK_SIZE
        cell[1] += local_delivery_count
        cell[2] += local_delivery_count * notification.size_bytes

    def note_published(self, notification: Notification) -> None:
        """Set the notification's bit among those that a local client published."""
        self._changing_cell(notification)[3] |= 1 << notification.sequence % BLOCK_SIZE

    def take_changed(self, now_ms: float) -> tuple[Delivery, ...]:
        """Return the cells that changed since the last call, in order of time, publisher and block."""
        taken = tuple(
            Delivery(publisher, block, second, _signed(mask), local_deliveries, size_bytes, _signed(published))
            for (second, publisher, block), (mask, local_deliveries, size_bytes, published) in sorted(
                self._changed.items()
            )
        )
        self._changed.clear()
        oldest = int(now_ms) // SECOND_MS - self._keep_s
        for second in [second for second in self._cells if second < oldest]:
            del self._cells[second]
        return taken

    def _changing_cell(self, notification: Notification) -> list[int]:
        second = int(notification.publish_ms) // SECOND_MS
        key = (second, notification.publisher, notification.sequence // BLOCK_SIZE)
        cells = self._cells.get(second)
        if cells is None:
            cells = self._cells[second] = {}
        cell = cells.get(key)
        if cell is None:
            cell = cells[key] = [0, 0, 0, 0]
        self._changed[key] = cell
        return cell


def _signed(mask: int) -> int:
    return mask - ((mask & SIGN_BIT) << 1)
