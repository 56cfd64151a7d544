"""Judged records -> the rows of each shard: what all shards know of each batch, and the parts for the broker's own.

A row is for one batch and one window: a batch has a row in the window of its own time, in those of its deliveries, and
in the one in which Kafka received it, where its delay counts; a batch whose clock is too far off has only the last. Its
part is the batch's body, behind Kafka's time and whether the clock is off, so that no number is encoded twice. Parts
are compressed by window as soon as they are judged, and stay so until their window closes: Spark carries each several
times, to its shard and then as state.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from regraft.schemas.arrays import Longs
from regraft.schemas.units import SECOND_MS
from regraft.streaming.decide_closing import NEVER_MS, RowTimes
from regraft.streaming.judge_records import Judged, RecordJudge, cut_by_window, longs_of
from regraft.streaming.merge_parts import distinct

PREFIX = struct.Struct("<qB")  # Kafka's time in ms, NEVER_MS if it is not used, and 1 if the batch's clock is off.
# A batch in more windows is cut, so that a record is not kept once for each second of an hour.
WHOLE_WINDOWS_MAX = 4


CODEC = "zstd"  # Names and times repeat from part to part. lz4 leaves two thirds more.


class PackedParts(Struct, frozen=True, array_like=True):
    """Parts of one window: concatenated and compressed, ``part_bytes`` long before, and the length of each."""

    part_bytes: int
    packed: bytes
    lengths: bytes

    @classmethod
    def of(cls, parts: list[bytes]) -> PackedParts:
        """Pack parts."""
        joined = b"".join(parts)
        lengths = np.fromiter(map(len, parts), dtype="<i4", count=len(parts))
        return cls(len(joined), pa.compress(joined, codec=CODEC, asbytes=True), lengths.tobytes())

    def data(self) -> bytes:
        """Return the parts, concatenated."""
        data: bytes = pa.decompress(self.packed, self.part_bytes, codec=CODEC, asbytes=True)
        return data

    def sizes(self) -> Longs:
        """Return the length of each part."""
        return np.frombuffer(self.lengths, dtype="<i4").astype(np.int64)

    def parts(self) -> list[bytes]:
        """Return the parts."""
        data, sizes = self.data(), self.sizes()
        return [data[end - size : end] for end, size in zip(np.cumsum(sizes).tolist(), sizes.tolist(), strict=True)]


class Segment(NamedTuple):
    """Parts of one window, and the places of their rows in the micro-batch."""

    places: Longs
    parts: PackedParts


@dataclass(frozen=True, eq=False, slots=True)
class ShardRows:
    """Rows of one micro-batch for one shard: the times of all, and the parts of its own brokers', by window."""

    times: RowTimes
    segments: dict[int, list[Segment]]


class PackedRows(Struct, frozen=True, array_like=True):
    """The rows of some records for one shard, as they cross Spark's exchange; numbers little-endian.

    ``reached_ms`` is how far the row's broker is: the batch's own time or Kafka's, whichever is earlier, so no clock
    runs ahead of Kafka's; NEVER_MS if the clock is too far off. ``kafka_ms`` is NEVER_MS if Kafka's times are not used.
    ``has_cells``: the part has deliveries. ``parts`` are those of the rows with ``own``, by the start of the window.
    """

    brokers: list[str]
    broker: bytes
    reached_ms: bytes
    kafka_ms: bytes
    window_start_ms: bytes
    has_cells: bytes
    own: bytes
    parts: dict[int, PackedParts]

    def packed(self) -> bytes:
        """Return it as bytes."""
        return msgspec.msgpack.encode(self)


def pack_rows(judge: RecordJudge, judged: Judged, window_ms: int, shards: int) -> list[bytes]:
    """Return the packed rows of each shard; nothing if there are no rows at all."""
    is_timed = judge.bounds.future_ms_max is not None
    keys, is_far = _windows(judge, judged, window_ms)
    [window, batch], of_key = distinct(keys.pair)
    if not window.size:
        return []
    has_cells = np.zeros(window.size, dtype=np.bool_)
    has_cells[of_key[keys.is_cell]] = True
    is_off = ~judged.is_used[batch]
    kafka_ms = judged.kafka_ms[batch] if is_timed else np.full(batch.size, NEVER_MS, dtype=np.int64)
    time_ms = longs_of(judged.batches, "time_ms")[batch]
    reached_ms = np.where(is_off, NEVER_MS, np.minimum(time_ms, kafka_ms) if is_timed else time_ms)
    is_cut = is_far | ~judged.is_used
    is_cut[np.bincount(batch, minlength=is_cut.size) > WHOLE_WINDOWS_MAX] = True
    parts = _parts(judge, judged, window_ms, (window, batch), kafka_ms, is_cut)
    coded = judged.batches.field("broker").dictionary_encode()
    brokers = coded.dictionary.to_pylist()
    code = coded.indices.to_numpy()[batch].astype("<i4")
    shard = np.array([shard_of(name, shards) for name in brokers], dtype=np.int64)[code]
    reached, taken, windows = (each.astype("<i8").tobytes() for each in (reached_ms, kafka_ms, window))
    packed = []
    for number in range(shards):
        own = shard == number
        mine = {
            start_ms: PackedParts.of([parts[place] for place in places])
            for start_ms, places in _by_window(np.flatnonzero(own), window)
        }
        rows = PackedRows(brokers, code.tobytes(), reached, taken, windows, has_cells.tobytes(), own.tobytes(), mine)
        packed.append(rows.packed())
    return packed


def unpack_rows(packed: Sequence[bytes]) -> ShardRows:
    """Return the rows of a shard in one micro-batch."""
    several = [msgspec.msgpack.decode(each, type=PackedRows) for each in packed]

    def joined(name: str, kind: str) -> NDArray[Any]:
        return np.concatenate([np.frombuffer(getattr(each, name), dtype=kind) for each in several])

    names = [
        pa.DictionaryArray.from_arrays(np.frombuffer(each.broker, "<i4"), pa.array(each.brokers, pa.string()))
        for each in several
    ]
    times = RowTimes(
        pa.chunked_array(names).unify_dictionaries().combine_chunks(),
        joined("reached_ms", "<i8"),
        joined("kafka_ms", "<i8"),
        joined("window_start_ms", "<i8"),
        joined("has_cells", "?"),
    )
    segments: dict[int, list[Segment]] = {}
    before = 0
    for each in several:
        windows, own = np.frombuffer(each.window_start_ms, "<i8"), np.frombuffer(each.own, "?")
        for start_ms, places in _by_window(np.flatnonzero(own), windows):
            segments.setdefault(start_ms, []).append(Segment(places + before, each.parts[start_ms]))
        before += windows.size
    return ShardRows(times, segments)


def _by_window(places: Longs, window_start_ms: Longs) -> list[tuple[int, Longs]]:
    """Return the places of the rows of each window."""
    starts = window_start_ms[places]
    order = np.argsort(starts, kind="stable")
    groups = np.split(places[order], np.flatnonzero(np.diff(starts[order])) + 1)
    return [(int(window_start_ms[group[0]]), group) for group in groups if group.size]


def shard_of(broker: str, shards: int) -> int:
    """Return the number of the shard that keeps a broker's parts."""
    return zlib.crc32(broker.encode()) % shards


@dataclass(frozen=True, eq=False, slots=True)
class _Windows:
    """Windows and batches of rows, with repeats; ``is_cell`` marks those due to deliveries."""

    pair: tuple[Longs, Longs]
    is_cell: NDArray[np.bool_]


def _windows(judge: RecordJudge, judged: Judged, window_ms: int) -> tuple[_Windows, NDArray[np.bool_]]:
    """Return which batches belong to which windows, and the batches with deliveries far from Kafka's time."""
    is_far = np.zeros(len(judged.batches), dtype=np.bool_)
    owners, windows = [], []
    for report in judge.reports(judged):
        is_far[report.owner[~report.is_near]] = True
        kept = report.is_near & judged.is_used[report.owner]
        owners.append(report.owner[kept])
        windows.append(_start(report.second[kept] * SECOND_MS, window_ms))
    cells = sum(owner.size for owner in owners)
    used = np.flatnonzero(judged.is_used)
    owners.append(used)
    windows.append(_start(longs_of(judged.batches, "time_ms")[used], window_ms))
    if judge.bounds.future_ms_max is not None:
        sound = np.flatnonzero(judged.is_sound)
        owners.append(sound)
        windows.append(_start(judged.kafka_ms[sound], window_ms))
    owner, window = np.concatenate(owners).astype(np.int64), np.concatenate(windows)
    return _Windows((window, owner), np.arange(owner.size) < cells), is_far & judged.is_used


def _parts(
    judge: RecordJudge,
    judged: Judged,
    window_ms: int,
    rows: tuple[Longs, Longs],
    kafka_ms: Longs,
    is_cut: NDArray[np.bool_],
) -> list[bytes]:
    """Return the part of each row, window and batch."""
    window, batch = rows
    windows_of: dict[int, list[int]] = {}
    for place in np.flatnonzero(is_cut[batch]).tolist():
        windows_of.setdefault(int(batch[place]), []).append(int(window[place]))
    cut = {
        row: cut_by_window(
            judged.body(row),
            starts_ms,
            window_ms,
            int(judged.kafka_ms[row]) if judged.is_used[row] else None,
            judge.bounds,
        )
        for row, starts_ms in windows_of.items()
    }
    parts = []
    for start_ms, row, taken_ms in zip(window.tolist(), batch.tolist(), kafka_ms.tolist(), strict=True):
        body = cut[row][start_ms] if row in cut else judged.body(row)
        parts.append(PREFIX.pack(taken_ms, not judged.is_used[row]) + body)
    return parts


def _start(time_ms: Longs, window_ms: int) -> Longs:
    return time_ms - time_ms % window_ms
