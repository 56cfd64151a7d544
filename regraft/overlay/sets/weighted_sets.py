"""Delivery sets with equal sets merged: exactly the same traffic in far fewer bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.sets.delivery_sets import DeliverySets, rows_over
from regraft.overlay.sets.distinct_sets import digit_planes, merge_sets
from regraft.schemas.arrays import Floats, Places, Words

EXACT_MAX = 1 << 24  # Below it float32 holds every integer.


class WholeCounts(NamedTuple):
    """How many notifications each bit stands for: ``weights`` (words, spans) of its word if there are no entries.

    Else bit b of word w has the entries from ``starts[64 * w + b]`` to the next one's: ``counts`` notifications each,
    in ``spans``.
    """

    weights: NDArray[np.uint32]
    starts: Places
    spans: Places
    counts: Floats


NO_ENTRIES = np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp), np.zeros(0)


@dataclass(frozen=True, eq=False)
class WeightedSets:
    """V(n) of many notifications, each distinct set once per binary digit of its count.

    ``words`` has shape (brokers, words); a set bit of word w stands for ``weights[w, s]`` notifications of span s,
    which is ``spans_s[s]`` seconds long. ``weights`` are float32, exact up to 2^24 notifications.
    """

    brokers: tuple[str, ...]
    words: Words
    weights: NDArray[np.float32]
    spans_s: NDArray[np.float64]

    @classmethod
    def over_all(cls, spans: Sequence[DeliverySets]) -> WeightedSets:
        """Merge equal sets of all spans and count them as one span; no notification may be in two spans.

        Raises ValueError if there is no span.
        """
        brokers = common_brokers(spans)
        words, counted = digit_planes(*merge_sets([span.distinct for span in spans], len(brokers)), len(brokers))
        length_s = max(sum(span.span_s for span in spans), 1e-9)
        return cls(brokers, words, counted[:, None].astype(np.float32), np.array([length_s]))

    def over(self, brokers: tuple[str, ...]) -> WeightedSets:
        """Return the same notifications over other, sorted brokers; new ones want nothing."""
        if brokers == self.brokers:
            return self
        return replace(self, brokers=brokers, words=rows_over(self.words, self.brokers, brokers))

    def counts(self, words: Words) -> NDArray[np.float64]:
        """Return the number of notifications that the bits of each row stand for, shape (..., spans)."""
        return weighed(words, self.weights)

    def counts_in(self, words: Words, columns: Places) -> Floats:
        """Return the number of notifications of rows that have only these words, shape (..., spans)."""
        return weighed(words, self.weights[columns])

    def counts_of(self, words: Words, columns: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the number of notifications, over all spans, of rows that have only these words, shape (rows,)."""
        return weighed(words, self.weights[columns].sum(axis=1, keepdims=True))[:, 0]

    @cached_property
    def whole_weights(self) -> NDArray[np.uint32] | None:
        """The weights as integers, shape (words, spans), if float32 adds up any of them exactly, in any order."""
        most = np.bitwise_count(np.bitwise_or.reduce(self.words, axis=0)) @ self.weights.astype(np.float64)
        whole = np.maximum(self.weights, 0).astype(np.uint32)
        is_exact = bool((whole == self.weights).all()) and float(most.sum()) < EXACT_MAX
        return np.ascontiguousarray(whole) if is_exact else None

    @cached_property
    def whole(self) -> WholeCounts | None:
        """How compiled loops count bits; None if that were not exact."""
        weights = self.whole_weights
        return None if weights is None else WholeCounts(weights, *NO_ENTRIES)

    def interest(self) -> NDArray[np.int64]:
        """Return I_ij over all spans together, shape (brokers, brokers), as in :meth:`DeliverySets.interest`."""
        bits = np.unpackbits(self.words.view(np.uint8), axis=1).astype(np.float32)
        weight = np.repeat(self.weights.sum(axis=1), 64)
        common: NDArray[np.int64] = np.rint((bits * weight) @ bits.T).astype(np.int64)
        return common


def weighed(words: Words, weights: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the sum of each row's bits, weighted by word, shape (..., spans)."""
    # BLAS may raise a floating-point flag for memory next to short rows; the sums themselves are of integers.
    with np.errstate(invalid="ignore"):
        return np.asarray(np.bitwise_count(words).astype(np.float32) @ weights, dtype=np.float64)


def common_brokers(spans: Sequence[DeliverySets]) -> tuple[str, ...]:
    """Return the brokers of all spans. Raises ValueError if there is no span, or if their brokers differ."""
    if not spans:
        raise ValueError("no span to merge: at least one window is needed")
    if any(span.brokers != spans[0].brokers for span in spans):
        raise ValueError("spans over different brokers cannot be merged")
    return spans[0].brokers
