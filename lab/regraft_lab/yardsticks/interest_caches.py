"""Caches of notification identifiers that brokers keep and exchange, whole or as Bloom filters.

In: delivery sets. Out: the newest identifiers of each broker, and the interest that each broker computes from its own
cache and the others' broadcasts. Decisions based on it do not belong here.

A broker's cache holds identifiers of what its own clients published or received (Jaeger07, section 4), which is its row
of the delivery sets. The text says both that the cache's content is exchanged (section 4) and that the filter holds the
entries added in the last interval (4.3.1); we exchange the whole cache, for which 100,000 bits with 5 hash functions
are the right size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from regraft.api.overlays import DeliverySets
from regraft_lab.yardsticks.bloom_filters import FilterShape, bit_positions, claimed_rows, notification_ids

Words = NDArray[np.uint64]
Counts = NDArray[np.int64]

PAPER_CACHE_IDS = 8192  # Jaeger07, section 5.
WORDS_AT_ONCE = 1 << 17  # 1 MB per step stays in the processor's cache: three times as fast as 8 MB.


@dataclass(frozen=True, eq=False)
class InterestCaches:
    """Each broker's own identifiers and those that its broadcast claims, as bits over the same columns.

    ``own`` and ``claimed`` have shape (brokers, columns), uint64. A whole cache claims exactly its content; a Bloom
    filter also claims false positives, of which only those in some broker's cache matter.
    """

    own: Words
    claimed: Words

    @classmethod
    def of_masks(cls, sets: DeliverySets) -> InterestCaches:
        """Build caches that are exchanged whole."""
        return cls(sets.words, sets.words)

    @classmethod
    def of_filters(cls, sets: DeliverySets, shape: FilterShape) -> InterestCaches:
        """Build caches that are exchanged as Bloom filters of one shape.

        Cost O(brokers * identifiers) look-ups: every filter is queried for every identifier in any cache.
        """
        wanted = np.bitwise_or.reduce(sets.words, axis=0) if sets.columns else np.zeros(0, dtype=np.uint64)
        anywhere = np.flatnonzero(_bits(wanted))
        positions = bit_positions(_ids(sets)[anywhere], shape)
        claimed = np.zeros_like(sets.words)
        for row, own in enumerate(sets.words):
            is_set = np.zeros(shape.bits, dtype=np.bool_)
            is_set[positions[_bits(own)[anywhere]]] = True
            claims = np.zeros(len(own) * 64, dtype=np.bool_)
            claims[anywhere[claimed_rows(is_set, positions)]] = True
            claimed[row] = _words(claims)
        return cls(sets.words, claimed)

    @cached_property
    def interest(self) -> Counts:
        """I_ij as broker i counts it, shape (brokers, brokers): how many of its own identifiers j's broadcast claims.

        Symmetric if caches are exchanged whole; with filters, false positives make I_ij and I_ji differ. I_ii is the
        size of i's cache. Source: Jaeger07, section 4.1.
        """
        columns = [np.bitwise_count(self.own & claimed).sum(axis=1, dtype=np.int64) for claimed in self.claimed]
        return np.stack(columns, axis=1)

    def common(self, i: NDArray[np.intp], k: NDArray[np.intp], j: NDArray[np.intp]) -> Counts:
        """Return I_ikj as broker i counts it for each triple: how many of its own identifiers both broadcasts claim.

        The conjunction of the filters of k and j claims the same; the paper proposes it in section 6 (future work).
        Exact if caches are exchanged whole. Cost O(distinct triples * columns).
        """
        brokers = len(self.own)
        keys, place = np.unique((i * brokers + k) * brokers + j, return_inverse=True)
        first, last = np.divmod(keys, brokers)
        first, via = np.divmod(first, brokers)
        counts = np.zeros(len(keys), dtype=np.int64)
        step = max(WORDS_AT_ONCE // max(self.own.shape[1], 1), 1)
        for start in range(0, len(keys), step):
            at = slice(start, start + step)
            both = self.own[first[at]] & self.claimed[via[at]] & self.claimed[last[at]]
            counts[at] = np.bitwise_count(both).sum(axis=1, dtype=np.int64)
        return counts[place]


def newest_ids(windows: Sequence[DeliverySets], ids_max: int) -> DeliverySets:
    """Return each broker's cache after the windows (oldest first): its newest ``ids_max`` notifications.

    ``span_s`` is that of all windows. Publish times are known only to the window. If a cache fills up within a window,
    each publisher's sequence numbers are taken as spread evenly over it, and the latest are kept (ties: by the
    publisher's name). Raises ValueError if there is no window or ``ids_max`` is below 1.
    """
    if ids_max < 1:
        raise ValueError(f"ids_max is {ids_max}: a cache holds at least 1 identifier")
    whole = DeliverySets.joined(windows)
    column = {name: position for position, name in enumerate(whole.columns)}
    kept = np.zeros_like(whole.words)
    room = np.full(len(whole.brokers), ids_max, dtype=np.int64)
    for window in reversed(windows):
        if not room.any():
            break
        places = [column[name] for name in window.columns]
        new = window.words & ~kept[:, places]
        counts = np.bitwise_count(new).sum(axis=1, dtype=np.int64)
        cut = np.flatnonzero(counts > room)
        if len(cut):
            newest_first = np.argsort(-_place_in_window(window), kind="stable")
            for row in cut:
                new[row] = _first_bits(new[row], newest_first, int(room[row]))
        kept[:, places] |= new
        room -= np.minimum(counts, room)
    return DeliverySets(whole.brokers, whole.columns, kept, whole.span_s, kept & whole.delivered)


def bloom_interest(sets: DeliverySets, bits: int, hashes: int) -> Counts:
    """Return I_ij as broker i estimates it from j's Bloom filter, shape (brokers, brokers); see InterestCaches."""
    return InterestCaches.of_filters(sets, FilterShape(bits, hashes)).interest


def _place_in_window(window: DeliverySets) -> NDArray[np.float64]:
    """Return when in the window each bit was published, 0 to 1, estimated from its publisher's sequence numbers."""
    if not window.columns:
        return np.zeros(0)
    _, publisher = np.unique([name for name, _ in window.columns], return_inverse=True)
    blocks = np.array([block for _, block in window.columns], dtype=np.int64)
    sequences = (blocks[:, None] * 64 + np.arange(64)).reshape(-1)
    owner = np.repeat(publisher, 64)
    used = _bits(np.bitwise_or.reduce(window.words, axis=0))
    first = np.full(publisher.max() + 1, np.iinfo(np.int64).max)
    last = np.full(publisher.max() + 1, np.iinfo(np.int64).min)
    np.minimum.at(first, owner[used], sequences[used])
    np.maximum.at(last, owner[used], sequences[used])
    place = np.zeros(len(sequences))
    own = owner[used]
    place[used] = (sequences[used] - first[own] + 0.5) / (last[own] - first[own] + 1)
    return place


def _first_bits(words: Words, order: NDArray[np.intp], count: int) -> Words:
    """Return the first ``count`` set bits of a row, in the given order."""
    is_set = _bits(words)
    kept = np.zeros_like(is_set)
    kept[order[is_set[order]][:count]] = True
    return _words(kept)


def _ids(sets: DeliverySets) -> Words:
    """Return the identifier of each bit of the columns."""
    ids = [
        notification_ids(publisher, np.arange(block * 64, block * 64 + 64, dtype=np.uint64))
        for publisher, block in sets.columns
    ]
    return np.concatenate([np.zeros(0, dtype=np.uint64), *ids])


def _bits(words: Words) -> NDArray[np.bool_]:
    # Little-endian, so that bit b of word w is at place 64 * w + b on every machine.
    return np.unpackbits(words.astype("<u8").view(np.uint8), bitorder="little").astype(np.bool_)


def _words(bits: NDArray[np.bool_]) -> Words:
    return np.packbits(bits, bitorder="little").view("<u8").astype(np.uint64)
