"""Count the subscriptions there are, from the compacted topic of clients.

In: Client records and their tombstones. Out: a number. Homes and interests of clients do not belong here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import structlog
from confluent_kafka import Message

from controller.kafka_links import TopicReader
from schemas.client import Client, Role
from schemas.dead_letter import DeadLetter
from schemas.topics import CLIENTS, topic_name

log = structlog.get_logger(__name__)

MESSAGES_PER_COUNT_MAX = 2000  # Some tens of milliseconds: a register of a million clients must not stop the loop.
SUBSCRIPTIONS_MAX = 1_000_000  # Names kept, about 100 MB.


class KafkaSubscriptionCounter:
    """Reads the register of clients from its beginning on, a bounded number of records a call.

    The number is known from when the register has once been read to its end. Beyond SUBSCRIPTIONS_MAX the register is
    let go of, and the number stays unknown.
    """

    def __init__(self, bootstrap: str, namespace: str, bury: Callable[[DeadLetter], None]) -> None:
        self._reader = TopicReader(bootstrap, {topic_name(CLIENTS, namespace): Client}, 0, bury)
        self._subscribers: set[bytes] = set()
        self._is_read = False
        self._is_too_large = False

    @property
    def undecodable(self) -> Counter[str]:
        """How many records did not decode, by topic."""
        return self._reader.undecodable

    def count(self) -> int | None:
        """Take in what has come since, and return how many subscriptions there are; None while that is not known."""
        if self._is_too_large:
            return None
        for message in self._reader.messages(MESSAGES_PER_COUNT_MAX):
            self._take(message)
        if len(self._subscribers) > SUBSCRIPTIONS_MAX:
            self._let_go()
            return None
        self._is_read = self._is_read or self._reader.has_read_all()
        return len(self._subscribers) if self._is_read else None

    def close(self) -> None:
        """Let go of the connection."""
        self._reader.close()

    def _take(self, message: Message) -> None:
        name = message.key() or b""
        client = self._reader.decoded(message)
        if client is not None and client.role is Role.SUBSCRIBER:
            self._subscribers.add(name)
        elif message.value() is None:
            self._subscribers.discard(name)

    def _let_go(self) -> None:
        self._is_too_large = True
        self._subscribers.clear()
        log.warning(
            "subscriptions_not_counted",
            reason=f"more than {SUBSCRIPTIONS_MAX}: give their lifetime, controller.subscription_lifetime_s",
        )
