"""Gather delivery rows of one window into delivery sets, homes of publishers and hand-overs.

In: delivery rows, packed or single, in any order; others are skipped. Out: :class:`WindowDeliveries`. If brokers report
samples (:mod:`schemas.sampled_blocks`), only what is in the smallest one counts; parts of their subscribers are kept
separately. Which rows a window has, and whether all have arrived, belongs to :mod:`controller.windows.assemble_state`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from regraft.controller.state.window_parts import PartKey, ReceivedPart, WindowParts
from regraft.controller.windows.take_sample import Sample, take_sample
from regraft.overlay.sets.delivery_sets import DeliverySets, MaskCells
from regraft.schemas.arrays import Longs
from regraft.schemas.packed_deliveries import DeliveryColumns
from regraft.schemas.part_blocks import part_of_block
from regraft.schemas.sampled_blocks import rule_of_counts
from regraft.schemas.state import PublisherDelivery, StateRow
from regraft.schemas.telemetry import BLOCK_SIZE

Columns = tuple[tuple[str, int], ...]
Planes = Mapping[PartKey, Sequence[tuple[tuple[str, int], int, int]]]  # Publisher and block, plane, mask.


def split_parts(cells: MaskCells, columns: Columns, brokers: Sequence[str]) -> tuple[MaskCells, Columns, Planes]:
    """Return the cells and columns of whole brokers, and the planes of each part."""
    named = [part_of_block(block) for _, block in columns]
    if not any(named):
        return cells, columns, {}
    is_whole = np.array([part is None for part in named], dtype=np.bool_)
    planes: dict[PartKey, list[tuple[tuple[str, int], int, int]]] = {}
    apart = np.flatnonzero(~is_whole[cells.column])
    for row, column, mask in zip(
        *(each[apart].tolist() for each in (cells.row, cells.column, cells.masks)), strict=True
    ):
        part = named[column]
        assert part is not None
        plane = (columns[column][0], part.block), part.plane, mask
        planes.setdefault((brokers[row], part.number), []).append(plane)
    kept = is_whole[cells.column]
    place = np.cumsum(is_whole) - 1
    whole = MaskCells(cells.row[kept], place[cells.column[kept]], cells.masks[kept], cells.published[kept])
    return whole, tuple(columns[at] for at in np.flatnonzero(is_whole).tolist()), planes


def parts_of(planes: Planes, sets: DeliverySets) -> WindowParts:
    """Return the parts, restricted to the notifications in the window's delivery sets."""
    return WindowParts({key: ReceivedPart.of_planes(entries, sets, sets.share) for key, entries in planes.items()})


@dataclass(frozen=True, eq=False)
class WindowDeliveries:
    """The content of a window's delivery rows; ``local_deliveries`` omits pairs without a hand-over.

    ``homeless`` are the publishers whose newest notification no broker reports as published: their home's telemetry is
    lost.
    """

    sets: DeliverySets
    homes: Mapping[str, str]
    homeless: frozenset[str]
    local_deliveries: Mapping[tuple[str, str], int]
    parts: WindowParts = field(default_factory=WindowParts)


@dataclass
class _Cells:
    """One entry for each (row, block) of single rows, arrays of such for each packed record, and their columns."""

    row: list[int] = field(default_factory=list)
    column: list[int] = field(default_factory=list)
    masks: list[int] = field(default_factory=list)
    published: list[int] = field(default_factory=list)
    packed: list[tuple[Longs, Longs, Longs, Longs]] = field(default_factory=list)
    columns: dict[tuple[str, int], int] = field(default_factory=dict)
    columns_of: dict[tuple[str, tuple[int, ...]], list[int]] = field(default_factory=dict)

    def add(self, row: int, delivery: PublisherDelivery) -> None:
        """Add all blocks of a row. Most rows of a publisher have the same blocks, so their columns are cached."""
        name = (delivery.publisher, delivery.blocks)
        columns = self.columns_of.get(name)
        if columns is None:
            columns = self.columns_of[name] = [self._column(delivery.publisher, block) for block in delivery.blocks]
        self.row += [row] * len(columns)
        self.column += columns
        self.masks += delivery.masks
        self.published += delivery.published

    def add_packed(self, packed: DeliveryColumns, row: Longs) -> None:
        """Add all blocks of packed rows; ``row`` is each one's broker by position, negative if it is left out."""
        cell_row = np.repeat(row, packed.block_counts)
        is_kept = cell_row >= 0
        publisher, blocks = np.repeat(packed.publisher, packed.block_counts)[is_kept], packed.blocks[is_kept]
        numbers, number = np.unique(blocks, return_inverse=True)
        names, name = np.unique(publisher * max(numbers.size, 1) + number, return_inverse=True)
        of_name = zip(*(each.tolist() for each in np.divmod(names, max(numbers.size, 1))), strict=True)
        columns = [self._column(packed.publishers[code], int(numbers[place])) for code, place in of_name]
        column = np.array(columns, dtype=np.int64)[name]
        self.packed.append((cell_row[is_kept], column, packed.masks[is_kept], packed.published[is_kept]))

    def joined(self) -> MaskCells:
        """Return all cells."""
        single = tuple(np.array(each, dtype=np.int64) for each in (self.row, self.column, self.masks, self.published))
        row, column, masks, published = (np.concatenate(each) for each in zip(single, *self.packed, strict=True))
        return MaskCells(row, column, masks.view(np.uint64), published.view(np.uint64))

    def _column(self, publisher: str, block: int) -> int:
        return self.columns.setdefault((publisher, block), len(self.columns))


def gather_deliveries(rows: Iterable[StateRow], brokers: Sequence[str], span_s: float) -> WindowDeliveries:
    """Return what the rows say of ``brokers``, which are sorted; ``span_s`` is the window's length in seconds.

    Single rows are of these brokers only; packed ones of others are left out. Cost O(rows + blocks), in Python for
    single rows.
    """
    index = {broker: position for position, broker in enumerate(brokers)}
    gathered = _Cells()
    local_deliveries: dict[tuple[str, str], int] = {}
    for row in rows:
        if (delivery := row.delivery) is not None:
            gathered.add(index[delivery.broker], delivery)
            if delivery.local_deliveries:
                local_deliveries[delivery.publisher, delivery.broker] = delivery.local_deliveries
        elif row.packed_deliveries is not None:
            packed = row.packed_deliveries.columns()
            places = np.array([index.get(broker, -1) for broker in packed.brokers], dtype=np.int64)
            gathered.add_packed(packed, places[packed.broker])
            local_deliveries.update(_hand_overs(packed, places))
    whole_cells, named, planes = split_parts(gathered.joined(), tuple(gathered.columns), brokers)
    sample = take_sample(whole_cells, named)
    cells, columns, share = sample.cells, sample.columns, sample.share
    sets = replace(DeliverySets.of_cells(tuple(brokers), columns, cells, span_s * share), share=share)
    newest = _newest(sets)
    homes = _flagged_homes(sample, newest, brokers) | _homes(whole_cells, named, brokers)
    homeless = frozenset(name for name, sequence in newest.items() if homes.get(name, (-1, ""))[0] < sequence)
    known_homes = {name: home for name, (_, home) in homes.items() if name not in homeless}
    return WindowDeliveries(sets, known_homes, homeless, local_deliveries, parts_of(planes, sets))


def _hand_overs(packed: DeliveryColumns, known: Longs) -> Iterator[tuple[tuple[str, str], int]]:
    """Yield ((publisher, broker), hand-overs) of each packed row with any; ``known`` is by broker, below 0: unknown."""
    rows = np.flatnonzero((packed.local_deliveries > 0) & (known[packed.broker] >= 0))
    columns = (each[rows].tolist() for each in (packed.publisher, packed.broker, packed.local_deliveries))
    for publisher, broker, count in zip(*columns, strict=True):
        yield (packed.publishers[publisher], packed.brokers[broker]), count


def _flagged_homes(sample: Sample, newest: Mapping[str, int], brokers: Sequence[str]) -> dict[str, tuple[int, str]]:
    """Return the home of each publisher that is not in the sample, if exactly one broker reports publishing it."""
    return {
        publisher: (-1, brokers[rows[0]])
        for publisher, rows in sample.published_at.items()
        if publisher not in newest and len(rows) == 1
    }


def _newest(sets: DeliverySets) -> dict[str, int]:
    """Return the highest sequence of each publisher that was published or delivered anywhere."""
    newest: dict[str, int] = {}
    for (publisher, block), mask in zip(sets.columns, sets.published.tolist(), strict=True):
        if mask:
            newest[publisher] = max(_highest(block, mask), newest.get(publisher, -1))
    return newest


def _highest(block: int, mask: int) -> int:
    return block * BLOCK_SIZE + mask.bit_length() - 1


def _homes(cells: MaskCells, columns: Sequence[tuple[str, int]], brokers: Sequence[str]) -> dict[str, tuple[int, str]]:
    """Return for each publisher the highest sequence that a broker reports having published, and that broker."""
    newest: dict[str, tuple[int, str]] = {}
    places = np.flatnonzero(cells.published)
    entries = (each[places].tolist() for each in (cells.row, cells.column, cells.published))
    for row, column, mask in zip(*entries, strict=True):
        publisher, block = columns[column]
        if rule_of_counts(block) is not None:
            continue
        seen = (_highest(block, mask), brokers[row])
        newest[publisher] = max(seen, newest.get(publisher, seen))
    return dict(sorted(newest.items()))
