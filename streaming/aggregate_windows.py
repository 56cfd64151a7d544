"""Telemetry rows -> whole windows: the one watermark and the one stateful operator of the query.

In: rows of ``read_telemetry.telemetry_rows``. Out: for each (window, broker, boot) the set of its parts. A set is
idempotent: a batch that arrives twice is in it once. What is inside the parts (masks, counters) is merged by
``merge_parts`` on whole windows, again by idempotent operations.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812


def aggregate_windows(rows: DataFrame, window_ms: int, grace_ms: int) -> DataFrame:
    """Return window_start_ms, broker, boot and ``parts`` of each closed window.

    On a stream in append mode a window comes out once, whole, when the latest event time seen is ``grace_ms`` past
    its end.
    """
    return (
        rows.withWatermark("event_time", f"{grace_ms} milliseconds")
        .groupBy(F.window("event_time", f"{window_ms} milliseconds"), "broker", "boot")
        .agg(F.collect_set("part").alias("parts"))
        .select(F.unix_millis("window.start").alias("window_start_ms"), "broker", "boot", "parts")
    )
