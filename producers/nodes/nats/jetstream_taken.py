"""Which messages a node has taken from a JetStream stream, so that each is taken once, and none left out. Pure.

A consumer that was deleted forgets what was acknowledged to it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

SAFE_MAX = 10_000  # Acknowledged messages that are recognised if they come again.
Key = tuple[int, str]  # A message's number, and when it was stored: another stream of the same name begins again at 1.


@dataclass
class _UnderWay:
    key: Key
    ack: str  # The subject of its latest delivery.


class StreamTaken:
    """The messages of one stream; a receipt is the connector's and never reused."""

    def __init__(self) -> None:
        self._last_receipt = 0
        self._last_number: int | None = None  # None until a consumer has shown where it is.
        self._under_way: dict[int, _UnderWay] = {}
        self._receipts: dict[Key, int] = {}
        self._safe: OrderedDict[Key, None] = OrderedDict()

    @property
    def next_number(self) -> int | None:
        """Return the first number that a new consumer must deliver, None if nothing is known of the last one."""
        if self._under_way:
            return min(each.key[0] for each in self._under_way.values())
        return None if self._last_number is None else self._last_number + 1

    def note_floor(self, number: int) -> None:
        """Note up to which number everything was acknowledged to the consumer."""
        self._last_number = max(number, self._last_number or 0)

    def begin_again(self) -> None:
        """Note that the stream is another one: nothing of it was taken."""
        self._last_number = 0
        self._under_way.clear()
        self._receipts.clear()

    def take(self, key: Key, ack: str) -> int | None:
        """Return the receipt of a message, 0 if it is to be acknowledged again, None if it is under way."""
        if key in self._safe:
            return 0
        if (receipt := self._receipts.get(key)) is not None:
            self._under_way[receipt].ack = ack
            return None
        self._last_receipt += 1
        self._under_way[self._last_receipt] = _UnderWay(key, ack)
        self._receipts[key] = self._last_receipt
        self._last_number = max(key[0], self._last_number or 0)
        return self._last_receipt

    def release(self, receipt: int) -> str:
        """Note that a message is safe; return the subject to acknowledge to, "" for none."""
        taken = self._under_way.pop(receipt, None)
        if taken is None:
            return ""
        del self._receipts[taken.key]
        self._safe[taken.key] = None
        if len(self._safe) > SAFE_MAX:
            self._safe.popitem(last=False)
        return taken.ack
