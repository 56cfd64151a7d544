"""State rows with packed deliveries -> the same with a row for each publisher and broker, for readers by row.

In: the rows of one window, each once, in any order. Out: rows, and a marker that counts these. What a window has too
few of is missing afterwards, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import numpy as np

from regraft.schemas.packed_deliveries import DeliveryColumns
from regraft.schemas.state import PublisherDelivery, StateRow, WindowClosed

PACKED, UNPACKED = "packed_deliveries", "delivery"


def unpack_window(rows: Iterable[StateRow], marker: WindowClosed) -> tuple[tuple[StateRow, ...], WindowClosed]:
    """Return the rows with those packed as single ones, and the marker with its counts of these."""
    found: dict[tuple[str, str], StateRow] = {}
    packed: list[StateRow] = []
    for row in rows:
        if row.packed_deliveries is None:
            found[row.kind, row.entity] = row
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
        found.setdefault((UNPACKED, entity), single)  # A job of two versions wrote both: they say the same.
    counts = {UNPACKED if kind == PACKED else kind: count for kind, count in marker.row_counts.items()}
    if PACKED in marker.row_counts:
        missing = marker.row_counts[PACKED] - len(packed)
        counts[UNPACKED] = sum(kind == UNPACKED for kind, _ in found) + missing
    return tuple(found.values()), msgspec.structs.replace(marker, row_counts=counts)


def single_deliveries(columns: DeliveryColumns) -> Iterator[PublisherDelivery]:
    """Yield the rows that one packed record holds."""
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
    """Return a row of whose blocks some stand in another record; one of both has its sums."""
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
