"""Which orders were answered as refused, by any leader: the audit remembers it, and none of them is ever executed.

In: the topic of the audit. Out: whether an order was refused. A leader without the keys, or before a broker was a
member, may have refused what its successor would accept; its answer holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec

from regraft.controller.ports.kafka_links import TopicReader
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.schemas.audit import AuditEntry, AuditOutcome, GivenOrder
from regraft.schemas.dead_letter import DeadLetter
from regraft.schemas.topics import AUDIT, topic_name

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
