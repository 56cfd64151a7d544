"""A window's delivery sets cut into slices of time, so that a short look back shows how fast the traffic changes.

In: delivery sets of one span. Out: those of shorter spans that follow each other. What is made of the spread over them
does not belong here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from regraft.overlay.delivery_sets import DeliverySets
from regraft.schemas.sampled_blocks import block_word

BITS = 64
GROUP_SEED = 1  # Another than that of samples: of a sample, its own hash is known to be small.
BLOCKS_PER_GROUP_MIN = 2


def time_slices(sets: DeliverySets, count: int) -> tuple[DeliverySets, ...]:
    """Return ``count`` spans of equal length with each publisher's notifications shared out evenly, in their order.

    Numbers of notifications rise with time, but say nothing of when within the span each was published. A publisher
    with fewer notifications than slices is missing in some. Cost O(columns * brokers * count) on words.

    For a sample, whose blocks are present or missing as a whole, slices get whole blocks, dealt at random: how shares
    of cost differ between them also shows how far the estimate is off (random groups; Wolter, 2007, chapter 2).
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
    found = []
    for number in range(count):
        bits = np.packbits((there == 1) & (slice_of == number), axis=1, bitorder="little")
        mask = bits.view("<u8")[:, 0].astype(np.uint64)
        delivered = None if sets.delivered is None else sets.delivered & mask
        found.append(replace(sets, words=sets.words & mask, delivered=delivered, span_s=sets.span_s / count))
    return tuple(found)


def groups_max(spans: Iterable[DeliverySets]) -> int | None:
    """Return in how many slices each of the spans may be cut that hold a sample, None where none does."""
    blocks = [len(sets.columns) for sets in spans if sets.share < 1]
    return max(min(blocks) // BLOCKS_PER_GROUP_MIN, 1) if blocks else None


def _group(sets: DeliverySets, number: int, count: int) -> DeliverySets:
    """Return one of ``count`` groups into which all columns are dealt in an order that has nothing to do with them."""
    dealt = sorted(range(len(sets.columns)), key=lambda place: block_word(*sets.columns[place], seed=GROUP_SEED))
    places = np.array(sorted(dealt[number::count]), dtype=np.intp)
    delivered = None if sets.delivered is None else sets.delivered[:, places]
    columns = tuple(sets.columns[place] for place in places.tolist())
    return replace(sets, columns=columns, words=sets.words[:, places], delivered=delivered, span_s=sets.span_s / count)
