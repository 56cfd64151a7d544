"""What one broker delivered and published, collected in the cells that telemetry carries (schemas.telemetry.Delivery).

In: one notification after the other. Out: the cells that changed since the last call. If only a sample is reported in
full, counts of the rest (:mod:`schemas.sampled_blocks`). Subscribers that a plan has brought here, and the single ones
that receive most, are also reported separately (:mod:`schemas.part_blocks`). When cells are sent belongs to
:mod:`producers.emulator.emit_telemetry`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from regraft.producers.brokers.broker_messages import Notification
from regraft.schemas.part_blocks import MOVED_SEPARATE_MS, REST, number_of_subscriber, part_block
from regraft.schemas.sampled_blocks import COUNTS_BLOCK_MIN, FULL, PUBLISHED_FLAG, Sampling
from regraft.schemas.telemetry import BLOCK_SIZE, Delivery
from regraft.schemas.units import SECOND_MS

CHOOSE_MS = 10_000  # Interval at which the separately reported subscribers are chosen.
KEPT_WEIGHT = 2  # A chosen subscriber remains so unless another receives more than this many times as much.
SIGN_BIT = 1 << (BLOCK_SIZE - 1)
_CellKey = tuple[int, str, int]  # second, publisher, block


@dataclass(slots=True)
class CellRule:
    """How brokers keep their cells: for how long, and what they report in full.

    ``sampling`` may change at any time, for all brokers with this rule: samples are nested.
    ``subscribers_reported_max``: how many single subscribers each broker reports separately, those that receive most.
    """

    keep_s: int
    sampling: Sampling = FULL
    subscribers_reported_max: int = 0

    def new_cells(self) -> DeliveryCells:
        """Return the cells of a broker that starts."""
        cells = DeliveryCells(self.keep_s)
        cells.rule = self
        return cells


class DeliveryCells:
    """Cumulative cells of one broker; those older than ``keep_s`` in publish time are forgotten.

    An even later notification reopens its cell, which the idempotent aggregates tolerate: its bit is set, and counts
    can only be too low.
    """

    def __init__(self, keep_s: int, sampling: Sampling = FULL) -> None:
        self.rule = CellRule(keep_s, sampling)
        # second -> cell -> [delivered bits, local deliveries, bytes, published bits]
        self._cells: dict[int, dict[_CellKey, list[int]]] = {}
        self._changed: dict[_CellKey, list[int]] = {}
        self._part_of: dict[str, int] = {}  # Part numbers of moved subscriptions.
        self._parts_until_ms = -math.inf
        self._single: dict[str, int] = {}  # Part numbers of the single subscriptions chosen.
        self._taken: Counter[str] = Counter()  # Deliveries to each since these were chosen.
        self._choose_at_ms = 0.0
        self._number_of: dict[str, int] = {}  # Both together.

    def report_separately(self, subscription: str, number: int, now_ms: float) -> None:
        """Report a subscription's deliveries under this number, and all parts, for MOVED_SEPARATE_MS from now on."""
        self._part_of[subscription] = self._number_of[subscription] = number
        self._parts_until_ms = now_ms + MOVED_SEPARATE_MS

    def note_parts(self, notification: Notification, subscriptions: Sequence[str]) -> None:
        """Count the deliveries of a notification by part, if any is reported; call once for all its subscriptions.

        A name may stand for several subscriptions of a client; those named "" are never reported separately.
        """
        sequence, publisher = notification.sequence, notification.publisher
        if self.rule.subscribers_reported_max:
            self._taken.update(subscriptions)
        if not self._number_of or not self.rule.sampling.includes(publisher, sequence):
            return
        second, bit = int(notification.publish_ms) // SECOND_MS, 1 << sequence % BLOCK_SIZE
        takers = Counter(self._number_of.get(subscription, REST) for subscription in subscriptions)
        for number, count in takers.items():
            value = 1 if number == REST else count
            for plane in range(value.bit_length()):
                block = part_block(number, plane, sequence // BLOCK_SIZE)
                if value >> plane & 1 and block is not None:
                    self._cell(second, publisher, block, is_changed=True)[0] |= bit

    def note_delivered(self, notification: Notification, local_delivery_count: int) -> None:
        """Set the notification's bit among those delivered, and add its deliveries to local subscriptions."""
        cell, is_full = self._changing_cell(notification)
        cell[0] |= is_full << notification.sequence % BLOCK_SIZE
        cell[1] += local_delivery_count
        cell[2] += local_delivery_count * notification.size_bytes

    def note_published(self, notification: Notification) -> None:
        """Set the notification's bit among those that a local client published."""
        cell, is_full = self._changing_cell(notification)
        cell[3] |= 1 << notification.sequence % BLOCK_SIZE if is_full else PUBLISHED_FLAG

    def pop_changed(self, now_ms: float = math.inf) -> tuple[Delivery, ...]:
        """Return the cells that changed since the last call, ordered by time, publisher and block.

        Counts of an unfinished span wait for its end, so that they are sent once. Without a time, all are returned.
        """
        kept = self._kept_until_over(now_ms)
        taken = tuple(
            Delivery(publisher, block, second, _signed(mask), local_deliveries, size_bytes, _signed(published))
            for (second, publisher, block), (mask, local_deliveries, size_bytes, published) in sorted(
                self._changed.items()
            )
        )
        self._changed = kept
        if now_ms < math.inf:
            oldest = int(now_ms) // SECOND_MS - self.rule.keep_s
            for second in [second for second in self._cells if second < oldest]:
                del self._cells[second]
            if self._part_of and now_ms > self._parts_until_ms:
                self._part_of.clear()
                self._number_of = dict(self._single)
            if self._taken and now_ms >= self._choose_at_ms:
                self._choose_at_ms = now_ms + CHOOSE_MS
                self._choose_single()
        return taken

    def _choose_single(self) -> None:
        """Choose the subscriptions that receive most, except those that plans have brought here lately."""
        weights = {
            name: count * (KEPT_WEIGHT if name in self._single else 1)
            for name, count in self._taken.items()
            if name and name not in self._part_of
        }
        most = sorted(weights, key=lambda name: (-weights[name], name))[: self.rule.subscribers_reported_max]
        self._single = {name: number_of_subscriber(name) for name in most}
        self._number_of = self._single | self._part_of
        self._taken.clear()

    def _kept_until_over(self, now_ms: float) -> dict[_CellKey, list[int]]:
        """Remove the counts of unfinished spans from the changed cells, and return them."""
        begun = (now_ms / SECOND_MS) - self.rule.sampling.counts_s
        waiting = [key for key in self._changed if key[2] >= COUNTS_BLOCK_MIN and key[0] > begun]
        return {key: self._changed.pop(key) for key in waiting}

    def _changing_cell(self, notification: Notification) -> tuple[list[int], bool]:
        """Return the notification's cell, and whether that is a cell with a bit for each notification."""
        second, publisher = int(notification.publish_ms) // SECOND_MS, notification.publisher
        block, sampling = notification.sequence // BLOCK_SIZE, self.rule.sampling
        if not sampling.power:
            return self._cell(second, publisher, block, is_changed=True), True
        is_full = sampling.includes(publisher, notification.sequence)
        span = second - second % sampling.counts_s
        counts = self._cell(span, publisher, sampling.counts_block, is_changed=not is_full)
        return (self._cell(second, publisher, block, is_changed=True), True) if is_full else (counts, False)

    def _cell(self, second: int, publisher: str, block: int, *, is_changed: bool) -> list[int]:
        """Return a cell, created if needed; a new one counts as changed."""
        key = (second, publisher, block)
        cells = self._cells.get(second)
        if cells is None:
            cells = self._cells[second] = {}
        cell = cells.get(key)
        if cell is None:
            cell = cells[key] = [0, 0, 0, 0]
            is_changed = True
        if is_changed:
            self._changed[key] = cell
        return cell


def _signed(mask: int) -> int:
    return mask - ((mask & SIGN_BIT) << 1)
