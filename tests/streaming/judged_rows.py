"""The rows that a shard gets for batches, judged and packed as in Spark's workers."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from regraft.schemas.codec import encode
from regraft.schemas.telemetry import TelemetryBatch
from regraft.streaming.judge_records import RecordJudge, Records
from regraft.streaming.shard_rows import ShardRows, pack_rows, unpack_rows
from regraft.streaming.streaming_settings import EventBounds
from tests.streaming.random_telemetry import WINDOW_MS

FAR_MS = 1 << 45


def records_of(values: Sequence[bytes | None], kafka_ms: int = 0, topic: str = "regraft.telemetry") -> Records:
    """Return the values as records that Kafka received at one time."""
    sizes = np.array([len(value or b"") for value in values], dtype=np.int64)
    times_ms = np.full(len(values), kafka_ms, dtype=np.int64)
    return Records(pa.array(values, pa.binary()), sizes, times_ms, pa.array([topic] * len(values), pa.string()))


def rows_of(
    batches: Sequence[TelemetryBatch], kafka_ms: int | None = None, shard: int = 0, shards: int = 1
) -> ShardRows:
    """Return the rows of a shard; without Kafka's time, any clock is right and none is measured."""
    return rows_of_tasks([batches], kafka_ms, shard, shards)


def rows_of_tasks(
    tasks: Sequence[Sequence[TelemetryBatch]], kafka_ms: int | None = None, shard: int = 0, shards: int = 1
) -> ShardRows:
    """Return the rows of a shard from several tasks, each of which has judged some of the batches."""
    judge = RecordJudge(EventBounds() if kafka_ms is None else EventBounds(FAR_MS, FAR_MS))
    packed: list[bytes] = []
    for batches in tasks:
        judged = judge.judge(records_of([encode(batch) for batch in batches], kafka_ms or 0))
        packed += pack_rows(judge, judged, WINDOW_MS, shards)[shard : shard + 1]
    return unpack_rows(packed)
