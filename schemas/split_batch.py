"""Split what a broker reports in one flush into batches that Kafka accepts, however many names clients choose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import msgspec

from regraft.schemas.telemetry import TelemetryBatch

BATCH_BYTES_MAX = 500_000  # Half of what Kafka and its clients accept by default, before compression.
CELL_BYTES, CHANGE_BYTES = 40, 64  # Without names, rounded up.
Item = TypeVar("Item")


def split_batch(batch: TelemetryBatch, bytes_max: int = BATCH_BYTES_MAX) -> list[TelemetryBatch]:
    """Return batches of some ``bytes_max`` at most; the first has the queues and probes, whose number is bounded.

    There is nearly always one, which is ``batch`` itself.
    """
    cells = list(_parts(batch.deliveries, lambda cell: CELL_BYTES + len(cell.publisher.encode()), bytes_max))
    changes = list(_parts(batch.clients, lambda one: CHANGE_BYTES + len(one.client.encode()), bytes_max))
    if len(cells) <= 1 and len(changes) <= 1:
        return [batch]
    first = msgspec.structs.replace(batch, deliveries=cells[0] if cells else (), clients=())
    empty = msgspec.structs.replace(batch, deliveries=(), queues=(), probes=(), clients=())
    more = [msgspec.structs.replace(empty, deliveries=part) for part in cells[1:]]
    more += [msgspec.structs.replace(empty, clients=part) for part in changes]
    return [msgspec.structs.replace(each, sequence=batch.sequence + place) for place, each in enumerate([first, *more])]


def _parts(items: Iterable[Item], size_of: Callable[[Item], int], bytes_max: int) -> Iterator[tuple[Item, ...]]:
    """Yield the items in runs of at most ``bytes_max``, at least one item each."""
    part: list[Item] = []
    size = 0
    for item in items:
        item_bytes = size_of(item)
        if part and size + item_bytes > bytes_max:
            yield tuple(part)
            part, size = [], 0
        part.append(item)
        size += item_bytes
    if part:
        yield tuple(part)
