"""Which messages a connector has taken from an MQTT broker, so that those it sends again are taken only once. Pure.

The broker reuses a packet ID once its message is acknowledged, and in another session; a receipt is the connector's and
never reused.
"""

from __future__ import annotations

from collections import OrderedDict

from mqtt5 import PublishPacket

TAKEN_MAX = 1_000  # Packet IDs of messages that the broker might send again.


class TakenAtOnce:
    """For a session that ends with the node: each message is acknowledged when it is taken."""

    def __init__(self) -> None:
        self._contents: OrderedDict[int, int] = OrderedDict()  # Packet ID -> hash of its last message.

    def begin(self) -> None:
        """Forget all."""
        self._contents.clear()

    def take(self, packet: PublishPacket, packet_id: int) -> int | None:
        """Recognise a repeat by packet ID, content and the broker's DUP flag."""
        content = hash((packet.topic, packet.payload))
        if packet.duplicate and self._contents.get(packet_id) == content:
            return None
        self._contents[packet_id] = content
        self._contents.move_to_end(packet_id)
        if len(self._contents) > TAKEN_MAX:
            self._contents.popitem(last=False)
        return 0

    def may_forget(self, packet_id: int) -> bool:
        """Return True: the message was due for acknowledgement when it was taken."""
        return True

    def release(self, receipt: int, is_connected: bool) -> int:
        """Return 0: no message has a receipt."""
        return 0


class TakenUntilSafe:
    """For a durable session: a message is acknowledged once it is safe, or when it is sent again after that."""

    def __init__(self) -> None:
        self._last_receipt = 0
        self._receipts: dict[int, int] = {}  # Unacknowledged packet ID -> its receipt, 0 once it is safe.
        self._packet_ids: dict[int, int] = {}  # Receipt -> packet ID, until it is safe.

    def begin(self) -> None:
        """Forget all: earlier receipts no longer name anything."""
        self._receipts.clear()
        self._packet_ids.clear()

    def take(self, packet: PublishPacket, packet_id: int) -> int | None:
        """Recognise a repeat by packet ID alone: it is not reused before it is acknowledged."""
        if packet_id in self._receipts:
            return None
        self._last_receipt += 1
        self._receipts[packet_id] = self._last_receipt
        self._packet_ids[self._last_receipt] = packet_id
        return self._last_receipt

    def may_forget(self, packet_id: int) -> bool:
        """Return True, once, if the message became safe while the broker was away."""
        if is_safe := not self._receipts[packet_id]:
            del self._receipts[packet_id]
        return is_safe

    def release(self, receipt: int, is_connected: bool) -> int:
        """Return the packet ID if the broker is connected; else it is acknowledged when the message is sent again."""
        packet_id = self._packet_ids.pop(receipt, 0)
        if not packet_id:
            return 0
        if is_connected:
            del self._receipts[packet_id]
            return packet_id
        self._receipts[packet_id] = 0
        return 0


Taken = TakenAtOnce | TakenUntilSafe
