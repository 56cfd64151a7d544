"""What parts of brokers' subscribers received in a window, separately from the others (:mod:`schemas.part_blocks`).

In: cells of parts. Out: by broker and part the notifications received and the hand-overs, as they were and as they
would have been with parts at other brokers. Which subscribers form a part is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.schemas.arrays import Words
from regraft.schemas.part_blocks import REST

PartKey = tuple[str, int]  # A broker, and the number of a part of its subscribers.
Masks = Mapping[tuple[str, int], int]  # By publisher and block.


@dataclass(frozen=True, eq=False)
class ReceivedPart:
    """What one part received: ``masks`` by publisher and block, ``handed`` counts its hand-overs by publisher."""

    masks: Masks
    handed: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of_planes(
        cls, planes: Iterable[tuple[tuple[str, int], int, int]], sets: DeliverySets, share: float
    ) -> ReceivedPart:
        """Build from (publisher and block, plane, mask); only what is in the sets counts, ``share`` of everything."""
        published = dict(zip(sets.columns, sets.published.tolist(), strict=True))
        masks: dict[tuple[str, int], int] = {}
        handed: dict[str, float] = {}
        for column, plane, mask in planes:
            kept = mask & published.get(column, 0)
            if kept:
                masks[column] = masks.get(column, 0) | kept
                handed[column[0]] = handed.get(column[0], 0.0) + (kept.bit_count() << plane) / share
        return cls(masks, handed)

    def words(self, columns: Mapping[tuple[str, int], int]) -> Words:
        """Return the masks as a row over ``columns``, which maps them to positions."""
        row = np.zeros(len(columns), dtype=np.uint64)
        for column, mask in self.masks.items():
            if column in columns:
                row[columns[column]] = mask
        return row


@dataclass(frozen=True, eq=False)
class WindowParts:
    """All reported parts of a window's brokers."""

    received: Mapping[PartKey, ReceivedPart] = field(default_factory=dict)

    def are_reported_at(self, broker: str) -> bool:
        """Return True if a broker reported parts of its deliveries."""
        return any(source == broker for source, _ in self.received)

    def over(self, brokers: Iterable[str]) -> WindowParts:
        """Return the parts of these brokers."""
        members = frozenset(brokers)
        return WindowParts({key: part for key, part in self.received.items() if key[0] in members})

    def moved(self, delivered: Words, sets: DeliverySets, to: Mapping[PartKey, str]) -> tuple[Words, WindowParts]:
        """Return what would have been delivered with these parts at other brokers, and the parts after that.

        ``delivered`` is by broker and column of the sets. What a broker delivered outside its parts belongs to the
        rest. Raises KeyError for an unknown broker.
        """
        row = {broker: place for place, broker in enumerate(sets.brokers)}
        columns = {column: place for place, column in enumerate(sets.columns)}
        brokers = {broker for broker, _ in to} | set(to.values())
        rests = {broker: self._rest(broker, delivered[row[broker]], columns) for broker in brokers}
        placed: dict[PartKey, ReceivedPart] = {}
        for key, part in self.received.items():
            if key[1] != REST:
                there = (to.get(key, key[0]), key[1])
                placed[there] = part if there not in placed else _union(placed[there], part)
        moved = delivered.copy()
        for broker, rest in rests.items():
            words = rest.copy()
            for (at, _), part in placed.items():
                if at == broker:
                    words |= part.words(columns)
            moved[row[broker]] = words
            placed[broker, REST] = ReceivedPart(_masks(rest, sets))
        untouched = {key: part for key, part in self.received.items() if key[1] == REST and key[0] not in rests}
        return moved, WindowParts(untouched | placed)

    def received_by_others(self, key: PartKey, delivered: Words, columns: Mapping[tuple[str, int], int]) -> Words:
        """Return what the subscribers of a part's broker outside that part received.

        ``delivered`` is what the broker delivered over ``columns``, which maps them to positions.
        """
        words = self._rest(key[0], delivered, columns)
        for other, part in self.received.items():
            if other[0] == key[0] and other[1] not in (REST, key[1]):
                words |= part.words(columns)
        return words

    def _rest(self, broker: str, delivered: Words, columns: Mapping[tuple[str, int], int]) -> Words:
        """Return what the subscribers of a broker received that are in no part."""
        in_parts, rest = np.zeros_like(delivered), np.zeros_like(delivered)
        for (at, number), part in self.received.items():
            if at == broker and number == REST:
                rest |= part.words(columns)
            elif at == broker:
                in_parts |= part.words(columns)
        return np.asarray((rest | ~in_parts) & delivered)


def _masks(words: Words, sets: DeliverySets) -> dict[tuple[str, int], int]:
    return {sets.columns[place]: int(words[place]) for place in np.flatnonzero(words).tolist()}


def _union(one: ReceivedPart, other: ReceivedPart) -> ReceivedPart:
    masks, handed = dict(one.masks), dict(one.handed)
    for column, mask in other.masks.items():
        masks[column] = masks.get(column, 0) | mask
    for publisher, count in other.handed.items():
        handed[publisher] = handed.get(publisher, 0.0) + count
    return replace(one, masks=masks, handed=handed)
