"""Read the register of clients, the compacted topic, and keep it up to date."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import structlog
from confluent_kafka import Message

from regraft.controller.ports.topic_readers import TopicReader
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.process.handle_each import handle_each
from regraft.overlay.registered_clients import RegisteredClients
from regraft.schemas.client import Client
from regraft.schemas.dead_letter import DeadLetter
from regraft.schemas.topics import CLIENTS, topic_name

log = structlog.get_logger(__name__)

MESSAGES_PER_COUNT_MAX = 2000  # Some tens of milliseconds: a register of a million clients must not block the loop.
SUBSCRIPTIONS_MAX = 1_000_000  # Subscriptions and publishers kept, some 100 MB.


class KafkaClientRegister:
    """Reads the register of clients from its beginning, a bounded number of records per call.

    Its answers are known once the register has been read to its end. Beyond SUBSCRIPTIONS_MAX the register is dropped,
    and everything stays unknown.
    """

    def __init__(self, kafka: KafkaAccess, namespace: str, on_letter: Callable[[DeadLetter], None]) -> None:
        self._topic = topic_name(CLIENTS, namespace)
        self._reader = TopicReader(kafka, {self._topic: Client}, 0, on_letter)
        self._failed: Counter[str] = Counter()
        self._clients = RegisteredClients()
        self._is_read = False
        self._is_too_large = False

    @property
    def undecodable(self) -> Counter[str]:
        """The number of records that did not decode, by topic, and of those whose handling failed."""
        return self._reader.undecodable + self._failed

    @property
    def error(self) -> str:
        """Why nothing is known; empty if it is."""
        if self._is_too_large:
            return f"the register of clients has more than {SUBSCRIPTIONS_MAX} subscriptions"
        return "" if self._is_read else "the register of clients is not yet read to its end"

    @property
    def is_loading(self) -> bool:
        """Return True if answers may be known soon."""
        return not (self._is_read or self._is_too_large)

    def count(self) -> int | None:
        """Read new records, and return the number of subscriptions; None while unknown."""
        if self._is_too_large:
            return None
        messages = self._reader.messages(MESSAGES_PER_COUNT_MAX)
        handle_each(messages, self._take, self._failed, f"failed: {self._topic}")
        if self._clients.held_count > SUBSCRIPTIONS_MAX:
            self._drop_register()
            return None
        self._is_read = self._is_read or self._reader.has_read_all()
        return self._clients.subscription_count if self._is_read else None

    @property
    def registered(self) -> RegisteredClients:
        """All clients, as of the last :meth:`count`; none while unknown."""
        return self._clients if self._is_read else RegisteredClients()

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()

    def _take(self, message: Message) -> None:
        client = self._reader.decoded(message)
        if client is not None:
            self._clients.put(client)
        elif message.value() is None:
            self._clients.remove((message.key() or b"").decode(errors="replace"))

    def _drop_register(self) -> None:
        self._is_too_large = True
        self._clients = RegisteredClients()
        log.warning(
            "register_dropped",
            reason=f"{self.error}: nothing is decided on a ring; on a tree set controller.subscription_lifetime_s",
        )
