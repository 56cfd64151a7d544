"""The one query: telemetry in Kafka -> whole windows -> state rows and markers in Kafka.

Java carries bytes. Python workers judge the records (:mod:`streaming.judge_records`); by shards of brokers, others keep
open windows as state, and merge, encode and write the rows of closed ones (:mod:`streaming.close_shard`). The driver
writes the markers once all rows are acknowledged. ``start_query`` starts the query on a given session; running it until
asked to stop belongs to :mod:`streaming.run_job`.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupStateTimeout

from regraft.schemas.codec import wire_ids
from regraft.streaming.close_shard import REPORT_COLUMNS, STATE_COLUMNS, RowSink, ShardCloser, ShardReport
from regraft.streaming.close_windows import JoinedWindow, ShardSummary, join_window
from regraft.streaming.read_telemetry import read_kafka, telemetry_rows
from regraft.streaming.source_topics import known_brokers
from regraft.streaming.streaming_settings import StreamingSettings

OBSERVATION = "telemetry"
BITS_32 = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class ClosedBatch:
    """The windows that micro-batch ``number`` closed, ascending, often none, and the reports of its shards."""

    number: int
    windows: tuple[JoinedWindow, ...]
    reports: tuple[ShardReport, ...]


TakeBatch = Callable[[ClosedBatch], None]


def start_query(
    spark: SparkSession,
    settings: StreamingSettings,
    take: TakeBatch,
    sink: RowSink,
    *,
    grace_ms: int | None = None,
    waits_for_all: bool = True,
    runs_once: bool = False,
    records: DataFrame | None = None,
) -> StreamingQuery:
    """Start the query; ``take`` receives what each micro-batch with records closed, possibly more than once.

    The rows of closed windows are in ``sink`` before that. ``grace_ms`` defaults to the settings'; it and
    ``waits_for_all`` (see :mod:`streaming.decide_closing`) may change between starts on the same checkpoint, except for
    an uncommitted micro-batch (:mod:`streaming.decide_closing`): with ``runs_once``, the query ends after that one, or
    after one new one. ``records`` replaces Kafka as the source.
    """
    source = read_kafka(spark, settings) if records is None else records
    rows = telemetry_rows(source, settings, OBSERVATION)
    keys = shard_keys(settings.shards)
    grace_ms = settings.grace_ms if grace_ms is None else grace_ms
    brokers = known_brokers(settings)
    closer: Any = ShardCloser(keys, settings.window_ms, grace_ms, waits_for_all, sink, brokers, wire_ids())
    spark.conf.set("spark.sql.shuffle.partitions", settings.shards)
    reports = (
        rows.withColumn("shard", F.element_at(F.array(*map(F.lit, keys)), F.col("shard") + 1))
        .groupBy("shard")
        .applyInPandasWithState(
            closer, REPORT_COLUMNS, STATE_COLUMNS, outputMode="append", timeoutConf=GroupStateTimeout.NoTimeout
        )
    )

    def take_batch(batch: DataFrame, number: int) -> None:
        # The only action, always on all partitions: a batch that is not read completely loses its state silently.
        packed = batch.toArrow().column("report").to_pylist()
        reports = [msgspec.msgpack.decode(report, type=ShardReport) for report in packed]
        take(joined(number, reports, settings.window_ms))

    writer = (
        reports.writeStream.foreachBatch(take_batch)
        .outputMode("append")
        .queryName(f"{settings.namespace}-windows")
        .option("checkpointLocation", str(settings.query_directory))
    )
    # Not availableNow, which would continue with all available records.
    trigger: dict[str, Any] = {"once": True} if runs_once else {"processingTime": f"{settings.trigger_ms} milliseconds"}
    return writer.trigger(**trigger).start()


def joined(number: int, reports: Sequence[ShardReport], window_ms: int) -> ClosedBatch:
    """Return the windows that the shards of one micro-batch closed; only the first reports late rows."""
    of_window: dict[int, list[ShardSummary]] = {}
    for report in sorted(reports, key=lambda report: report.shard):
        for summary in report.windows:
            of_window.setdefault(summary.window_start_ms, []).append(summary)
    late_rows = sum(report.late_rows for report in reports)
    windows = tuple(
        join_window(of_window[start_ms], window_ms, 0 if place else late_rows)
        for place, start_ms in enumerate(sorted(of_window))
    )
    return ClosedBatch(number, windows, tuple(reports))


def shard_keys(shards: int) -> tuple[int, ...]:
    """Return the smallest key of each shard, such that Spark puts each into a different partition, its shard's."""
    key_at: dict[int, int] = {}
    numbers = itertools.count()
    while len(key_at) < shards:
        key = next(numbers)
        key_at.setdefault(spark_hash(key) % shards, key)
    return tuple(key_at[place] for place in range(shards))


def spark_hash(number: int) -> int:
    """Return what Spark's ``hash`` returns for an int: Murmur3 of its 32 bits, seed 42, as a signed number."""
    mixed = _turned(number * 0xCC9E2D51, 15) * 0x1B873593
    state = _turned(42 ^ (mixed & BITS_32), 13) * 5 + 0xE6546B64
    state = (state & BITS_32) ^ 4  # Bytes hashed.
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        state = (state ^ state >> shift) * factor & BITS_32
    state ^= state >> 16
    return state - (1 << 32) if state >> 31 else state


def _turned(number: int, bits: int) -> int:
    number &= BITS_32
    return (number << bits | number >> 32 - bits) & BITS_32
