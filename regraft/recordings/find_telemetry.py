"""Find the telemetry in a block of a recording without a slow walk from record to record.

The result is verified: each record must end where the next one begins, from the block's first byte to its last;
otherwise the block is walked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from regraft.producers.recordings.recording_format import FormError, RawRecord, raw_records
from regraft.schemas.arrays import Longs
from regraft.schemas.topics import TELEMETRY
from regraft.streaming.decode_columns import ColumnWalk

_NAME = TELEMETRY.suffix.encode()
_START = re.compile(re.escape(bytes([len(_NAME) << 1]) + _NAME))


@dataclass(frozen=True, eq=False, slots=True)
class BlockRecords:
    """A block's batches: of each Kafka's time, the union's branch, and the body's start and size; and other records."""

    time_ms: Longs
    branch: Longs
    start: Longs
    size: Longs
    others: tuple[RawRecord, ...]


def find_telemetry(raw: bytes, count: int) -> BlockRecords:
    """Return the records of a decompressed block. Raises FormError if it does not hold ``count`` records."""
    return _found(raw, count) or _walked(raw, count)


def _found(raw: bytes, count: int) -> BlockRecords | None:
    """Find batches by their topic's name; return None if the records do not fill the block exactly."""
    begins = np.array([match.start() for match in _START.finditer(raw)], dtype=np.int64)
    everyone = np.arange(begins.size, dtype=np.int64)
    walk = ColumnWalk(raw, begins + 1 + len(_NAME), np.full(begins.size, len(raw), dtype=np.int64))
    time_ms = walk.longs(everyone)
    walk.skip_longs(everyone, 2)  # Partition and offset.
    walk.texts(everyone)  # The key.
    size = walk.longs(everyone)
    branch = walk.longs(everyone)
    start = walk.at.copy()
    ends = start + size
    if walk.is_bad.any() or (size < 0).any() or (branch < 0).any():
        return None
    others: list[RawRecord] = []
    gaps_from = np.concatenate([[0], ends]).astype(np.int64)
    gaps_to = np.concatenate([begins, [len(raw)]]).astype(np.int64)
    if (gaps_from > gaps_to).any():
        return None  # Bytes within a record look like the start of another.
    for place in np.flatnonzero(gaps_from < gaps_to).tolist():
        between = _between(raw, int(gaps_from[place]), int(gaps_to[place]))
        if between is None:
            return None
        others += between
    if begins.size + len(others) != count:
        return None
    return BlockRecords(time_ms, branch, start, size, tuple(others))


def _between(raw: bytes, begin: int, end: int) -> list[RawRecord] | None:
    """Return the records between two batches; None if they do not fill that space exactly."""
    piece = raw[begin:end]
    records: list[RawRecord] = []
    try:
        for record in raw_records(piece, len(piece)):
            if record.topic == TELEMETRY.suffix:
                return None
            records.append(record._replace(start=record.start + begin))
            if record.start + record.size == len(piece):
                return records
    except FormError:
        return None
    return None


def _walked(raw: bytes, count: int) -> BlockRecords:
    batches: list[RawRecord] = []
    others: list[RawRecord] = []
    for record in raw_records(raw, count):
        (batches if record.topic == TELEMETRY.suffix else others).append(record)
    names = ("time_ms", "branch", "start", "size")
    time_ms, branch, start, size = (
        np.array([getattr(batch, name) for batch in batches], dtype=np.int64) for name in names
    )
    return BlockRecords(time_ms, branch, start, size, tuple(others))
