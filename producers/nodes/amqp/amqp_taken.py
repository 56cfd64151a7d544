"""Which messages a connector has taken from a durable queue of RabbitMQ, so that redelivered ones are taken only once.
Pure.

A tag names a message on one channel only, so after a reconnect a message is recognised by its key and body.
"""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass

ACKNOWLEDGED = 0  # The receipt of a redelivered message that was acknowledged before.
MARK_BYTES = 16


@dataclass
class _Taken:
    """An unacknowledged message; after a reconnect, ``tag`` is 0 until it is redelivered."""

    mark: bytes
    tag: int
    is_safe: bool = False


class AmqpTaken:
    """The messages under way: at most ``under_way_max``, which the queue's prefetch count ensures."""

    def __init__(self, under_way_max: int) -> None:
        self._under_way_max = under_way_max
        self._receipts = 0
        self._under_way: dict[int, _Taken] = {}
        self._acknowledged: deque[bytes] = deque(maxlen=under_way_max)
        self._due: dict[bytes, deque[int]] = {}

    @property
    def is_full(self) -> bool:
        """Return True if the broker sends no more until something is acknowledged."""
        return len(self._under_way) >= self._under_way_max

    def expect_redelivery(self) -> None:
        """Expect redelivery of all unacknowledged messages, and of those whose acknowledgement may have been lost."""
        self._due.clear()
        while len(self._under_way) > self._under_way_max:  # The queue no longer has them.
            del self._under_way[next(iter(self._under_way))]
        for receipt, taken in self._under_way.items():
            taken.tag = 0
            self._due.setdefault(taken.mark, deque()).append(receipt)
        for mark in self._acknowledged:
            self._due.setdefault(mark, deque()).append(ACKNOWLEDGED)

    def take(self, key: str, body: bytes, tag: int, *, is_redelivered: bool) -> tuple[int, int]:
        """Return the receipt of a message, 0 if it was taken before, and the tag to acknowledge now, 0 for none."""
        mark = hashlib.blake2b(key.encode(errors="replace") + b"\0" + body, digest_size=MARK_BYTES).digest()
        due = self._due.get(mark)
        if is_redelivered and due:
            receipt = due.popleft()
            taken = self._under_way.setdefault(receipt, _Taken(mark, 0, is_safe=True))
            taken.tag = tag
            return 0, self.release(receipt) if taken.is_safe else 0
        self._receipts += 1
        self._under_way[self._receipts] = _Taken(mark, tag)
        return self._receipts, 0

    def release(self, receipt: int, *, is_connected: bool = True) -> int:
        """Note that a message is safe; return the tag to acknowledge now, 0 if it must be redelivered before."""
        taken = self._under_way.get(receipt)
        if taken is None:
            return 0
        taken.is_safe = True
        if not taken.tag or not is_connected:
            return 0
        self._acknowledged.append(taken.mark)
        del self._under_way[receipt]
        return taken.tag
