"""Kafka records -> telemetry rows: decode, judge and split by window, in Spark's own expressions only.

In: the columns of Spark's Kafka source. Out: ``telemetry_rows``, one row for each (batch, window) with the part of
the batch that belongs to the window, and ``dead_letters``, the records that were refused, with the reason. A record
that cannot be used becomes a dead letter and never ends the query. Aggregation does not belong here.

A row is a part of a *batch*, not a single cell: nearly every cell (broker, publisher, block, second) is unique, so
a row of state for each of them merges nothing and has to be stored, shuffled and removed all the same.
"""

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (the name every Spark text uses)
from pyspark.sql.avro.functions import from_avro

from infra.dead_letters import VALUE_BYTES_MAX
from schemas.bounds import RECORD_BYTES_MAX
from schemas.codec import (
    CONFLUENT_HEADER_BYTES,
    CONFLUENT_MAGIC,
    SINGLE_OBJECT_HEADER_BYTES,
    SINGLE_OBJECT_MAGIC,
    accepted_ids,
)
from schemas.registry import latest_schema, schema_by_id, schema_ids_of
from streaming.refuse_batches import implausible, strangers
from streaming.streaming_settings import SECOND_MS, StreamingSettings

RECORD = "TelemetryBatch"


def read_kafka(spark: SparkSession, settings: StreamingSettings) -> DataFrame:
    """Return the telemetry topic as a stream of Kafka records, from its beginning for a new checkpoint.

    ``records_per_trigger_max`` is shared out in proportion to each partition's backlog, so all of them are read
    through at about the same pace. ``failOnDataLoss`` stays on: a deleted topic ends the query with a clear error.
    """
    options: dict[str, str | int] = {
        **settings.kafka.spark_options(),
        "subscribe": settings.source_topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": settings.records_per_trigger_max,
        "minPartitions": settings.read_partitions_min,
        "failOnDataLoss": "true",
        "groupIdPrefix": f"{settings.namespace}-streaming",
        "kafka.max.partition.fetch.bytes": 8 << 20,
        "kafka.fetch.max.bytes": 64 << 20,
        "kafka.max.poll.records": 20_000,
    }
    return spark.readStream.format("kafka").options(**options).load()


def telemetry_rows(records: DataFrame, settings: StreamingSettings, observation: str | None = None) -> DataFrame:
    """Return one row for each (batch, window): event_time, broker, boot and ``part``.

    ``part`` holds sequence, time_ms, epoch, ``own`` (the batch's own time is in the window) and the deliveries of
    the window; queues, probes and clients are set only where ``own``. The rows of a batch's older windows stand at
    the start of these, so only the batch's own time moves the watermark. ``observation`` names the metrics that a
    stream reports with its progress: records and refused records.
    """
    judged = _judge(records, settings).select("batch", "reason")
    if observation is not None:
        judged = judged.observe(
            observation,
            F.count(F.lit(1)).alias("records"),
            F.count("reason").alias("dead"),
            F.coalesce(F.sum(F.size("batch.deliveries")), F.lit(0)).alias("cells"),
        )
    window_ms = settings.window_ms
    split = judged.select(
        "batch",
        F.explode(
            F.when(F.col("reason").isNull(), _windows(window_ms)).otherwise(F.array().cast("array<bigint>"))
        ).alias("window_ms"),
    )
    own = _window_start("batch.time_ms", window_ms) == F.col("window_ms")
    event_ms = F.when(own, F.col("batch.time_ms")).otherwise(F.col("window_ms"))
    return split.select(
        F.timestamp_millis(event_ms).alias("event_time"),
        F.col("batch.broker").alias("broker"),
        F.col("batch.boot").alias("boot"),
        F.struct(
            F.col("batch.sequence").alias("sequence"),
            F.col("batch.time_ms").alias("time_ms"),
            F.col("batch.epoch").alias("epoch"),
            own.alias("own"),
            _deliveries_of_window(window_ms).alias("deliveries"),
            *(F.when(own, F.col(f"batch.{name}")).alias(name) for name in ("queues", "probes", "clients")),
        ).alias("part"),
    )


def dead_letters(records: DataFrame, settings: StreamingSettings) -> DataFrame:
    """Return the refused records: topic, partition, offset, reason, value, its bytes and time_ms (Kafka's timestamp).

    Of a value longer than a letter holds there is only the beginning.
    """
    judged = _judge(records, settings)
    value = F.coalesce("value", F.lit(b""))
    return judged.where(F.col("reason").isNotNull()).select(
        "topic",
        "partition",
        "offset",
        "reason",
        F.substring(value, 1, VALUE_BYTES_MAX).alias("value"),
        F.length(value).alias("value_bytes"),
        "time_ms",
    )


def _judge(records: DataFrame, settings: StreamingSettings) -> DataFrame:
    """Add ``batch`` (all null inside where it did not decode), ``time_ms`` of Kafka and ``reason`` (null when good)."""
    decoded = records.withColumn("time_ms", F.unix_millis("timestamp")).withColumn("batch", _decoded())
    return decoded.withColumn("reason", _reason(settings))


def _decoded() -> Column:
    """Return the record as the newest schema, whatever known version and framing wrote it.

    A CASE runs one decoder only; PERMISSIVE gives nulls where the body does not fit.
    """
    value = F.col("value")
    confluent = F.substring(value, 1, CONFLUENT_HEADER_BYTES)
    single_object = F.substring(value, 1, SINGLE_OBJECT_HEADER_BYTES)
    rest = 1 << 30
    reader = latest_schema(RECORD).text
    branches: Column | None = None
    # Newest first: two versions may share a fingerprint, and the newest of them is the one to take.
    for schema_id in reversed(schema_ids_of(RECORD)):
        writer = schema_by_id(schema_id)
        magics = [CONFLUENT_MAGIC + accepted.to_bytes(4, "big") for accepted in accepted_ids(schema_id)]
        for header, size, accepted_magics in (
            (confluent, CONFLUENT_HEADER_BYTES, magics),
            (single_object, SINGLE_OBJECT_HEADER_BYTES, [SINGLE_OBJECT_MAGIC + writer.fingerprint]),
        ):
            body = F.substring(value, size + 1, rest)
            batch = from_avro(body, writer.text, {"mode": "PERMISSIVE", "avroSchema": reader})
            is_short = F.length(value) <= RECORD_BYTES_MAX
            found = header.isin([F.lit(magic) for magic in accepted_magics]) & is_short
            branches = F.when(found, batch) if branches is None else branches.when(found, batch)
    assert branches is not None, f"{RECORD} has no schema"
    return branches


def _reason(settings: StreamingSettings) -> Column:
    """Return why a record is refused, null when it is good."""
    size = F.length("value")
    too_large = F.concat(F.lit("the record has "), size, F.lit(f" bytes, at most {RECORD_BYTES_MAX} are read"))
    reason = F.when(size > RECORD_BYTES_MAX, too_large)
    reason = reason.when(F.col("batch.broker").isNull(), _undecodable_reason())
    for found, why in (*implausible(), *strangers(settings.inventory_path)):
        reason = reason.when(found, why)
    times: list[tuple[str, Column, Column]] = [
        ("its time", F.col("batch.time_ms"), F.col("batch.time_ms")),
        (
            "a delivery of it",
            F.array_min("batch.deliveries.second") * SECOND_MS,
            F.array_max("batch.deliveries.second") * SECOND_MS,
        ),
    ]
    for what, earliest, latest in times:
        if settings.future_ms_max is not None:
            ahead = latest - F.col("time_ms")
            reason = reason.when(
                ahead > settings.future_ms_max, _clock_reason(what, ahead, "after", settings.future_ms_max)
            )
        if settings.past_ms_max is not None:
            behind = F.col("time_ms") - earliest
            reason = reason.when(
                behind > settings.past_ms_max, _clock_reason(what, behind, "before", settings.past_ms_max)
            )
    return reason


def _clock_reason(what: str, distance_ms: Column, side: str, bound_ms: int) -> Column:
    return F.concat(
        F.lit(f"{what} is "),
        distance_ms,
        F.lit(f" ms {side} the record's Kafka time, at most {bound_ms} are taken: check the clock of broker "),
        F.col("batch.broker"),
    )


def _undecodable_reason() -> Column:
    """Return why the bytes are no telemetry, in the words of ``schemas.codec``."""
    value = F.col("value")
    known = [accepted for schema_id in schema_ids_of(RECORD) for accepted in accepted_ids(schema_id)]
    schema_id = F.conv(F.hex(F.substring(value, 2, 4)), 16, 10)
    known_text = ", ".join(str(known_id) for known_id in known)
    fits = F.lit(f"the body is not a {RECORD}")
    is_confluent = (F.substring(value, 1, 1) == F.lit(CONFLUENT_MAGIC)) & (F.length(value) >= CONFLUENT_HEADER_BYTES)
    is_single = (F.substring(value, 1, 2) == F.lit(SINGLE_OBJECT_MAGIC)) & (
        F.length(value) >= SINGLE_OBJECT_HEADER_BYTES
    )
    crc64 = F.substring(value, 3, 8)
    fingerprints = [F.lit(schema_by_id(schema_id).fingerprint) for schema_id in schema_ids_of(RECORD)]
    return (
        F.when(value.isNull() | (F.length(value) == 0), F.lit(f"the record is empty, a {RECORD} was expected"))
        .when(is_confluent & schema_id.isin([str(known_id) for known_id in known]), fits)
        .when(
            is_confluent,
            F.concat(F.lit("schema id "), schema_id, F.lit(f" is unknown here, known for {RECORD} are {known_text}")),
        )
        .when(is_single & crc64.isin(fingerprints), fits)
        .when(is_single, F.concat(F.lit("schema fingerprint "), F.lower(F.hex(crc64)), F.lit(" is unknown here")))
        .otherwise(
            F.concat(
                F.lit("the record starts with "),
                F.lower(F.hex(F.substring(value, 1, 2))),
                F.lit(", expected 00 (Confluent) or c301 (Avro)"),
            )
        )
    )


def _window_start(time_ms: str, window_ms: int) -> Column:
    return F.col(time_ms) - F.pmod(F.col(time_ms), F.lit(window_ms))


def _second_window_start(second: Column, window_ms: int) -> Column:
    return second * SECOND_MS - F.pmod(second * SECOND_MS, F.lit(window_ms))


def _windows(window_ms: int) -> Column:
    """Return the starts of all windows that a batch has something in, its own first."""
    own = F.array(_window_start("batch.time_ms", window_ms))
    seconds = F.col("batch.deliveries.second")
    first = _second_window_start(F.array_min(seconds), window_ms)
    last = _second_window_start(F.array_max(seconds), window_ms)
    several = F.transform(seconds, lambda second: _second_window_start(second, window_ms))
    return (
        F.when(F.size(seconds) == 0, own)
        .when(first == last, F.array_union(own, F.array(first)))
        .otherwise(F.array_union(own, several))
    )


def _deliveries_of_window(window_ms: int) -> Column:
    """Return the deliveries of the row's window; most batches lie in one window and are not searched."""
    deliveries, seconds = F.col("batch.deliveries"), F.col("batch.deliveries.second")
    here = F.col("window_ms")
    first = _second_window_start(F.array_min(seconds), window_ms)
    last = _second_window_start(F.array_max(seconds), window_ms)
    return F.when((first == here) & (last == here), deliveries).otherwise(
        F.filter(deliveries, lambda delivery: _second_window_start(delivery["second"], window_ms) == here)
    )
