"""Read the orders of people, a compacted topic, from its beginning, and then as they come.

In: Order records. Out: orders in the order of the topic, and whether all that stood at the start are known. What an
order means belongs to :mod:`schemas.order_book`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from controller.ports.kafka_links import TopicReader
from infra.kafka_access import KafkaAccess
from schemas.dead_letter import DeadLetter
from schemas.order import Order
from schemas.topics import ORDERS, topic_name


class KafkaOrders:
    """The orders topic; until it has been read once, ``is_known`` is False and nothing should be decided."""

    def __init__(self, kafka: KafkaAccess, namespace: str, bury: Callable[[DeadLetter], None]) -> None:
        self._reader = TopicReader(kafka, {topic_name(ORDERS, namespace): Order}, 0, bury)
        self._is_known = False

    def poll(self) -> list[Order]:
        """Return what has come since, at most a bounded number; does not wait."""
        return self._reader.poll()

    @property
    def is_known(self) -> bool:
        """Tell whether all orders that stood at the start have been handed out; asks Kafka until then."""
        if not self._is_known:
            self._is_known = self._reader.has_read_all()
        return self._is_known

    @property
    def undecodable(self) -> Counter[str]:
        """How many records did not decode, by topic."""
        return self._reader.undecodable

    def close(self) -> None:
        """Let go of the connection."""
        self._reader.close()
