"""Unpack state rows: a row for each publisher and broker instead of packed deliveries, for readers by row.

If rows of the window are missing, the marker still shows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import numpy as np

from regraft.schemas.packed_deliveries import DeliveryColumns
from regraft.schemas.state import PublisherDelivery, StateRow, WindowClosed

PACKED, UNPACKED = "packed_deliveries", "delivery"


def unpack_window(rows: Iterable[StateRow], marker: WindowClosed) -> tuple[tuple[StateRow, ...], WindowClosed]:
    """Return the rows with packed ones as single rows, and the marker with adjusted counts."""
    rows_by_key: dict[tuple[str, str], StateRow] = {}
    packed: list[StateRow] = []
    for row in rows:
        if row.packed_deliveries is None:
            rows_by_key[row.kind, row.entity] = row
        else:
            packed.append(row)
    bodies: dict[tuple[str, str], PublisherDelivery] = {}
    for row in packed:
        assert row.packed_deliveries is not None
        for body in single_deliveries(row.packed_deliveries.columns()):
            pair = (body.publisher, body.broker)
            bodies[pair] = _joined(bodies[pair], body) if pair in bodies else body
    for body in bodies.values():
        entity = f"{body.publisher}|{body.broker}"
        single = StateRow(marker.window_start_ms, marker.window_end_ms, UNPACKED, entity, delivery=body)
        rows_by_key.setdefault(
            (UNPACKED, entity), single
        )  # Jobs of two versions may have written both: they are equal.
    counts = {UNPACKED if kind == PACKED else kind: count for kind, count in marker.row_counts.items()}
    if PACKED in marker.row_counts:
        missing = marker.row_counts[PACKED] - len(packed)
        counts[UNPACKED] = sum(kind == UNPACKED for kind, _ in rows_by_key) + missing
    return tuple(rows_by_key.values()), msgspec.structs.replace(marker, row_counts=counts)


def single_deliveries(columns: DeliveryColumns) -> Iterator[PublisherDelivery]:
    """Yield the rows of one packed record."""
    ends = np.cumsum(columns.block_counts)
    rows = (columns.publisher, columns.broker, columns.notifications, columns.local_deliveries, columns.bytes)
    blocks, masks, published = (each.tolist() for each in (columns.blocks, columns.masks, columns.published))
    places = zip((ends - columns.block_counts).tolist(), ends.tolist(), strict=True)
    entries = zip(*(each.tolist() for each in rows), strict=True)
    for (begin, end), (publisher, broker, notifications, local_deliveries, total_bytes) in zip(
        places, entries, strict=True
    ):
        yield PublisherDelivery(
            columns.publishers[publisher],
            columns.brokers[broker],
            notifications,
            local_deliveries,
            total_bytes,
            tuple(blocks[begin:end]),
            tuple(masks[begin:end]),
            tuple(published[begin:end]),
        )


def _joined(one: PublisherDelivery, other: PublisherDelivery) -> PublisherDelivery:
    """Return the row that two records share: the blocks of both, and the sums, which only one of them has."""
    cells: dict[int, tuple[int, int]] = {}
    for each in (one, other):
        for block, mask, published in zip(each.blocks, each.masks, each.published, strict=True):
            before = cells.get(block, (0, 0))
            cells[block] = (mask | before[0], published | before[1])
    return PublisherDelivery(
        one.publisher,
        one.broker,
        max(one.notifications, other.notifications),
        max(one.local_deliveries, other.local_deliveries),
        max(one.bytes, other.bytes),
        tuple(sorted(cells)),
        tuple(cells[block][0] for block in sorted(cells)),
        tuple(cells[block][1] for block in sorted(cells)),
    )
