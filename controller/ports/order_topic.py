"""Read the orders of people, a compacted topic, from its beginning, and then as they come.

In: Order records. Out: orders in the order of the topic, and whether all that stood at the start are known. What an
order means belongs to :mod:`schemas.order_book`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from confluent_kafka import Message

from controller.ports.kafka_links import RECORDS_PER_POLL_MAX, TopicReader
from infra.decode_strictly import decode_strictly
from infra.kafka_access import KafkaAccess
from schemas.dead_letter import DeadLetter
from schemas.order import Order
from schemas.topics import ORDERS, topic_name


class KafkaOrders:
    """The orders topic; until it has been read once, ``is_known`` is False and nothing should be decided."""

    def __init__(self, kafka: KafkaAccess, namespace: str, bury: Callable[[DeadLetter], None]) -> None:
        self._reader = TopicReader(kafka, {topic_name(ORDERS, namespace): Order}, 0, bury)
        self._standing: dict[bytes | None, Message] = {}  # The newest of each key, until the topic has been read once.
        self._is_known = False

    def poll(self) -> list[Order]:
        """Return what has come since, first all that stands at once; does not wait.

        Raises UnreadableRecordError where one of these is no order: it might forbid what would be done next. One that
        comes later becomes a dead letter.
        """
        if self._is_known:
            return self._reader.poll()
        for message in self._reader.messages(RECORDS_PER_POLL_MAX):
            self._standing.pop(message.key(), None)  # The newest stand last.
            self._standing[message.key()] = message
        if not self._reader.has_read_all():
            return []
        self._is_known = True
        orders = [decode_strictly(message, Order) for message in self._standing.values()]
        self._standing.clear()
        return [order for order in orders if order is not None]

    @property
    def is_known(self) -> bool:
        """Tell whether all orders that stood at the start have been handed out."""
        return self._is_known

    @property
    def undecodable(self) -> Counter[str]:
        """How many records did not decode, by topic."""
        return self._reader.undecodable

    def close(self) -> None:
        """Let go of the connection."""
        self._reader.close()
