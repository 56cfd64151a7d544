"""Delivery rows of one window packed by columns: the record, its byte layout and its invariants.

All numbers are little-endian and packed without gaps. A record of R rows and C blocks (those of all rows, row by row)
holds:

=================== ========== =====================================================================================
``publishers``      text       names, one per line, ascending; so are ``brokers``
``publisher``       R uint32   the row's line in ``publishers``, from 0; likewise ``broker``
``block_counts``    R uint32   the number of blocks of each row
``notifications``   R int64    as in :class:`schemas.state.PublisherDelivery`; so are ``local_deliveries``, ``bytes``
``blocks``          C int64    block numbers, ascending within a row
``masks``           C int64    delivered, as in :class:`schemas.state.PublisherDelivery`; so are ``published``
=================== ========== =====================================================================================

Rows ascend by publisher, then broker, without duplicates. A row with very many blocks is split: its remainder is in
later records, with sums of 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from msgspec import Struct

from regraft.schemas.arrays import Longs
from regraft.schemas.bounds import BLOCK_MAX, NAME_LENGTH_MAX, UNCLEAN_ANYWHERE

Column = bytes
INDEX, LONG = np.dtype("<u4"), np.dtype("<i8")
INDEXES, SUMS = ("publisher", "broker", "block_counts"), ("notifications", "local_deliveries", "bytes")
CELLS = ("blocks", "masks", "published")
ROW_BYTES = INDEX.itemsize * len(INDEXES) + LONG.itemsize * len(SUMS)
BLOCK_BYTES = LONG.itemsize * len(CELLS)
SEPARATOR = "\n"  # Names have no control characters.


@dataclass(frozen=True, eq=False, slots=True)
class DeliveryColumns:
    """The columns of a record as arrays: ``publisher`` to ``bytes`` have an entry per row, the others one per block."""

    publishers: tuple[str, ...]
    brokers: tuple[str, ...]
    publisher: Longs
    broker: Longs
    block_counts: Longs
    notifications: Longs
    local_deliveries: Longs
    bytes: Longs
    blocks: Longs
    masks: Longs
    published: Longs


class PackedDeliveries(Struct, frozen=True):
    """Many rows of :class:`schemas.state.PublisherDelivery`, in the layout that the module's docstring specifies."""

    publishers: str
    brokers: str
    publisher: Column
    broker: Column
    block_counts: Column
    notifications: Column
    local_deliveries: Column
    bytes: Column
    blocks: Column
    masks: Column
    published: Column

    def __post_init__(self) -> None:
        for name in ("publishers", "brokers"):
            if error := _names_error(getattr(self, name)):
                raise ValueError(f"{name}: {error}")
        if error := next(self._length_errors(), ""):
            raise ValueError(error)
        if error := _columns_error(self.columns()):
            raise ValueError(error)

    @property
    def row_count(self) -> int:
        """The number of packed rows."""
        return len(self.publisher) // INDEX.itemsize

    @classmethod
    def of(cls, columns: DeliveryColumns) -> PackedDeliveries:
        """Pack columns; raise ValueError if they violate the layout's invariants."""
        values: dict[str, str | Column] = {
            name: SEPARATOR.join(getattr(columns, name)) for name in ("publishers", "brokers")
        }
        for kind, names in ((INDEX, INDEXES), (LONG, SUMS + CELLS)):
            values |= {name: getattr(columns, name).astype(kind).tobytes() for name in names}
        return cls(**values)  # type: ignore[arg-type]

    def columns(self) -> DeliveryColumns:
        """Return the columns as arrays."""
        arrays = {
            name: np.frombuffer(getattr(self, name), kind).astype(np.int64, copy=False)
            for kind, names in ((INDEX, INDEXES), (LONG, SUMS + CELLS))
            for name in names
        }
        return DeliveryColumns(_lines(self.publishers), _lines(self.brokers), **arrays)

    def _length_errors(self) -> Iterator[str]:
        """Yield a text for each column whose length does not fit."""
        rows, cells = self.row_count, len(self.blocks) // LONG.itemsize
        for kind, names, count in ((INDEX, INDEXES, rows), (LONG, SUMS, rows), (LONG, CELLS, cells)):
            for name in names:
                length, wanted = len(getattr(self, name)), kind.itemsize * count
                if length != wanted:
                    yield f"{name} has {length} bytes, {wanted} are {count} numbers as in the columns next to it"


def _lines(text: str) -> tuple[str, ...]:
    return tuple(text.split(SEPARATOR)) if text else ()


def _names_error(text: str) -> str:
    names = _lines(text)
    lengths = [len(name) for name in names]
    if names and not 0 < min(lengths) <= max(lengths) <= NAME_LENGTH_MAX:
        return f"names of {min(lengths)} to {max(lengths)} characters: they have 1 to {NAME_LENGTH_MAX}"
    if UNCLEAN_ANYWHERE.search(text.replace(SEPARATOR, "")):
        return "a name has a control character"
    return "" if all(first < second for first, second in pairwise(names)) else "names are not unique and ascending"


def _columns_error(columns: DeliveryColumns) -> str:
    """Return what is wrong with columns of the right lengths, "" if nothing is."""
    for name in ("publisher", "broker"):
        index, names = getattr(columns, name), getattr(columns, f"{name}s")
        if index.size and index.max() >= len(names):
            return f"a row is of {name} {index.max()}, there are {len(names)} names"
    row = columns.publisher * len(columns.brokers) + columns.broker
    if (np.diff(row) <= 0).any():
        return "rows are not unique and ascending by publisher and broker"
    for name in SUMS:
        if (getattr(columns, name) < 0).any():
            return f"{name} of a row is below 0"
    if (announced := int(columns.block_counts.sum())) != columns.blocks.size:
        return f"rows announce {announced} blocks, there are {columns.blocks.size}"
    if ((columns.blocks < 0) | (columns.blocks > BLOCK_MAX)).any():
        return f"a block is outside 0 to {BLOCK_MAX}"
    owner = np.repeat(row, columns.block_counts)
    falls = (np.diff(columns.blocks) <= 0) & (np.diff(owner) == 0)
    return "blocks of a row are not ascending" if falls.any() else ""
