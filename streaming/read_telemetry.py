"""Kafka -> the rows of the shards, or refused records: what Java does, and what Python workers do with its records.

Java carries each record's bytes from Kafka to a worker, and the packed rows of many records to the worker of a shard;
it reads none of them. Judging records belongs to :mod:`streaming.judge_records`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (the name every Spark text uses)

from regraft.infra.kafka.dead_letters import VALUE_BYTES_MAX
from regraft.schemas.bounds import RECORD_BYTES_MAX
from regraft.schemas.codec import use_wire_ids, wire_ids
from regraft.streaming.judge_records import Counts, RecordJudge, Records
from regraft.streaming.measure_backlog import batch_records_max
from regraft.streaming.shard_rows import pack_rows
from regraft.streaming.source_topics import broker_topics, known_brokers, source_topics
from regraft.streaming.streaming_settings import StreamingSettings

KAFKA_ANSWER_MS_MAX = 15_000
KAFKA_TRIES = 12
PIECE_BYTES_MAX = 32 << 20  # Of values that a worker judges at once; each is copied a few times.
ROW_COLUMNS = "shard int, packed binary, " + ", ".join(f"{name} bigint" for name in Counts._fields)
LETTER_COLUMNS = (
    "topic string, partition int, offset bigint, key binary, time_ms bigint, size int, value binary, reason string"
)


def read_kafka(spark: SparkSession, settings: StreamingSettings) -> DataFrame:
    """Return the telemetry of all agents as a stream of Kafka records; new topics are read from their beginning.

    ``batch_records_max`` is divided in proportion to each partition's backlog, so all are read at about the same pace.
    What Kafka has deleted meanwhile is skipped; ``find_losses`` reports it.
    """
    options: dict[str, str | int] = {
        **settings.kafka.spark_options(),
        "subscribe": ",".join(source_topics(settings)),
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": batch_records_max(settings),
        "minPartitions": settings.read_partitions_min,
        "failOnDataLoss": "false",
        "groupIdPrefix": f"{settings.namespace}-streaming",
        "kafka.max.partition.fetch.bytes": 8 << 20,
        "kafka.fetch.max.bytes": 64 << 20,
        "kafka.max.poll.records": 20_000,
        # The client that asks for the ends of topics waits for a dead Kafka broker until its timeout, although others
        # lead by then: a shorter timeout with more retries waits as long in total.
        "kafka.default.api.timeout.ms": KAFKA_ANSWER_MS_MAX,
        "kafka.request.timeout.ms": KAFKA_ANSWER_MS_MAX,
        "fetchOffset.numRetries": KAFKA_TRIES,
    }
    # Each task starts a worker and has its own fixed cost, which is more than a few records cost.
    tasks = max(settings.read_partitions_min, settings.shards)
    return spark.readStream.format("kafka").options(**options).load().coalesce(tasks)


def judge_of(settings: StreamingSettings) -> RecordJudge:
    """Return who judges the records of a job. Raises InventoryError."""
    return RecordJudge(settings.bounds, frozenset(known_brokers(settings)), broker_topics(settings))


def telemetry_rows(records: DataFrame, settings: StreamingSettings, observation: str | None = None) -> DataFrame:
    """Return shard (its number) and packed (:class:`streaming.shard_rows.PackedRows`), a few rows for many records.

    ``observation`` names the metrics that a stream reports with its progress: the sums of ``judge_records.Counts``.
    """
    packer = RowPacker(judge_of(settings), settings.window_ms, settings.shards, wire_ids())
    rows = _for_python(records).mapInArrow(packer, ROW_COLUMNS)
    if observation is not None:
        rows = rows.observe(observation, *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in Counts._fields))
    return rows.where("shard is not null").select("shard", "packed")


def dead_letters(records: DataFrame, settings: StreamingSettings) -> DataFrame:
    """Return the refused records: topic, partition, offset, key, time_ms (of Kafka), size, value and reason; a
    value that is longer than a letter can hold is truncated.
    """
    return _for_python(records, "partition", "offset", "key").mapInArrow(
        LetterWriter(judge_of(settings), wire_ids()), LETTER_COLUMNS
    )


def _for_python(records: DataFrame, *others: str) -> DataFrame:
    size = F.length("value")
    value = F.when(size > RECORD_BYTES_MAX, F.substring("value", 1, VALUE_BYTES_MAX)).otherwise(F.col("value"))
    times_ms = F.unix_millis("timestamp").alias("time_ms")
    return records.select("topic", *others, times_ms, value.alias("value"), size.alias("size"))


@dataclass(frozen=True)
class RowPacker:
    """Spark calls this for the records of a partition."""

    judge: RecordJudge
    window_ms: int
    shards: int
    wire_ids: Mapping[int, int]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a row for each shard, and one with the counts, for each piece of the records."""
        use_wire_ids(self.wire_ids)
        for records, _ in _pieces(batches):
            judged = self.judge.judge(records)
            packed = pack_rows(self.judge, judged, self.window_ms, self.shards)
            counts = self.judge.counts(records, judged)
            columns = [
                pa.array([*range(len(packed)), None], pa.int32()),
                pa.array([*packed, None], pa.binary()),
                *(pa.array([None] * len(packed) + [count], pa.int64()) for count in counts),
            ]
            yield pa.RecordBatch.from_arrays(columns, ["shard", "packed", *Counts._fields])


@dataclass(frozen=True)
class LetterWriter:
    """Spark calls this for the records of a range that has refused ones."""

    judge: RecordJudge
    wire_ids: Mapping[int, int]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the refused records with their reasons."""
        use_wire_ids(self.wire_ids)
        for records, piece in _pieces(batches):
            reasons = self.judge.reasons(records)
            if not reasons:
                continue
            refused = piece.take(pa.array(list(reasons), pa.int64()))
            values = [(value or b"")[:VALUE_BYTES_MAX] for value in refused.column("value").to_pylist()]
            names = ["topic", "partition", "offset", "key", "time_ms", "size"]
            columns = [refused.column(name) for name in names]
            columns += [pa.array(values, pa.binary()), pa.array(list(reasons.values()), pa.string())]
            yield pa.RecordBatch.from_arrays(columns, [*names, "value", "reason"])


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Records, pa.RecordBatch]]:
    for batch in batches:
        begin, sizes = 0, batch.column("size").fill_null(0).to_numpy().astype(np.int64)
        ends = np.cumsum(np.minimum(sizes, RECORD_BYTES_MAX))
        while begin < batch.num_rows:
            before = int(ends[begin - 1]) if begin else 0
            end = max(int(np.searchsorted(ends, before + PIECE_BYTES_MAX, "right")), begin + 1)
            piece = batch.slice(begin, end - begin)
            times_ms = piece.column("time_ms").to_numpy().astype(np.int64)
            yield Records(piece.column("value"), sizes[begin:end], times_ms, piece.column("topic")), piece
            begin = end
