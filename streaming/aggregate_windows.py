"""Telemetry rows -> whole windows: the one watermark and the one stateful operator of the query.

In: rows of ``read_telemetry.telemetry_rows``. Out: for each (window, broker, boot) the set of its parts. A set is
idempotent: a batch that arrives twice is in it once. What is inside the parts (masks, counters) is merged by
``merge_parts`` on whole windows, again by idempotent operations.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from regraft.streaming.read_telemetry import LEAD_MS, part_of


def aggregate_windows(rows: DataFrame, window_ms: int, grace_ms: int) -> DataFrame:
    """Return window_start_ms, broker, boot and ``parts`` of each closed window.

    On a stream in append mode a window comes out once, whole, when the latest pulse is ``grace_ms`` past its end.
    """
    timed = rows.withWatermark("event_time", f"{LEAD_MS + grace_ms} milliseconds")
    # Pulses have moved the watermark and end here. A condition on window_ms alone Spark would move ahead of the
    # watermark, and it infers one from whatever is null without it.
    is_of_window = F.coalesce(F.col("window_ms"), -F.unix_millis("event_time")) >= 0
    return (
        timed.where(is_of_window)
        .select("event_time", "batch.broker", "batch.boot", part_of(window_ms).alias("part"))
        .groupBy("event_time", "broker", "boot")
        .agg(F.collect_set("part").alias("parts"))
        .select((F.unix_millis("event_time") - window_ms).alias("window_start_ms"), "broker", "boot", "parts")
    )
