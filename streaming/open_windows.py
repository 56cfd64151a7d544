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
from msgspec import Struct

from regraft.schemas.arrays import Longs
from regraft.streaming.decide_closing import Closing, RowTimes, advance
from regraft.streaming.decode_columns import decode_columns
from regraft.streaming.judge_records import BATCH_SCHEMA
from regraft.streaming.merge_parts import WindowParts
from regraft.streaming.shard_rows import PREFIX, PackedParts, Segment, ShardRows
from regraft.streaming.tabulate_batches import parts_in_windows
from regraft.streaming.unpack_cells import with_cells

# Four telemetry batches in a second, each as long as Kafka permits, are half of this.
SHARE_BYTES_PER_S = 8 << 20
PART_BYTES = SHARE_BYTES_PER_S // 200  # Charged for each part besides its size: 200 in a second at most.


class Kept(NamedTuple):
    """Which parts are kept, by their places, and what is charged to each broker so far."""

    places: Longs
    charged: dict[str, int]


def keep_shares(brokers: Sequence[str], parts: Sequence[bytes], charged: Mapping[str, int], window_ms: int) -> Kept:
    """Return the parts that fit into their brokers' shares of a window: of too many, the first in byte order."""
    after, share = dict(charged), _share(window_ms)
    of_broker: dict[str, list[int]] = {}
    for place, broker in enumerate(brokers):
        of_broker.setdefault(broker, []).append(place)
    dropped: list[int] = []
    for broker, places in of_broker.items():
        ordered = sorted(places, key=lambda place: parts[place])
        sums = np.cumsum([len(parts[place]) + PART_BYTES for place in ordered])
        fit = int(np.searchsorted(sums, share - after.get(broker, 0), "right"))
        dropped += ordered[fit:]
        after[broker] = after.get(broker, 0) + int(sums[fit - 1] if fit else 0)
    return Kept(np.setdiff1d(np.arange(len(parts)), dropped), after)


def _share(window_ms: int) -> int:
    return SHARE_BYTES_PER_S * window_ms // 1_000


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
    still = {start_ms: list(segments) for start_ms, segments in state.open.items()}
    charged = dict(state.charged)
    late_rows = rows_over = 0
    for start_ms, segments in rows.segments.items():
        count = sum(segment.places.size for segment in segments)
        if start_ms + window_ms <= state.closing.closed_ms:
            late_rows += count
            continue
        kept, charged[start_ms] = _within_shares(segments, rows.times, charged.get(start_ms, {}), window_ms)
        rows_over += count - sum(each.sizes().size for each in kept)
        still.setdefault(start_ms, []).extend(kept)
    closing = advance(state.closing, rows.times, window_ms, grace_ms, waits_for_all=waits_for_all)
    due = sorted(start_ms for start_ms in still if start_ms + window_ms <= closing.closed_ms)
    closed = [parts_of_window(start_ms, still.pop(start_ms), window_ms) for start_ms in due]
    charged = {start_ms: of_brokers for start_ms, of_brokers in charged.items() if start_ms in still}
    whole = WindowParts.joined(closed) if closed else None
    return Step(ShardState(closing, still, charged), whole, late_rows, rows_over)


def _within_shares(
    segments: Sequence[Segment], times: RowTimes, charged: Mapping[str, int], window_ms: int
) -> tuple[list[PackedParts], dict[str, int]]:
    """Return what is kept of a window's segments, as they are if all fit, and what is charged for the window so far."""
    names = times.broker.dictionary.to_pylist()
    codes = times.broker.indices.to_numpy()[np.concatenate([segment.places for segment in segments])]
    sizes = np.concatenate([segment.parts.sizes() for segment in segments]) + PART_BYTES
    sums = np.bincount(codes, weights=sizes, minlength=len(names))
    after = dict(charged)
    for code in np.unique(codes).tolist():
        after[names[code]] = after.get(names[code], 0) + int(sums[code])
    if max(after.values()) <= _share(window_ms):
        return [segment.parts for segment in segments], after
    parts = [part for segment in segments for part in segment.parts.parts()]
    kept = keep_shares([names[code] for code in codes.tolist()], parts, charged, window_ms)
    left = [parts[place] for place in kept.places.tolist()]
    return [PackedParts.of(left)] if left else [], kept.charged


def parts_of_window(start_ms: int, segments: Sequence[PackedParts], window_ms: int) -> WindowParts:
    """Return the parts of a window, decoded."""
    data = b"".join(segment.data() for segment in segments)
    lengths = np.concatenate([segment.sizes() for segment in segments])
    ends = np.cumsum(lengths)
    starts = ends - lengths
    prefixes = np.frombuffer(data, dtype=np.uint8)[starts[:, None] + np.arange(PREFIX.size)]
    kafka_ms = np.ascontiguousarray(prefixes[:, :8]).view("<i8").reshape(-1)
    decoded = decode_columns(data, starts + PREFIX.size, ends, BATCH_SCHEMA)
    assert decoded.places.size == lengths.size, "a part that was judged good does not decode"
    window = np.full(lengths.size, start_ms, dtype=np.int64)
    return parts_in_windows(with_cells(decoded.rows), window, window_ms, (kafka_ms, prefixes[:, 8] != 0))
