"""The state of one shard: the packed parts of open windows, and the progress of closing.

In: the rows of a shard (:mod:`streaming.shard_rows`). Out: the parts of the windows that they close, and the state as
bytes, which Spark keeps in its checkpoint. A shard holds the parts of some brokers but sees the times of all, so that
all shards close the same windows at once. Pure; the use of closed windows belongs to :mod:`streaming.close_shard`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct

from regraft.schemas.arrays import Longs
from regraft.streaming.decide_closing import Closing, advance
from regraft.streaming.decode_columns import decode_columns
from regraft.streaming.judge_records import BATCH_SCHEMA
from regraft.streaming.merge_parts import WindowParts
from regraft.streaming.shard_rows import PREFIX, ShardRows
from regraft.streaming.tabulate_batches import parts_in_windows
from regraft.streaming.unpack_cells import with_cells

Charged = dict[int, dict[str, int]]  # By the start of the window and the broker, in bytes.

# Four telemetry batches in a second, each as long as Kafka permits, are half of this.
SHARE_BYTES_PER_S = 8 << 20
PART_BYTES = SHARE_BYTES_PER_S // 200  # Charged for each part besides its size: 200 in a second at most.


class Kept(NamedTuple):
    """Which parts are kept, by their places, and what is charged for all so far."""

    places: Longs
    charged: Charged


def keep_shares(
    brokers: Sequence[str], starts_ms: Sequence[int], parts: Sequence[bytes], charged: Mapping[int, Mapping[str, int]],
    window_ms: int,
) -> Kept:  # fmt: skip
    """Return the parts that fit into their brokers' shares of their windows: of too many, the first in byte order."""
    after: Charged = {start_ms: dict(of_window) for start_ms, of_window in charged.items()}
    share = SHARE_BYTES_PER_S * window_ms // 1_000
    groups: dict[tuple[int, str], list[int]] = {}
    for place, (broker, start_ms) in enumerate(zip(brokers, starts_ms, strict=True)):
        groups.setdefault((start_ms, broker), []).append(place)
    dropped: list[int] = []
    for (start_ms, broker), places in groups.items():
        of_window = after.setdefault(start_ms, {})
        sizes = [len(parts[place]) + PART_BYTES for place in places]
        left = share - of_window.get(broker, 0)
        if sum(sizes) > left:
            ordered = sorted(places, key=lambda place: parts[place])
            fit = int(np.searchsorted(np.cumsum([len(parts[place]) + PART_BYTES for place in ordered]), left, "right"))
            dropped += ordered[fit:]
            sizes = [len(parts[place]) + PART_BYTES for place in ordered[:fit]]
        of_window[broker] = of_window.get(broker, 0) + sum(sizes)
    return Kept(np.setdiff1d(np.arange(len(parts)), dropped), after)


CODEC = "zstd"  # Names and times repeat from part to part. lz4 leaves two thirds more, all of which passes Java twice.


class PackedParts(Struct, frozen=True, array_like=True):
    """Parts of one window from one micro-batch: their bodies, concatenated and compressed, and the length of each."""

    body_bytes: int
    packed: bytes
    lengths: bytes

    @classmethod
    def of(cls, bodies: list[bytes]) -> PackedParts:
        """Pack bodies."""
        joined = b"".join(bodies)
        lengths = np.fromiter(map(len, bodies), dtype="<i4", count=len(bodies))
        return cls(len(joined), pa.compress(joined, codec=CODEC, asbytes=True), lengths.tobytes())


class ShardState(Struct, frozen=True):
    """All that a shard keeps between micro-batches; ``open`` is by the start of the window.

    ``charged`` is what each broker has taken of its share of each open window (:mod:`streaming.open_windows`).
    """

    closing: Closing = Closing()
    open: dict[int, list[PackedParts]] = {}
    charged: dict[int, dict[str, int]] = {}

    def packed(self) -> bytes:
        """Return it as bytes, the same for the same state."""
        return msgspec.msgpack.encode(self)

    @staticmethod
    def unpacked(data: bytes) -> ShardState:
        """Return the state that ``packed`` encoded."""
        return msgspec.msgpack.decode(data, type=ShardState)


class Step(NamedTuple):
    """A shard after a micro-batch: its state, the parts of closed windows (None if none closed), and dropped rows.

    ``late_rows`` came after their window was closed, ``rows_over`` exceeded their broker's share of it.
    """

    state: ShardState
    closed: WindowParts | None
    late_rows: int
    rows_over: int


def take_rows(state: ShardState, rows: ShardRows, window_ms: int, grace_ms: int, *, waits_for_all: bool) -> Step:
    """Process the rows of one micro-batch: keep parts of open windows, then close windows that are due.

    A row is late if its window was closed before this micro-batch.
    """
    own = np.array([part is not None for part in rows.parts], dtype=np.bool_)
    starts = rows.times.window_start_ms
    is_late = own & (starts + window_ms <= state.closing.closed_ms)
    on_time = np.flatnonzero(own & ~is_late)
    kept = _within_shares(state, rows, on_time, window_ms)
    places = on_time[kept.places]
    still = {start_ms: list(segments) for start_ms, segments in state.open.items()}
    for start_ms in np.unique(starts[places]).tolist():
        bodies = [part for place in places[starts[places] == start_ms] if (part := rows.parts[place]) is not None]
        still.setdefault(start_ms, []).append(PackedParts.of(bodies))
    closing = advance(state.closing, rows.times, window_ms, grace_ms, waits_for_all=waits_for_all)
    due = sorted(start_ms for start_ms in still if start_ms + window_ms <= closing.closed_ms)
    closed = [_parts(start_ms, still.pop(start_ms), window_ms) for start_ms in due]
    charged = {start_ms: of_window for start_ms, of_window in kept.charged.items() if start_ms in still}
    whole = WindowParts.joined(closed) if closed else None
    return Step(ShardState(closing, still, charged), whole, int(is_late.sum()), on_time.size - places.size)


def _within_shares(state: ShardState, rows: ShardRows, places: Longs, window_ms: int) -> Kept:
    names = rows.times.broker.dictionary.to_pylist()
    brokers = [names[code] for code in rows.times.broker.indices.to_numpy()[places].tolist()]
    parts = [rows.parts[place] or b"" for place in places.tolist()]
    return keep_shares(brokers, rows.times.window_start_ms[places].tolist(), parts, state.charged, window_ms)


def _parts(start_ms: int, segments: list[PackedParts], window_ms: int) -> WindowParts:
    data = b"".join(
        pa.decompress(segment.packed, segment.body_bytes, codec=CODEC, asbytes=True) for segment in segments
    )
    lengths = np.frombuffer(b"".join(segment.lengths for segment in segments), dtype="<i4").astype(np.int64)
    return parts_of_window(start_ms, data, lengths, window_ms)


def parts_of_window(start_ms: int, data: bytes, lengths: Longs, window_ms: int) -> WindowParts:
    """Return the parts of a window that are concatenated in ``data``, with these lengths in bytes."""
    ends = np.cumsum(lengths)
    starts = ends - lengths
    prefixes = np.frombuffer(data, dtype=np.uint8)[starts[:, None] + np.arange(PREFIX.size)]
    kafka_ms = np.ascontiguousarray(prefixes[:, :8]).view("<i8").reshape(-1)
    decoded = decode_columns(data, starts + PREFIX.size, ends, BATCH_SCHEMA)
    assert decoded.places.size == lengths.size, "a part that was judged good does not decode"
    window = np.full(lengths.size, start_ms, dtype=np.int64)
    return parts_in_windows(with_cells(decoded.rows), window, window_ms, (kafka_ms, prefixes[:, 8] != 0))
