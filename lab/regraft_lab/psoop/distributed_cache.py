"""Caches of the notification ids that each broker recently published or delivered, and delivery sets made from ids.

An id has 64 bits: the publisher's number and the sequence number, so that sets can be rebuilt from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from regraft.api.brokers import Notification
from regraft.api.emulation import DeliveryCells
from regraft.api.overlays import DeliverySets
from regraft.api.records import BLOCK_SIZE

Ids = NDArray[np.uint64]
SECOND_MS = 1_000.0
SEQUENCE_BITS = 32
BLOCK_BITS = BLOCK_SIZE.bit_length() - 1


class NotificationIds:
    """Makes ids of notifications; publishers are numbered in the order in which they first appear."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def id_of(self, notification: Notification) -> int:
        """Return the notification's id."""
        number = self._numbers.setdefault(notification.publisher, len(self._numbers))
        return number << SEQUENCE_BITS | notification.sequence

    def sets_of(self, brokers: tuple[str, ...], ids_of_broker: Sequence[Ids], span_s: float) -> DeliverySets:
        """Return the delivery sets of the brokers' ids, with rows in the order of ``brokers``."""
        publishers = list(self._numbers)
        keys = np.unique(np.concatenate([np.unique(ids >> np.uint64(BLOCK_BITS)) for ids in ids_of_broker]))
        shift, mask = SEQUENCE_BITS - BLOCK_BITS, (1 << (SEQUENCE_BITS - BLOCK_BITS)) - 1
        columns = [(publishers[key >> shift], key & mask) for key in keys.tolist()]
        order = sorted(range(len(columns)), key=columns.__getitem__)
        words = np.zeros((len(brokers), len(columns)), dtype=np.uint64)
        for row, ids in zip(words, ids_of_broker, strict=True):
            places = np.searchsorted(keys, ids >> np.uint64(BLOCK_BITS))
            np.bitwise_or.at(row, places, np.uint64(1) << (ids & np.uint64(BLOCK_SIZE - 1)))
        words = words[:, order]
        return DeliverySets(brokers, tuple(columns[place] for place in order), words, span_s, words)


class NotificationCache:
    """The newest ``count_max`` distinct ids that one broker published or delivered.

    Ids are numbered from 0 in order of arrival; ``noted_count`` is the number of the next one, so that views of the
    cache at different times can be aligned.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._ids: Ids = np.empty(2 * count_max, dtype=np.uint64)
        self._end = 0
        self._cached: set[int] = set()
        self.noted_count = 0

    @property
    def ids(self) -> Ids:
        """The ids, oldest first; a view that the next :meth:`note` may change."""
        return self._ids[max(0, self._end - self._count_max) : self._end]

    def newest(self, count: int) -> Ids:
        """Return at most the last ``count`` ids."""
        ids = self.ids
        return ids[max(0, len(ids) - count) :]

    def note(self, notification_id: int) -> None:
        """Add an id unless it is cached; a full cache drops its oldest id."""
        if notification_id in self._cached:
            return
        if self._end == len(self._ids):
            self._ids[: self._count_max] = self._ids[self._count_max :]
            self._end = self._count_max
        if len(self._cached) == self._count_max:
            self._cached.discard(int(self._ids[self._end - self._count_max]))
        self._ids[self._end] = notification_id
        self._end += 1
        self.noted_count += 1
        self._cached.add(notification_id)


@dataclass
class TrafficRecord:
    """The true delivery sets of a span: which brokers published or delivered what was published from ``since_ms`` on.

    ``until_ms`` ends the span; call :meth:`sets` only after everything published in it has been delivered.
    """

    brokers: tuple[str, ...]
    since_ms: float = float("inf")
    until_ms: float = float("inf")
    ids_of_broker: dict[str, list[int]] = field(default_factory=dict)

    def note(self, broker: str, notification_id: int, publish_ms: float) -> None:
        """Record the notification if it was published in the span."""
        if self.since_ms <= publish_ms < self.until_ms:
            self.ids_of_broker.setdefault(broker, []).append(notification_id)

    def sets(self, ids: NotificationIds) -> DeliverySets:
        """Return the delivery sets of the span; raise ValueError unless both ends are set, in order."""
        span_s = (self.until_ms - self.since_ms) / SECOND_MS
        if not 0 < span_s < float("inf"):
            raise ValueError(f"the span runs from {self.since_ms:g} to {self.until_ms:g} ms: set both ends, in order")
        rows = [np.array(self.ids_of_broker.get(broker, []), dtype=np.uint64) for broker in self.brokers]
        return ids.sets_of(self.brokers, rows, span_s)


class CachingCells(DeliveryCells):
    """Replaces a broker's telemetry cells and keeps ids instead, because the experiment sends no telemetry."""

    def __init__(self, broker: str, ids: NotificationIds, cache: NotificationCache, traffic: TrafficRecord) -> None:
        super().__init__(keep_s=0)
        self._broker = broker
        self._ids = ids
        self._cache = cache
        self._traffic = traffic

    def note_delivered(self, notification: Notification, local_delivery_count: int) -> None:
        """Cache the notification's id."""
        self.note_published(notification)

    def note_published(self, notification: Notification) -> None:
        """Cache the notification's id; a cache does not distinguish published from delivered."""
        notification_id = self._ids.id_of(notification)
        self._cache.note(notification_id)
        self._traffic.note(self._broker, notification_id, notification.publish_ms)
