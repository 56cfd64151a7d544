"""One shard in one micro-batch, in a Python worker of Spark: take rows, close windows, write their rows, report.

In: the rows of a shard, from Spark, and its state. Out: the state, one ShardReport for the driver, and the rows of
closed windows, acknowledged by Kafka before the report exists. A task that runs again writes the same keys and bytes.
Markers, which need all shards, belong to the driver.
"""

from __future__ import annotations

import time
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.schemas.codec import use_wire_ids
from regraft.streaming.close_windows import ShardSummary, shard_windows
from regraft.streaming.decide_closing import Closing
from regraft.streaming.encode_rows import Message, encode_shard
from regraft.streaming.merge_parts import MergedWindows, WindowParts, merge_parts
from regraft.streaming.open_windows import ShardState, take_rows
from regraft.streaming.shard_rows import ShardRows, unpack_rows
from regraft.streaming.write_state import StateWriter

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.state import GroupState

log = structlog.get_logger(__name__)

REPORT_COLUMNS = "report binary"
# Base 64: Spark pickles a state on its way to Python and back, bytes character by character, but text at once.
STATE_COLUMNS = "packed string"


class ShardReport(msgspec.Struct, frozen=True):
    """A shard's report to the driver on one micro-batch; ``open_rows`` and ``state_bytes`` describe its state after it.

    ``closed_ms``: windows that end by then are closed. ``latest_ms``: the latest time of any broker. ``settle_ms``,
    ``brokers_awaited`` and ``brokers_given_up`` as in :mod:`streaming.decide_closing`, ``late_rows`` and ``rows_over``
    as in :mod:`streaming.open_windows`. ``rows_failed``: rows left out because merging or encoding them failed.
    ``took_ms``: time until its rows were acknowledged, by the worker's clock.
    """

    shard: int
    closed_ms: int
    latest_ms: int
    settle_ms: int
    brokers_awaited: int
    brokers_given_up: int
    late_rows: int
    rows_over: int
    rows_failed: int
    open_rows: int
    state_bytes: int
    write_waits: int
    took_ms: float
    windows: list[ShardSummary]


class RowSink(Protocol):
    """Where the rows of closed windows go; pickled to the workers."""

    def write(self, messages: list[Message]) -> int:
        """Write all messages, wait until they are safe, and return how often it waited for a full buffer."""


@dataclass(frozen=True)
class KafkaRows:
    """Writes rows to the topic of state, with a producer that a worker keeps across tasks."""

    kafka: KafkaAccess
    namespace: str
    timeout_ms: int

    def write(self, messages: list[Message]) -> int:
        """Write all and wait for acknowledgement; raise StateWriteError if none comes for ``timeout_ms``."""
        writer = _writers.get(self)
        if writer is None:
            writer = _writers[self] = StateWriter(self.kafka, self.namespace, self.timeout_ms)
        waits = writer.waits
        try:
            writer.write_rows(messages)
        except Exception:
            _writers.pop(self).close()  # Its messages must not fail another task.
            raise
        return writer.waits - waits


_writers: dict[KafkaRows, StateWriter] = {}  # At most one in each worker of a job.


@dataclass(frozen=True)
class ShardCloser:
    """Spark calls this for each shard that has rows.

    ``shards``: the keys of all shards, in order. ``brokers``: those awaited from the start of a checkpoint.
    """

    shards: tuple[int, ...]
    window_ms: int
    grace_ms: int
    waits_for_all: bool
    sink: RowSink
    brokers: tuple[str, ...] = ()
    wire_ids: Mapping[int, int] = field(default_factory=dict)

    def __call__(self, key: tuple[int], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        """Yield one row with the packed ShardReport."""
        import pandas as pd

        use_wire_ids(self.wire_ids)
        rows = unpack_rows([packed for frame in frames for packed in frame["packed"]])
        before = ShardState.unpacked(b64decode(state.get[0])) if state.exists else self.begun()
        number = self.shards.index(int(key[0]))
        report, after = self.take(number, before, rows)
        state.update((b64encode(after).decode("ascii"),))
        yield pd.DataFrame({"report": [msgspec.msgpack.encode(report)]})

    def begun(self) -> ShardState:
        """Return the state of a shard before its first micro-batch."""
        return ShardState(Closing.awaiting(self.brokers))

    def take(self, number: int, before: ShardState, rows: ShardRows) -> tuple[ShardReport, bytes]:
        """Take in a micro-batch and write the rows of closed windows; return the report and the packed new state."""
        begin_s = time.perf_counter()
        taken = take_rows(before, rows, self.window_ms, self.grace_ms, waits_for_all=self.waits_for_all)
        encoded, rows_failed = [], 0
        if taken.closed is not None:
            merged, rows_failed = merge_what_can_be(taken.closed)
            shards = shard_windows(merged, self.window_ms)
            encoded = [encode_shard(window, number, len(self.shards)) for window in shards]
            rows_failed += sum(each.rows_failed for each in encoded)
        # Also if there are none: so a worker is connected before its first window closes.
        waits = self.sink.write([message for each in encoded for message in each.messages])
        after, closing = taken.state.packed(), taken.state.closing
        open_rows = sum(len(segment.lengths) // 4 for segments in taken.state.open.values() for segment in segments)
        given_up = closing.brokers_given_up
        report = ShardReport(
            shard=number,
            closed_ms=closing.closed_ms,
            latest_ms=closing.latest_ms,
            settle_ms=closing.settle_ms(self.window_ms, self.grace_ms),
            brokers_awaited=len(closing.reached_ms) - given_up,
            brokers_given_up=given_up,
            late_rows=taken.late_rows,
            rows_over=taken.rows_over,
            rows_failed=rows_failed,
            open_rows=open_rows,
            state_bytes=len(after),
            write_waits=waits,
            took_ms=(time.perf_counter() - begin_s) * 1_000,
            windows=[each.summary for each in encoded],
        )
        return report, after


def merge_what_can_be(parts: WindowParts) -> tuple[MergedWindows, int]:
    """Return the merged figures, and how many parts were left out: those of brokers whose parts alone cannot be merged.

    An exception would end the query, and the same micro-batch would run again at each start.
    """
    try:
        return merge_parts(parts), 0
    except Exception:
        log.exception("telemetry_not_merged", parts=len(parts.parts))
    brokers = parts.parts.field("broker").cast(pa.string())
    failed: list[str] = []
    for broker in sorted(set(brokers.to_pylist())):
        try:
            merge_parts(_selected(parts, pc.equal(brokers, broker)))
        except Exception as error:
            log.error("broker_left_out", broker=broker, reason=f"{type(error).__name__}: {error}")
            failed.append(broker)
    is_left_out = pc.is_in(brokers, pa.array(failed, type=pa.string()))
    return merge_parts(_selected(parts, pc.invert(is_left_out))), int(pc.sum(is_left_out.cast(pa.int64())).as_py())


def _selected(parts: WindowParts, mask: pa.BooleanArray) -> WindowParts:
    return WindowParts(parts.window_start_ms[mask.to_numpy(zero_copy_only=False)], parts.parts.filter(mask))
