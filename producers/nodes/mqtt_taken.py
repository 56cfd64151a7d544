"""What a door has taken of an MQTT broker, so that what that sends again, as it has not heard so, is taken once. Pure.

In: messages with numbers (QoS 1). Out: receipts, and the numbers that may be acknowledged. A number is the broker's: it
names another message once this one is acknowledged, or in another session. A receipt is ours and never names another.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

from mqtt5 import PublishPacket

TAKEN_MAX = 1_000  # Numbers of messages that the broker might send again.


class Taken(Protocol):
    """What was taken."""

    def begin(self) -> None:
        """Note that the broker has begun another session: it will send nothing again."""
        ...

    def take(self, packet: PublishPacket, packet_id: int) -> int | None:
        """Return the receipt of a message, 0 where nobody waits for one; None if it was taken before."""
        ...

    def may_forget(self, packet_id: int) -> bool:
        """Return True if what was taken before with this number may be acknowledged now."""
        ...

    def release(self, receipt: int, is_connected: bool) -> int:
        """Note that a message is safe; return the number to acknowledge now, 0 for none."""
        ...


class TakenAtOnce:
    """Of a session that is over with the node: each message is acknowledged as it is taken."""

    def __init__(self) -> None:
        self._contents: OrderedDict[int, int] = OrderedDict()  # Number -> hash of what came with it last.

    def begin(self) -> None:
        """Forget all."""
        self._contents.clear()

    def take(self, packet: PublishPacket, packet_id: int) -> int | None:
        """Know a message by its number, its content and the broker's word that it was sent before."""
        content = hash((packet.topic, packet.payload))
        if packet.duplicate and self._contents.get(packet_id) == content:
            return None
        self._contents[packet_id] = content
        self._contents.move_to_end(packet_id)
        if len(self._contents) > TAKEN_MAX:
            self._contents.popitem(last=False)
        return 0

    def may_forget(self, packet_id: int) -> bool:
        """Return True: it was to be acknowledged before."""
        return True

    def release(self, receipt: int, is_connected: bool) -> int:
        """Return 0: no message has a receipt."""
        return 0


class TakenUntilSafe:
    """Of a durable session: a message is acknowledged once it is safe, or when it comes again after that."""

    def __init__(self) -> None:
        self._last_receipt = 0
        self._receipts: dict[int, int] = {}  # Number of what is not acknowledged -> its receipt, 0 once it is safe.
        self._packet_ids: dict[int, int] = {}  # The other way round, while it is not safe.

    def begin(self) -> None:
        """Forget all: receipts of before name nothing."""
        self._receipts.clear()
        self._packet_ids.clear()

    def take(self, packet: PublishPacket, packet_id: int) -> int | None:
        """Know a message by its number alone, as that names no other one before it is acknowledged."""
        if packet_id in self._receipts:
            return None
        self._last_receipt += 1
        self._receipts[packet_id] = self._last_receipt
        self._packet_ids[self._last_receipt] = packet_id
        return self._last_receipt

    def may_forget(self, packet_id: int) -> bool:
        """Return True if it has become safe while the broker was away."""
        if is_safe := not self._receipts[packet_id]:
            del self._receipts[packet_id]
        return is_safe

    def release(self, receipt: int, is_connected: bool) -> int:
        """Return the number if the broker is there; else it is acknowledged when the message comes again."""
        packet_id = self._packet_ids.pop(receipt, 0)
        if not packet_id:
            return 0
        if is_connected:
            del self._receipts[packet_id]
            return packet_id
        self._receipts[packet_id] = 0
        return 0
