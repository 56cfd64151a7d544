"""Cut a window's delivery sets into time slices, so that few windows suffice to show how fast the traffic changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.schemas.sampled_blocks import block_word

BITS = 64
GROUP_SEED = 1  # Differs from the seed of samples, whose blocks are those with a small hash.
BLOCKS_PER_GROUP_MIN = 2


def time_slices(sets: DeliverySets, count: int) -> tuple[DeliverySets, ...]:
    """Return ``count`` spans of equal length with each publisher's notifications spread evenly, in order.

    Sequence numbers give the order of notifications but not when within the span each was published. A publisher with
    fewer notifications than slices is missing from some. Cost O(columns * brokers * count) on words.

    The blocks of a sample are present or missing as a whole, so its slices get whole blocks, dealt at random. The
    spread of costs between slices then includes the error of the estimate (random groups; Wolter, 2007, chapter 2).
    """
    if count <= 1:
        return (sets,)
    if not sets.columns:
        return (replace(sets, span_s=sets.span_s / count),) * count
    if sets.share < 1:
        return tuple(_group(sets, number, count) for number in range(count))
    names = np.array([name for name, _ in sets.columns])
    starts = np.flatnonzero(np.r_[True, names[1:] != names[:-1]])  # Columns are sorted by publisher and block.
    there = np.unpackbits(sets.published.astype("<u8").view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
    per_column = there.sum(axis=1, dtype=np.int64)
    per_publisher = np.repeat(np.add.reduceat(per_column, starts), np.diff(np.r_[starts, len(names)]))
    before = np.cumsum(per_column) - per_column
    before -= np.repeat(before[starts], np.diff(np.r_[starts, len(names)]))
    rank = before[:, None] + np.cumsum(there, axis=1) - there
    slice_of = rank * count // np.maximum(per_publisher, 1)[:, None]
    slices, words, whole = [], sets.words, sets.delivered
    for number in range(count):
        bits = np.packbits((there == 1) & (slice_of == number), axis=1, bitorder="little")
        mask = bits.view("<u8")[:, 0].astype(np.uint64)
        slices.append(replace(sets, words=words & mask, delivered=whole & mask, span_s=sets.span_s / count))
    return tuple(slices)


def groups_max(spans: Iterable[DeliverySets]) -> int | None:
    """Return the largest number of slices that every sampled span can be cut into, or None if no span is a sample."""
    blocks = [len(sets.columns) for sets in spans if sets.share < 1]
    return max(min(blocks) // BLOCKS_PER_GROUP_MIN, 1) if blocks else None


def _group(sets: DeliverySets, number: int, count: int) -> DeliverySets:
    """Return one of ``count`` groups into which the columns are dealt in pseudo-random order."""
    dealt = sorted(range(len(sets.columns)), key=lambda place: block_word(*sets.columns[place], seed=GROUP_SEED))
    places = np.array(sorted(dealt[number::count]), dtype=np.intp)
    delivered = sets.delivered[:, places]
    columns = tuple(sets.columns[place] for place in places.tolist())
    return replace(sets, columns=columns, words=sets.words[:, places], delivered=delivered, span_s=sets.span_s / count)
