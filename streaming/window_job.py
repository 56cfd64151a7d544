"""The one query: telemetry in Kafka -> whole windows -> state rows and markers in Kafka.

``start_query`` starts it on a session that is passed in. The module is also the program for ``spark-submit``:
``spark-submit --jars ... streaming/window_job.py --bootstrap HOST:PORT --checkpoint DIRECTORY`` (with the project on
PYTHONPATH and the session settings of ``streaming_settings.SPARK_SETTINGS``), on any master.
"""

import argparse
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from schemas.remote_registry import RegistryError, use_registry
from streaming.aggregate_windows import aggregate_windows
from streaming.close_windows import WindowRows, close_windows
from streaming.merge_parts import merge_parts
from streaming.read_telemetry import read_kafka, telemetry_rows
from streaming.streaming_settings import AVRO_LIMITS, CATCH_UP_GRACE_MS, StreamingSettings

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


def parse_settings(arguments: list[str]) -> StreamingSettings:
    """Return the settings of a command line; argparse ends the program with 2 and one line for each fault."""
    parser = argparse.ArgumentParser(
        prog="window_job.py",
        description="Telemetry in Kafka to windowed state in Kafka.",
        argument_default=argparse.SUPPRESS,  # What is not given has the default of StreamingSettings.
    )
    parser.add_argument("--bootstrap", required=True, help="Kafka servers, host:port[,host:port]")
    parser.add_argument(
        "--checkpoint", required=True, type=Path, dest="checkpoint_directory", help="directory of the checkpoint"
    )
    parser.add_argument("--namespace", help="prefix of the topics")
    parser.add_argument("--window-ms", type=int, help="length of a window, a multiple of 1000")
    parser.add_argument("--grace-ms", type=int, help="how long a window waits for rows")
    parser.add_argument("--trigger-ms", type=int, help="time from one micro-batch to the next")
    parser.add_argument("--records-per-trigger-max", type=int, help="bound of one micro-batch")
    parser.add_argument("--any-time", action="store_true", help="take event times far from Kafka's (replays)")
    parser.add_argument("--status-file", type=Path, help="JSON file that says how far the job is")
    given: dict[str, Any] = vars(parser.parse_args(arguments))
    if given.pop("any_time", False):
        given |= {"future_ms_max": None, "past_ms_max": None}
    given["catch_up_grace_ms"] = max(given.get("grace_ms", 0), CATCH_UP_GRACE_MS)
    settings = StreamingSettings(**given)
    faults = settings.faults()
    if faults:
        parser.error("; ".join(faults))
    return settings


def main() -> int:
    """Run the job until SIGTERM or SIGINT; return the exit code of ``run_job.StreamingJobError``, 0 when stopped."""
    from streaming.run_job import EXIT_REFUSED, StreamingJobError, run_job  # run_job starts the query of this module.

    settings = parse_settings(sys.argv[1:])
    try:
        use_registry(namespace=settings.namespace)
    except RegistryError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_REFUSED
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    spark = SparkSession.builder.appName(f"{settings.namespace}-streaming").getOrCreate()
    try:
        run_job(spark, settings, stop)
    except StreamingJobError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
