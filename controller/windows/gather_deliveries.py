"""Delivery rows of one window -> delivery sets, homes of publishers and hand-overs.

In: state rows of kind delivery, in any order; others are passed over. Out: :class:`WindowDeliveries`. Which rows a
window has and whether they are all there belongs to :mod:`controller.windows.assemble_state`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from overlay.delivery_sets import DeliverySets, MaskCells
from schemas.state import PublisherDelivery, StateRow
from schemas.telemetry import BLOCK_SIZE


@dataclass(frozen=True, eq=False)
class WindowDeliveries:
    """What the delivery rows of a window say; ``local_deliveries`` leaves out the pairs without a hand-over.

    ``untold`` are the publishers of which no broker says that it published their newest notification: their home's
    telemetry is of version 1, which does not tell what was published from what was delivered, or is lost.
    """

    sets: DeliverySets
    homes: Mapping[str, str]
    untold: frozenset[str]
    local_deliveries: Mapping[tuple[str, str], int]


@dataclass
class _Cells:
    """One entry for each (row, block), and what is known of all rows together."""

    row: list[int] = field(default_factory=list)
    column: list[int] = field(default_factory=list)
    masks: list[int] = field(default_factory=list)
    published: list[int] = field(default_factory=list)
    columns: dict[tuple[str, int], int] = field(default_factory=dict)
    columns_of: dict[tuple[str, tuple[int, ...]], list[int]] = field(default_factory=dict)

    def add(self, row: int, delivery: PublisherDelivery) -> None:
        """Take all blocks of one row. Most rows of a publisher have the same blocks, which are looked up once."""
        name = (delivery.publisher, delivery.blocks)
        columns = self.columns_of.get(name)
        if columns is None:
            keys = [(delivery.publisher, block) for block in delivery.blocks]
            columns = self.columns_of[name] = [self.columns.setdefault(key, len(self.columns)) for key in keys]
        self.row += [row] * len(columns)
        self.column += columns
        self.masks += delivery.masks
        self.published += delivery.published or (0,) * len(columns)


def gather_deliveries(rows: Iterable[StateRow], brokers: Sequence[str], span_s: float) -> WindowDeliveries:
    """Return what the rows say of ``brokers``, which are sorted; ``span_s`` is the window's length in seconds.

    Rows are of these brokers only. A row of version 1 counts as if all in it had been delivered; whose home it is
    cannot be said. Cost O(rows + blocks) in Python.
    """
    index = {broker: position for position, broker in enumerate(brokers)}
    cells = _Cells()
    local_deliveries: dict[tuple[str, str], int] = {}
    for row in rows:
        delivery = row.delivery
        if delivery is None:
            continue
        cells.add(index[delivery.broker], delivery)
        if delivery.local_deliveries:
            local_deliveries[delivery.publisher, delivery.broker] = delivery.local_deliveries
    sets = _sets(cells, brokers, span_s)
    newest = _newest(sets)
    homes = _homes(cells, brokers)
    untold = frozenset(name for name, sequence in newest.items() if homes.get(name, (-1, ""))[0] < sequence)
    known = {name: home for name, (_, home) in homes.items() if name not in untold}
    return WindowDeliveries(sets, known, untold, local_deliveries)


def _sets(cells: _Cells, brokers: Sequence[str], span_s: float) -> DeliverySets:
    row, column = np.array(cells.row, dtype=np.int64), np.array(cells.column, dtype=np.int64)
    masks, published = (np.array(values, dtype=np.int64).view(np.uint64) for values in (cells.masks, cells.published))
    return DeliverySets.of_cells(tuple(brokers), tuple(cells.columns), MaskCells(row, column, masks, published), span_s)


def _newest(sets: DeliverySets) -> dict[str, int]:
    """Return the highest sequence of each publisher that was published or delivered anywhere."""
    newest: dict[str, int] = {}
    for (publisher, block), mask in zip(sets.columns, sets.published.tolist(), strict=True):
        if mask:
            newest[publisher] = max(_highest(block, mask), newest.get(publisher, -1))
    return newest


def _highest(block: int, mask: int) -> int:
    return block * BLOCK_SIZE + (mask % (1 << BLOCK_SIZE)).bit_length() - 1


def _homes(cells: _Cells, brokers: Sequence[str]) -> dict[str, tuple[int, str]]:
    """Return for each publisher the highest sequence that a broker says it published, and that broker."""
    columns = tuple(cells.columns)
    newest: dict[str, tuple[int, str]] = {}
    for place, mask in enumerate(cells.published):
        if mask:
            publisher, block = columns[cells.column[place]]
            seen = (_highest(block, mask), brokers[cells.row[place]])
            newest[publisher] = max(seen, newest.get(publisher, seen))
    return dict(sorted(newest.items()))
