"""Delivery sets V(n) as bits, and the interest I_ij counted from them.

A column of 64 bits is one block of one publisher; row i has a bit for each of its notifications that broker i published
or delivered. Planners and cost need nothing but popcounts over these rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.derived_values import KeptField, derived_value
from regraft.overlay.sets.distinct_sets import Counts, distinct_sets
from regraft.schemas.arrays import Words

ALL_BITS = (1 << 64) - 1
OWNER_DIGITS = 32  # Bits for a publisher's position among those of a span.
SHARE_MAX = 0.25  # Words of which more are not 0 are kept as they are: packing them would save little.

Class = TypeVar("Class", bound=type)


def sparse_fields(*names: str) -> Callable[[Class], Class]:
    """Let these fields of a dataclass, arrays of words, be kept packed if that is smaller; each read unpacks them.

    A horizon of windows of thousands of brokers would otherwise take gigabytes, although few words have a bit.
    """

    def with_sparse_fields(owner: Class) -> Class:
        for name in names:
            setattr(owner, name, KeptField(name, _KeptWords.of))
        return owner

    return with_sparse_fields


@dataclass(frozen=True, eq=False)
class _KeptWords:
    """Words and their places, row by row; if ``places`` is None, all words in their shape."""

    shape: tuple[int, ...]
    words: Words
    places: NDArray[np.unsignedinteger[Any]] | None = None

    @classmethod
    def of(cls, words: Words) -> _KeptWords:
        if np.count_nonzero(words) > SHARE_MAX * words.size:
            return cls(words.shape, words)
        flat = words.reshape(-1)
        places = np.flatnonzero(flat)
        return cls(words.shape, flat[places], places.astype(np.min_scalar_type(words.size)))

    def __call__(self) -> Words:
        if self.places is None:
            return self.words
        words = np.zeros(self.shape, dtype=np.uint64)
        words.reshape(-1)[self.places] = self.words
        return words


@dataclass(frozen=True, eq=False)
class MaskCells:
    """Masks as parallel arrays: cell i belongs to broker ``row[i]`` and column ``column[i]``, both by position.

    ``masks`` hold what was delivered, ``published`` what was published.
    """

    row: NDArray[np.int64]
    column: NDArray[np.int64]
    masks: Words
    published: Words


@sparse_fields("words", "delivered")
@dataclass(frozen=True, eq=False)
class DeliverySets:
    """V(n) for every notification of a span of time.

    ``words`` has shape (brokers, columns), uint64; ``columns[c]`` is (publisher, block). ``span_s`` is the length of
    the span in seconds, for a sample times ``share``, its share of all blocks: counts divided by it are unbiased
    estimates of rates. ``delivered`` is the part of ``words`` that was handed to local subscribers, without what a
    broker only published. Reading one of the two may cost a new array.
    """

    brokers: tuple[str, ...]
    columns: tuple[tuple[str, int], ...]
    words: Words
    span_s: float
    delivered: Words
    share: float = 1.0

    @classmethod
    def of(
        cls,
        brokers: Sequence[str],
        masks: Mapping[tuple[str, str, int], int],
        span_s: float,
        published: Mapping[tuple[str, str, int], int] | None = None,
    ) -> DeliverySets:
        """Build from ``(broker, publisher, block) -> mask`` (signed or unsigned 64 bits); brokers come in any order.

        ``masks`` hold what was delivered and ``published`` what was published at a broker; without it, nothing was
        published where it was not delivered.
        """
        ordered = tuple(sorted(brokers))
        row = {broker: position for position, broker in enumerate(ordered)}
        column: dict[tuple[str, int], int] = {}
        sent = {} if published is None else published
        keys = list({**masks, **sent})
        cells = MaskCells(
            np.array([row[broker] for broker, _, _ in keys], dtype=np.int64),
            np.array([column.setdefault((name, block), len(column)) for _, name, block in keys], dtype=np.int64),
            _unsigned(masks.get(key, 0) for key in keys),
            _unsigned(sent.get(key, 0) for key in keys),
        )
        return cls.of_cells(ordered, tuple(column), cells, span_s)

    @classmethod
    def of_cells(
        cls, brokers: tuple[str, ...], columns: Sequence[tuple[str, int]], cells: MaskCells, span_s: float
    ) -> DeliverySets:
        """Build from cells over sorted ``brokers`` and distinct ``columns`` in any order.

        Masks of the same broker and column are combined by OR. Cost O(cells + brokers * columns) on words.
        """
        order = sorted(range(len(columns)), key=columns.__getitem__)
        place = np.empty(len(columns), dtype=np.int64)
        place[order] = np.arange(len(columns))
        at = cells.row * len(columns) + place[cells.column]
        delivered = np.zeros((len(brokers), len(columns)), dtype=np.uint64)
        np.bitwise_or.at(delivered.reshape(-1), at, cells.masks)
        words = delivered.copy()
        np.bitwise_or.at(words.reshape(-1), at, cells.published)
        return cls(brokers, tuple(columns[position] for position in order), words, span_s, delivered)

    @classmethod
    def joined(cls, parts: Iterable[DeliverySets]) -> DeliverySets:
        """Return the union of spans over the same brokers; a notification is counted once.

        Raises ValueError if there is no span, or if their brokers differ.
        """
        spans = list(parts)
        if not spans:
            raise ValueError("no span to join: at least one window is needed")
        names = sorted({name for span in spans for name in span.columns})
        column = {name: position for position, name in enumerate(names)}
        words = np.zeros((len(spans[0].brokers), len(names)), dtype=np.uint64)
        delivered = np.zeros_like(words)
        for span in spans:
            if span.brokers != spans[0].brokers:
                raise ValueError("spans over different brokers cannot be joined")
            if span.columns:
                places = [column[name] for name in span.columns]
                words[:, places] |= span.words
                delivered[:, places] |= span.delivered
        return cls(spans[0].brokers, tuple(names), words, sum(span.span_s for span in spans), delivered)

    def at_homes(self, homes: Mapping[str, str]) -> DeliverySets:
        """Return V(n) as it would have been with each publisher of ``homes`` at that broker; others stay.

        Subscribers get the same wherever the publisher is, so only the publisher's own bit moves. Raises KeyError if a
        home is not a broker.
        """
        row = {broker: position for position, broker in enumerate(self.brokers)}
        placed = [(place, row[homes[name]]) for place, (name, _) in enumerate(self.columns) if name in homes]
        if not placed:
            return self
        columns, rows = np.array(placed, dtype=np.intp).T
        words = self.words.copy()
        words[:, columns] = self.delivered[:, columns]
        words[rows, columns] |= self.published[columns]
        return replace(self, words=words)

    def with_subscribers_moved(self, moved: Mapping[str, str], homes: Mapping[str, str]) -> DeliverySets:
        """Return V(n) as it would have been with all subscribers of each broker of ``moved`` at its target.

        ``homes`` are those of publishers. What an unlisted publisher published stays at its broker if nobody there
        wanted it; otherwise it counts only where it is delivered. Raises KeyError if ``moved`` names an unknown broker.
        """
        row = {broker: position for position, broker in enumerate(self.brokers)}
        before = self.delivered
        delivered = before.copy()
        for broker in moved:
            delivered[row[broker]] = 0
        for broker, target in moved.items():
            delivered[row[target]] |= before[row[broker]]
        return self.with_delivered(delivered, homes)

    def with_delivered(self, delivered: Words, homes: Mapping[str, str]) -> DeliverySets:
        """Return V(n) as it would have been with these deliveries of the same notifications.

        ``homes`` and errors are as in :meth:`with_subscribers_moved`.
        """
        words = delivered | (self.words & ~self.delivered)
        placed = {name: home for name, home in homes.items() if home in self.brokers}
        return replace(self, words=words, delivered=delivered).at_homes(placed)

    def over(self, brokers: tuple[str, ...]) -> DeliverySets:
        """Return the same notifications over other, sorted brokers; new ones want nothing.

        What was wanted or published only at brokers that are left out is dropped.
        """
        if brokers == self.brokers:
            return self
        words, delivered = (rows_over(one, self.brokers, brokers) for one in (self.words, self.delivered))
        return replace(self, brokers=brokers, words=words, delivered=delivered)

    def of_publishers(self, publishers: Collection[str]) -> DeliverySets:
        """Return only the notifications of these publishers."""
        places = [place for place, (name, _) in enumerate(self.columns) if name in publishers]
        columns = tuple(self.columns[place] for place in places)
        return replace(self, columns=columns, words=self.words[:, places], delivered=self.delivered[:, places])

    @cached_property
    def published(self) -> Words:
        """All notifications of the span, shape (columns,): each was at least published somewhere."""
        return np.asarray(np.bitwise_or.reduce(self.words, axis=0), dtype=np.uint64)

    @derived_value
    def distinct(self) -> tuple[Words, Counts]:
        """The distinct V(n), a bit for each broker, and the count of notifications with each; computed on first use."""
        return distinct_sets(self.words)

    @cached_property
    def distinct_delivered(self) -> tuple[tuple[str, ...], Words, Counts]:
        """The publishers, the distinct sets of brokers to which notifications of each were delivered, and their counts.

        A row has a bit for each broker, and its last word is the position of the publisher. A notification that was
        delivered nowhere has an empty set.
        """
        names = tuple(sorted({name for name, _ in self.columns}))
        place_of = {name: place for place, name in enumerate(names)}
        owner = np.array([place_of[name] for name, _ in self.columns], dtype=np.uint64)
        # The publisher's position, and a bit that marks an existing notification, are rows like those of brokers.
        padding = np.zeros((-len(self.brokers) % 64, len(self.columns)), dtype=np.uint64)
        digits = [np.where(owner >> np.uint64(digit) & 1, self.published, 0) for digit in range(OWNER_DIGITS)]
        rows, counts = distinct_sets(np.concatenate([self.delivered, padding, [self.published], digits]))
        rows = rows.copy()
        rows[:, -1] >>= np.uint64(1)
        return names, rows, counts

    @property
    def notification_count(self) -> int:
        """The number of notifications published or delivered anywhere in the span."""
        return int(np.bitwise_count(self.published).sum()) if self.columns else 0

    def interest(self) -> NDArray[np.int64]:
        """Return I_ij for all pairs, shape (brokers, brokers): notifications common to i and j, I_ii on the diagonal.

        Source: Jaeger07, section 4.1. Cost O(brokers^2 * columns / 8) with 64 notifications a column.
        """
        count, words = len(self.brokers), self.words
        common = np.zeros((count, count), dtype=np.int64)
        for position in range(count):
            shared = np.bitwise_count(words[position] & words[position:]).sum(axis=1, dtype=np.int64)
            common[position, position:] = shared
            common[position:, position] = shared
        return common


def rows_over(words: Words, brokers: Sequence[str], others: Sequence[str]) -> Words:
    """Return a row for each of ``others``: that of ``brokers`` if it is among these, else an empty one."""
    row = {broker: position for position, broker in enumerate(brokers)}
    rows = np.array([row.get(broker, -1) for broker in others], dtype=np.intp)
    rows_taken = words[rows]
    rows_taken[rows < 0] = 0
    return rows_taken


def _unsigned(masks: Iterable[int]) -> Words:
    return np.array([mask & ALL_BITS for mask in masks], dtype=np.uint64)
