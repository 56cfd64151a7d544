"""Delivery rows of a window -> packed records of bounded size, the same for the same rows.

A row is split only if it is longer than a record may be.
"""

from collections.abc import Iterator

import numpy as np

from regraft.schemas.arrays import Longs
from regraft.schemas.packed_deliveries import BLOCK_BYTES, ROW_BYTES, DeliveryColumns, PackedDeliveries
from regraft.streaming.merge_parts import MergedDeliveries

# A quarter of Kafka's default record size: no larger buffers are needed, and a lost record costs less.
PACKED_BYTES_MAX = 1 << 18


def pack_deliveries(
    deliveries: MergedDeliveries, window_start_ms: int, bytes_max: int = PACKED_BYTES_MAX
) -> Iterator[PackedDeliveries]:
    """Yield the rows of a window in records of at most ``bytes_max`` bytes, not counting a few for framing.

    Each record has at least one row of one block, even if ``bytes_max`` is below the 2 KB that two names may take.
    """
    rows = deliveries.of_window(window_start_ms)
    starts = deliveries.starts[rows.start : rows.stop + 1]
    name_bytes = _name_bytes(deliveries.publishers)[deliveries.publisher[rows]]
    name_bytes += _name_bytes(deliveries.brokers)[deliveries.broker[rows]]
    room = np.maximum((bytes_max - ROW_BYTES - name_bytes) // BLOCK_BYTES, 1)
    counts = np.diff(starts)
    # Pieces of rows; nearly every row is one piece.
    piece_counts = np.maximum(-(-counts // room), 1)
    row = np.repeat(np.arange(counts.size), piece_counts)
    place = np.arange(row.size) - np.repeat(np.cumsum(piece_counts) - piece_counts, piece_counts)
    begins = starts[row] + place * room[row]
    ends = np.minimum(begins + room[row], starts[row + 1])
    sizes = ROW_BYTES + name_bytes[row] + BLOCK_BYTES * (ends - begins)
    for pieces in _records(sizes, np.flatnonzero(place), bytes_max):
        cells = slice(int(begins[pieces][0]), int(ends[pieces][-1]))
        yield _packed(deliveries, row[pieces] + rows.start, place[pieces] == 0, (ends - begins)[pieces], cells)


def _name_bytes(names: tuple[str, ...]) -> Longs:
    return np.array([len(name.encode()) + 1 for name in names], dtype=np.int64)


def _records(sizes: Longs, cut_before: Longs, bytes_max: int) -> Iterator[slice]:
    """Yield the pieces of each record, as many as it holds; a piece in ``cut_before`` begins a new record."""
    until = np.cumsum(sizes)
    begin = 0
    while begin < sizes.size:
        held = int(np.searchsorted(until, until[begin] - sizes[begin] + bytes_max, "right"))
        cut = cut_before[np.searchsorted(cut_before, begin, "right") :]
        end = min(max(held, begin + 1), int(cut[0]) if cut.size else sizes.size)
        yield slice(begin, end)
        begin = end


def _packed(
    deliveries: MergedDeliveries, rows: Longs, is_first: np.typing.NDArray[np.bool_], counts: Longs, cells: slice
) -> PackedDeliveries:
    publisher_codes, publisher = np.unique(deliveries.publisher[rows], return_inverse=True)
    broker_codes, broker = np.unique(deliveries.broker[rows], return_inverse=True)
    columns = DeliveryColumns(
        publishers=tuple(deliveries.publishers[code] for code in publisher_codes.tolist()),
        brokers=tuple(deliveries.brokers[code] for code in broker_codes.tolist()),
        publisher=publisher,
        broker=broker,
        block_counts=counts,
        notifications=np.where(is_first, deliveries.notifications[rows], 0),
        local_deliveries=np.where(is_first, deliveries.local_deliveries[rows], 0),
        bytes=np.where(is_first, deliveries.bytes[rows], 0),
        blocks=deliveries.blocks[cells],
        masks=deliveries.masks[cells],
        published=deliveries.published[cells],
    )
    return PackedDeliveries.of(columns)
