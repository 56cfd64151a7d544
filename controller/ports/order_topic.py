"""Read the orders of operators, a compacted topic, from its beginning, and then as they come.

In: Order records. Out: orders in the order of the topic, each checked to be its giver's, and whether all that stood at
the start are known. What an order means belongs to :mod:`schemas.order_book`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec
from confluent_kafka import Message
from msgspec.structs import replace

from regraft.controller.ports.topic_readers import RECORDS_PER_POLL_MAX, TopicReader
from regraft.infra.kafka.decode_strictly import decode_strictly
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.orders.judge_orders import open_judge
from regraft.infra.orders.order_keys import OrderSettings
from regraft.schemas.audit import AuditEntry, AuditOutcome, GivenOrder
from regraft.schemas.codec import is_newer
from regraft.schemas.dead_letter import DeadLetter
from regraft.schemas.order import Order
from regraft.schemas.topics import AUDIT, ORDERS, topic_name

REFUSED_MAX = 200_000  # The oldest are forgotten first; the topic of orders keeps one of each subject.
REFUSED_BEFORE = "it was refused before: give it again"


class RefusedOrders:
    """Reads the audit from its beginning; ``is_known`` is whether its end has been reached once."""

    def __init__(self, kafka: KafkaAccess, namespace: str, on_letter: Callable[[DeadLetter], None]) -> None:
        self._reader = TopicReader(kafka, {topic_name(AUDIT, namespace): AuditEntry}, 0, on_letter)
        self._refused: dict[tuple[int, int], None] = {}
        self.is_known = False

    @property
    def undecodable(self) -> Counter[str]:
        """The number of records that did not decode, by topic."""
        return self._reader.undecodable

    def read(self) -> None:
        """Read new entries, a bounded number; does not wait."""
        for entry in self._reader.poll():
            if entry.outcome is AuditOutcome.REFUSED and entry.offset >= 0:
                self._refused[entry.offset, entry.written_ms] = None
        while len(self._refused) > REFUSED_MAX:
            del self._refused[next(iter(self._refused))]
        self.is_known = self.is_known or self._reader.has_read_all()

    def judged(self, given: GivenOrder) -> GivenOrder:
        """Return the order, refused and not new if it was refused before."""
        if (given.offset, given.written_ms) not in self._refused:
            return given
        return msgspec.structs.replace(given, refusal=given.refusal or REFUSED_BEFORE, is_new=False)

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()


class KafkaOrders:
    """The orders topic; until it has been read once, ``is_known`` is False and no decisions should be made.

    It is read again from its beginning when the trusted keys change: orders signed by a key that is no longer trusted
    become void. The position up to which outcomes were reported is committed in Kafka once ``is_flushed`` returns that
    all reports are stored, so that each is reported once, even through restarts. Nothing is returned before the audit
    has been read: an order that was refused before, by whichever leader, stays refused.
    """

    def __init__(
        self,
        kafka: KafkaAccess,
        namespace: str,
        on_letter: Callable[[DeadLetter], None],
        orders: OrderSettings,
        is_flushed: Callable[[], bool] = lambda: True,
    ) -> None:
        self._topic = topic_name(ORDERS, namespace)
        self._reader = TopicReader(kafka, {self._topic: Order}, 0, on_letter)
        self._refused = RefusedOrders(kafka, namespace, on_letter)
        self._judge, self._keys = open_judge(orders, namespace)
        self._is_flushed = is_flushed
        self._is_known = False
        self._unreadable: dict[bytes | None, Message] = {}  # By key, what has not been replaced since.
        self._reported_below: int | None = None
        self._committed = 0
        self._keys_version = self._keys.version
        self._begun_count = 0

    @property
    def version(self) -> int:
        """The number of times that the topic was read again from its beginning."""
        return self._begun_count

    def poll(self) -> list[GivenOrder]:
        """Return new orders, at most a bounded number; does not wait.

        Raises UnreadableRecordError if an order that stands at the start was written by a newer version, because it
        might forbid what would be done next. Any other one that cannot be read becomes a dead letter, like later ones.
        """
        self._commit()
        self._keys.refresh()
        if self._keys.version != self._keys_version:
            self._keys_version = self._keys.version
            self._reader.start_over()
        if self._reported_below is None:
            self._reported_below = self._reader.committed(self._topic)
            self._committed = self._reported_below or 0
        self._refused.read()
        if self._reported_below is None or not self._refused.is_known:
            return []
        messages = self._reader.messages(RECORDS_PER_POLL_MAX)
        if self._reader.assigned_count != self._begun_count:
            self._begun_count, self._is_known = self._reader.assigned_count, False
            self._judge.forget()
        orders = [given for given in map(self._given, messages) if given is not None]
        if not self._is_known and self._reader.has_read_all():
            self._is_known = True
            if self._begun_count == 1:
                self._refuse_unreadable()
        return orders

    def _refuse_unreadable(self) -> None:
        for message in self._unreadable.values():
            if is_newer(message.value() or b"", Order):
                decode_strictly(message, Order)

    def _given(self, message: Message) -> GivenOrder | None:
        offset, order = message.offset() or 0, self._reader.decoded(message)
        self._unreadable.pop(message.key(), None)
        is_new, self._reported_below = offset >= (self._reported_below or 0), max(offset + 1, self._reported_below or 0)
        if order is None and message.value() is not None:
            if not self._is_known:
                self._unreadable[message.key()] = message
            return None  # It did not decode, and became a dead letter.
        return self._refused.judged(replace(self._judge.given(message, order), is_new=is_new))

    @property
    def is_known(self) -> bool:
        """Return True if all orders that stood at the start have been returned."""
        return self._is_known

    @property
    def undecodable(self) -> Counter[str]:
        """The number of records that did not decode, by topic."""
        return self._reader.undecodable + self._refused.undecodable

    def close(self) -> None:
        """Close the connection."""
        self._commit()
        self._reader.close()
        self._refused.close()

    def _commit(self) -> None:
        if self._reported_below is not None and self._reported_below > self._committed and self._is_flushed():
            self._committed = self._reported_below
            self._reader.commit(self._topic, self._committed)
