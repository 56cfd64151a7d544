"""Split a telemetry batch that Kafka would refuse for its size: outsiders choose the number of publishers and clients.

In: a batch and the size that a record may have. Out: batches that together report the same. They are numbered as if the
broker had flushed several times, so that a lost one shows as a gap. Sending them does not belong here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from regraft.schemas.telemetry import ClientChange, Delivery, LinkProbe, QueueSample, TelemetryBatch

PART_BYTES_MAX = 900_000  # Kafka's default limit is 1 MiB, that of its client 1,000,000 bytes, with key and framing.
PARTS_MAX = 16  # Of one flush; what does not fit is left out and counted.
NUMBERS_BYTES = 110  # At most what the numbers of one entry take: ten longs, and the framing of its second.
FIELDS: dict[type[Any], str] = {
    Delivery: "deliveries", QueueSample: "queues", LinkProbe: "probes", ClientChange: "clients",
}  # fmt: skip
Entry = Delivery | QueueSample | LinkProbe | ClientChange


def split_batch(
    batch: TelemetryBatch, bytes_max: int = PART_BYTES_MAX, parts_max: int = PARTS_MAX
) -> tuple[list[TelemetryBatch], int]:
    """Return the batch in at most ``parts_max`` parts, in sequence, and how many entries are left out."""
    if _bytes_of(batch) <= bytes_max:
        return [batch], 0
    parts: list[list[Entry]] = [[]]
    size, left_out = NUMBERS_BYTES, 0
    for entry in _entries(batch):
        entry_bytes = NUMBERS_BYTES + len(_names_of(entry).encode())
        if size + entry_bytes > bytes_max and len(parts) < parts_max:
            parts.append([])
            size = NUMBERS_BYTES
        if size + entry_bytes > bytes_max:
            left_out += 1
            continue
        parts[-1].append(entry)
        size += entry_bytes
    return [_part(batch, number, entries) for number, entries in enumerate(parts)], left_out


def _part(batch: TelemetryBatch, number: int, entries: list[Entry]) -> TelemetryBatch:
    of_kind: dict[str, tuple[Any, ...]] = {
        name: tuple(entry for entry in entries if isinstance(entry, kind)) for kind, name in FIELDS.items()
    }
    return replace(batch, sequence=batch.sequence + number, seconds=(), **of_kind)


def _entries(batch: TelemetryBatch) -> Iterator[Entry]:
    """Yield all entries; the broker's own figures come first, so that they are never left out."""
    yield from batch.queues
    yield from batch.probes
    yield from batch.clients
    yield from batch.cells()


def _names_of(entry: Entry) -> str:
    match entry:
        case Delivery():
            return entry.publisher
        case QueueSample() | LinkProbe():
            return entry.peer
        case ClientChange():
            return entry.client + entry.change


def _bytes_of(batch: TelemetryBatch) -> int:
    """Return at least what the batch takes in Kafka."""
    packed = sum(
        NUMBERS_BYTES + len(each.publishers.encode()) + sum(map(len, (each.blocks, each.masks, each.published)))
        + len(each.local_deliveries) + len(each.bytes)
        for each in batch.seconds
    )  # fmt: skip
    others: tuple[Entry, ...] = (*batch.queues, *batch.probes, *batch.clients, *batch.deliveries)
    return NUMBERS_BYTES + packed + sum(NUMBERS_BYTES + len(_names_of(entry).encode()) for entry in others)
