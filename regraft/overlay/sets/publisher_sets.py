"""Delivery sets of publishers that may have any home, with equal sets of a publisher merged; exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.sets.distinct_sets import digit_planes, merge_sets
from regraft.overlay.sets.weighted_sets import WeightedSets
from regraft.schemas.arrays import Floats, Places, Words


@dataclass(frozen=True, eq=False)
class PublisherSets:
    """What was delivered of many notifications, each distinct set of a publisher once per binary digit of its count.

    ``words`` (brokers, words) has a bit for each; a set bit of word w stands for ``weights[w]`` notifications, in
    ``span_s`` seconds altogether. A publisher owns some bits of a few words: ``masks[k]`` are the bits of publisher
    ``owners[k]``, a position in ``publishers``, in word ``columns[k]``; owners ascend. Notifications of publishers
    without a known home are in ``words``, including the bit of the broker that published them, and in no mask.
    """

    brokers: tuple[str, ...]
    publishers: tuple[str, ...]
    words: Words
    weights: NDArray[np.float32]
    span_s: float
    owners: Places
    columns: Places
    masks: Words

    @classmethod
    def of(cls, spans: Sequence[DeliverySets], homes: Mapping[str, str]) -> PublisherSets:
        """Merge the sets of all spans; ``homes`` has the publishers whose home is known.

        Raises ValueError if there is no span.
        """
        if not spans:
            raise ValueError("no span to merge: at least one window is needed")
        brokers = spans[0].brokers
        publishers = tuple(sorted({name for span in spans for name, _ in span.columns if name in homes}))
        place_of = {name: place for place, name in enumerate(publishers)}
        parts = []
        for span in spans:
            names, rows, counts = span.distinct_delivered
            place = np.array([place_of.get(name, -1) for name in names], dtype=np.int64)[rows[:, -1].astype(np.intp)]
            owned = rows[place >= 0].copy()
            owned[:, -1] = place[place >= 0].astype(np.uint64)
            parts.append((owned, counts[place >= 0]))
        sets, counts = merge_sets(parts, 64 * (-(-len(brokers) // 64) + 1))
        # Sort by publisher, so that the sets of each share a few words.
        order = np.argsort(sets[:, -1], kind="stable")
        sets, counts = sets[order], counts[order]
        return cls._placed(brokers, publishers, sets, counts, spans, homes)

    @classmethod
    def fixed(cls, sets: WeightedSets) -> PublisherSets:
        """Build from sets over one span in which no publisher may move."""
        none = np.zeros(0, dtype=np.intp)
        return cls(
            sets.brokers,
            (),
            sets.words,
            sets.weights[:, 0],
            float(sets.spans_s[0]),
            none,
            none,
            np.zeros(0, dtype=np.uint64),
        )

    @classmethod
    def _placed(
        cls,
        brokers: tuple[str, ...],
        publishers: tuple[str, ...],
        sets: Words,
        counts: NDArray[np.int64],
        spans: Sequence[DeliverySets],
        homes: Mapping[str, str],
    ) -> PublisherSets:
        words, weights = digit_planes(sets[:, :-1], counts, len(brokers))
        owners, columns, masks = _masks_of(sets[:, -1].astype(np.intp), counts)
        outsiders = [span.of_publishers({name for name, _ in span.columns if name not in homes}) for span in spans]
        if any(span.columns for span in outsiders):
            alone = WeightedSets.over_all(outsiders)
            words = np.concatenate([words, alone.words], axis=1)
            weights = np.concatenate([weights, alone.weights[:, 0].astype(np.int64)])
        span_s = max(sum(span.span_s for span in spans), 1e-9)
        return cls(brokers, publishers, words, weights.astype(np.float32), span_s, owners, columns, masks)

    def at_homes(self, homes: Places) -> WeightedSets:
        """Return V(n) with each publisher at the broker at position ``homes`` (publishers,)."""
        words = self.words.copy()
        np.bitwise_or.at(words, (homes[self.owners], self.columns), self.masks)
        return WeightedSets(self.brokers, words, self.weights[:, None], np.array([self.span_s]))

    def counts(self, words: Words) -> Floats:
        """Return the notifications of each publisher that the bits of each row stand for, shape (publishers, rows)."""
        counts = np.zeros((len(self.publishers), len(words)))
        if len(self.owners):
            bits = np.bitwise_count(words[:, self.columns] & self.masks) * self.weights[self.columns]
            firsts = np.flatnonzero(np.concatenate([[True], self.owners[1:] != self.owners[:-1]]))
            counts[self.owners[firsts]] = np.add.reduceat(bits.T, firsts, axis=0)
        return counts

    @property
    def published(self) -> Floats:
        """The number of notifications of each publisher, shape (publishers,)."""
        return self.counts(np.full((1, self.words.shape[1]), ~np.uint64(0)))[:, 0]


def _masks_of(owner: Places, counts: NDArray[np.int64]) -> tuple[Places, Places, Words]:
    """Return owner, word and mask of each group of bits that :func:`digit_planes` makes of these sets."""
    masks: dict[tuple[int, int], int] = {}
    first = 0
    for digit in range(int(counts.max(initial=0)).bit_length()):
        having = owner[(counts >> digit) & 1 == 1]
        for place, one in enumerate(having.tolist()):
            key = one, first + place // 64
            masks[key] = masks.get(key, 0) | 1 << place % 64
        first += -(-len(having) // 64)
    keys = sorted(masks)
    owners, columns = np.array(keys, dtype=np.intp).reshape(-1, 2).T
    return owners, columns, np.array([masks[key] for key in keys], dtype=np.uint64)
