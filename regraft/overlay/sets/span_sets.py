"""Delivery sets of several spans with equal sets merged across them, counted by span; exact."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.sets.distinct_sets import by_broker, equal_rows
from regraft.overlay.sets.weighted_sets import WholeCounts, common_brokers
from regraft.schemas.arrays import Floats, Places, Words

BITS_AT_ONCE = 1 << 22  # Bits looked at one by one at a time: some MB.


@dataclass(frozen=True, eq=False)
class SpanSets:
    """V(n) of many notifications, each distinct set once, however many spans it occurs in.

    ``words`` has shape (brokers, words). A set bit stands for notifications of several spans, listed as in
    ``WholeCounts``: most sets occur in few spans, so that a weight for each word and span would take many more words.
    Span s is ``spans_s[s]`` seconds long.
    """

    brokers: tuple[str, ...]
    words: Words
    starts: Places
    spans: Places
    counted: Floats
    spans_s: Floats

    @classmethod
    def of(cls, spans: Sequence[DeliverySets]) -> SpanSets:
        """Merge equal sets of all spans. Raises ValueError if there is no span, or if their brokers differ."""
        brokers = common_brokers(spans)
        parts = [span.distinct for span in spans]
        rows = np.concatenate([sets for sets, _ in parts])
        first, place = equal_rows(rows)
        span_of = np.repeat(np.arange(len(parts), dtype=np.intp), [len(sets) for sets, _ in parts])
        words = by_broker(rows[first], len(brokers))
        order = np.argsort(place, kind="stable")
        starts = np.zeros(64 * words.shape[1] + 1, dtype=np.intp)
        np.cumsum(np.bincount(place, minlength=len(starts) - 1), out=starts[1:])
        counted = np.concatenate([counts for _, counts in parts])[order].astype(np.float64)
        spans_s = np.array([max(span.span_s, 1e-9) for span in spans])
        return cls(brokers, words, starts, span_of[order], counted, spans_s)

    def counts(self, words: Words) -> Floats:
        """Return the number of notifications that the bits of each row stand for, shape (..., spans)."""
        return self.counts_in(words, np.arange(words.shape[-1], dtype=np.intp))

    def counts_in(self, words: Words, columns: Places) -> Floats:
        """Return the number of notifications of rows that have only these words, shape (..., spans)."""
        rows = np.ascontiguousarray(words).reshape(math.prod(words.shape[:-1]), len(columns))
        counts = np.zeros((len(rows), len(self.spans_s)))
        at_once = max(BITS_AT_ONCE // max(64 * len(columns), 1), 1)
        for at in range(0, len(rows), at_once):
            counts[at : at + at_once] = self._counts_of_bits(rows[at : at + at_once], columns)
        return counts.reshape(*words.shape[:-1], len(self.spans_s))

    def _counts_of_bits(self, rows: Words, columns: Places) -> Floats:
        bits = np.unpackbits(rows.astype("<u8").view(np.uint8), axis=1, bitorder="little").view(np.bool_)
        row, place = np.nonzero(bits)
        bit = 64 * columns[place // 64] + place % 64
        lengths = self.starts[bit + 1] - self.starts[bit]
        entry = np.repeat(self.starts[bit] - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())
        cell = np.repeat(row, lengths) * len(self.spans_s) + self.spans[entry]
        counts = np.bincount(cell, self.counted[entry], len(rows) * len(self.spans_s))
        return counts.reshape(len(rows), -1).astype(np.float64)

    @cached_property
    def whole(self) -> WholeCounts:
        """How compiled loops count bits."""
        return WholeCounts(np.zeros((0, 0), dtype=np.uint32), self.starts, self.spans, self.counted)
