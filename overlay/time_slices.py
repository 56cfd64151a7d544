"""A window's delivery sets cut into slices of time, so that a short look back shows how fast the traffic changes.

In: delivery sets of one span. Out: those of shorter spans that follow each other. What is made of the spread over them
does not belong here.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from regraft.overlay.delivery_sets import DeliverySets

BITS = 64


def time_slices(sets: DeliverySets, count: int) -> tuple[DeliverySets, ...]:
    """Return ``count`` spans of equal length with each publisher's notifications shared out evenly, in their order.

    Numbers of notifications rise with time, but say nothing of when within the span each was published. A publisher
    with fewer notifications than slices is missing in some. Cost O(columns * brokers * count) on words.
    """
    if count <= 1:
        return (sets,)
    if not sets.columns:
        return (replace(sets, span_s=sets.span_s / count),) * count
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
