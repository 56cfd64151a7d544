"""The one query: telemetry in Kafka -> whole windows -> state rows and markers in Kafka.

``start_query`` starts it on a session that is passed in; running it until told to stop belongs to
:mod:`regraft.streaming.run_job`.
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from regraft.streaming.aggregate_windows import aggregate_windows
from regraft.streaming.close_windows import WindowRows, close_windows
from regraft.streaming.merge_parts import merge_parts
from regraft.streaming.read_telemetry import read_kafka, telemetry_rows
from regraft.streaming.streaming_settings import AVRO_LIMITS, StreamingSettings

OBSERVATION = "telemetry"

CloseWindows = Callable[[list[WindowRows]], None]


def start_query(
    spark: SparkSession,
    settings: StreamingSettings,
    write: CloseWindows,
    *,
    grace_ms: int | None = None,
    take_late_rows: Callable[[], int] = lambda: 0,
    records: DataFrame | None = None,
) -> StreamingQuery:
    """Start the query; ``write`` gets all windows of each micro-batch that closes some, and may be run again with them.

    ``grace_ms`` defaults to the settings'; it may differ from one start to the next on the same checkpoint.
    ``take_late_rows`` gives the late rows not yet told by a marker. ``records`` replaces Kafka as the source.
    """
    limit_avro(spark)
    source = read_kafka(spark, settings) if records is None else records
    rows = telemetry_rows(source, settings, OBSERVATION)
    closed = aggregate_windows(rows, settings.window_ms, settings.grace_ms if grace_ms is None else grace_ms)

    def close_batch(batch: DataFrame, _batch_id: int) -> None:
        # The one action, on all partitions, whatever comes: a batch that is not read whole loses its state silently.
        table = batch.toArrow()
        windows = windows_of(table, settings.window_ms, take_late_rows)
        if windows:
            write(windows)

    return (
        closed.writeStream.foreachBatch(close_batch)
        .outputMode("append")
        .queryName(f"{settings.namespace}-windows")
        .option("checkpointLocation", str(settings.query_directory))
        .trigger(processingTime=f"{settings.trigger_ms} milliseconds")
        .start()
    )


def windows_of(table: pa.Table, window_ms: int, take_late_rows: Callable[[], int] = lambda: 0) -> list[WindowRows]:
    """Return rows and markers of all windows in a table of closed cells; empty when it has none."""
    return close_windows(merge_parts(table), window_ms, take_late_rows()) if table.num_rows else []


def limit_avro(spark: SparkSession) -> None:
    """Bound what one Avro body may claim, in this JVM; executors elsewhere need ``JAVA_OPTIONS``.

    Works until the first Avro body is read, which is when Avro looks at its limits.
    """
    jvm: Any = spark._jvm
    system = jvm.java.lang.System
    for name, limit in AVRO_LIMITS.items():
        if system.getProperty(name) is None:
            system.setProperty(name, str(limit))
