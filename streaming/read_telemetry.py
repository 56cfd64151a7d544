"""Kafka records -> telemetry rows: decode, judge and split by window, with Spark's own expressions only.

In: the columns of Spark's Kafka source. Out: ``telemetry_rows``, one row for each (batch, window) with the part of the
batch that belongs to the window, and ``dead_letters``, the records that were refused, with the reason. A record that
cannot be used becomes a dead letter and never ends the query. Aggregation does not belong here.

A part is one Avro body of PART_SCHEMA, for any version and framing of its record: Python receives bytes from Spark far
faster than nested rows, and all parts of a window are decoded at once, by columns.
"""

import json
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (the name every Spark text uses)
from pyspark.sql.avro.functions import from_avro, to_avro

from regraft.infra.kafka.dead_letters import VALUE_BYTES_MAX
from regraft.schemas.bounds import RECORD_BYTES_MAX
from regraft.schemas.codec import (
    CONFLUENT_HEADER_BYTES,
    CONFLUENT_MAGIC,
    SINGLE_OBJECT_HEADER_BYTES,
    SINGLE_OBJECT_MAGIC,
    accepted_ids,
    newer_wire_ids,
    older_wire_ids,
)
from regraft.schemas.packed_cells import MASK_BYTES
from regraft.schemas.registry import (
    NEWER,
    VERSIONS_MAX,
    latest_schema,
    newer_hint,
    older_hint,
    schema_by_id,
    schema_ids_of,
)
from regraft.schemas.units import SECOND_MS
from regraft.streaming.measure_backlog import batch_records_max
from regraft.streaming.refuse_batches import implausible, unknown_brokers, wrong_topics
from regraft.streaming.source_topics import broker_topics, known_brokers, source_topics
from regraft.streaming.streaming_settings import EventBounds, StreamingSettings

RECORD = "TelemetryBatch"
NEVER_MS = -1
KAFKA_ANSWER_MS_MAX = 15_000
KAFKA_TRIES = 12
REPORTS = ("deliveries", "seconds")  # A batch's reports on times other than its own: single cells, or packed by second.

_BATCH_SCHEMA: dict[str, Any] = json.loads(latest_schema(RECORD).text)
# The fields of a batch, and a part's own: longs, because booleans cannot be read by columns.
PART_SCHEMA = _BATCH_SCHEMA | {
    "fields": [
        *_BATCH_SCHEMA["fields"],
        *({"name": name, "type": "long"} for name in ("own", "taken", "delay_ms", "is_off")),
    ]
}


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
    # Each task regenerates the code of this query's expressions, which costs more than a few records do.
    tasks = max(settings.read_partitions_min, settings.shards)
    return spark.readStream.format("kafka").options(**options).load().coalesce(tasks)


def telemetry_rows(records: DataFrame, settings: StreamingSettings, observation: str | None = None) -> DataFrame:
    """Return window_start_ms, broker, reached_ms, kafka_ms, has_cells and part: a row for each (batch, window).

    A batch has a row in the window of its own time, in those of its deliveries, and in the one in which Kafka received
    it, where its delay counts; a batch whose clock is too far off has only the last. ``reached_ms`` is how far its
    broker is: the batch's own time or Kafka's, whichever is earlier, so no clock runs ahead of Kafka's; NEVER_MS if the
    clock is too far off. ``kafka_ms`` is NEVER_MS if Kafka's times are not used. ``has_cells``: the part has
    deliveries. ``part`` is a body of PART_SCHEMA (described in ``merge_parts.WindowParts``). ``observation`` names the
    metrics that a stream reports with its progress.
    """
    judged = _judge(records, settings)
    if observation is not None:
        judged = _observed(judged, observation)
    window_ms, is_timed = settings.window_ms, settings.bounds.future_ms_max is not None
    taken_window = _window_start("time_ms", window_ms) if is_timed else F.lit(None).cast("bigint")
    windows = _windows(window_ms)
    if is_timed:
        windows = F.array_union(windows, F.array(taken_window))
    split = judged.select(
        "batch",
        *REPORTS,
        "is_off",
        F.col("time_ms").alias("kafka_ms"),
        taken_window.alias("taken_window_ms"),
        F.explode(
            F.when(F.col("reason").isNull(), windows)
            .when(F.col("is_off"), F.array(taken_window))
            .otherwise(F.array().cast("array<bigint>"))
        ).alias("window_ms"),
    )
    own_ms, never_ms = F.col("batch.time_ms"), F.lit(NEVER_MS).cast("bigint")
    reached_ms = F.least(own_ms, F.col("kafka_ms")) if is_timed else own_ms
    reports = [
        F.when(F.col("is_off"), _none_of(f"batch.{name}"))
        .otherwise(_of_window(name, window_ms))
        .alias(f"reports_{name}")
        for name in REPORTS
    ]
    cut = split.select("*", *reports)
    return cut.select(
        F.col("window_ms").alias("window_start_ms"),
        "batch.broker",
        F.when(F.col("is_off"), never_ms).otherwise(reached_ms).alias("reached_ms"),
        (F.col("kafka_ms") if is_timed else never_ms).alias("kafka_ms"),
        ((F.size("reports_deliveries") > 0) | (F.size("reports_seconds") > 0)).alias("has_cells"),
        _part(window_ms).alias("part"),
    )


def _observed(judged: DataFrame, observation: str) -> DataFrame:
    return judged.observe(
        observation,
        F.count(F.lit(1)).alias("records"),
        F.count("reason").alias("dead"),
        F.count(F.when(F.col("is_off"), 1)).alias("clocks_off"),
        F.count(F.when(F.contains("reason", F.lit(NEWER)), 1)).alias("newer"),
        F.coalesce(F.sum(_cell_count("batch.deliveries", "batch.seconds")), F.lit(0)).alias("cells"),
        F.coalesce(
            F.sum(_cell_count("batch.deliveries", "batch.seconds") - _cell_count("deliveries", "seconds")), F.lit(0)
        ).alias("cells_off"),
    )


def _cell_count(deliveries: str, seconds: str) -> Column:
    """Return the number of cells, single and packed."""
    packed = F.aggregate(
        seconds, F.lit(0), lambda count, each: count + (F.length(each["masks"]) / MASK_BYTES).cast("int")
    )
    return F.size(deliveries) + packed


def _part(window_ms: int) -> Column:
    """Return the body of a row's part of its batch."""
    own = (_window_start("batch.time_ms", window_ms) == F.col("window_ms")) & ~F.col("is_off")
    taken = F.coalesce(F.col("taken_window_ms") == F.col("window_ms"), F.lit(False))
    fields = {name: F.col(f"batch.{name}") for name in ("broker", "boot", "sequence", "time_ms", "epoch")}
    fields |= {name: F.col(f"reports_{name}") for name in REPORTS}
    for name in ("queues", "probes", "clients"):
        fields[name] = F.when(own, F.col(f"batch.{name}")).otherwise(_none_of(f"batch.{name}"))
    fields |= {"own": own.cast("bigint"), "taken": taken.cast("bigint"), "is_off": F.col("is_off").cast("bigint")}
    fields["delay_ms"] = F.when(taken, F.col("kafka_ms") - F.col("batch.time_ms")).otherwise(F.lit(0))
    part = F.struct(*(fields[field["name"]].alias(field["name"]) for field in PART_SCHEMA["fields"]))
    return to_avro(part, json.dumps(PART_SCHEMA))


def _none_of(column: str) -> Column:
    return F.filter(column, lambda _: F.lit(False))


def dead_letters(records: DataFrame, settings: StreamingSettings) -> DataFrame:
    """Return the refused records: topic, partition, offset, key, reason, value, its bytes and time_ms (of Kafka).

    A value that is longer than a letter can hold is truncated. This uses explode because a filter would be pushed down
    to the source together with the decoder, once for each of the many places that read the batch.
    """
    judged = _judge(records, settings)
    value = F.coalesce("value", F.lit(b""))
    return judged.select(
        "topic",
        "partition",
        "offset",
        "key",
        F.explode(F.array_compact(F.array("reason"))).alias("reason"),
        F.substring(value, 1, VALUE_BYTES_MAX).alias("value"),
        F.length(value).alias("value_bytes"),
        "time_ms",
    )


def _judge(records: DataFrame, settings: StreamingSettings) -> DataFrame:
    """Add what is known of each record; all fields of the batch are null if it did not decode.

    ``batch``, ``time_ms`` of Kafka, ``reason`` (why it is refused, null if it is not), ``is_off`` (refused for its time
    alone), ``deliveries`` and ``seconds`` (those of the batch whose times are near Kafka's: their times are from the
    clock of the publisher's broker).
    """
    decoded = records.withColumn("time_ms", F.unix_millis("timestamp")).withColumn("batch", _decoded())
    decoded = decoded.withColumn("fault", _fault(settings))
    off = F.when(F.col("fault").isNull(), _clock_reason(settings.bounds))
    judged = decoded.withColumn("reason", F.coalesce("fault", off))
    judged = judged.withColumn("is_off", F.col("fault").isNull() & F.col("reason").isNotNull())
    return judged.withColumns({name: _near(name, settings.bounds) for name in REPORTS})


def _decoded() -> Column:
    """Return the record in the newest schema, from any known version and framing.

    A CASE runs only one decoder; PERMISSIVE gives nulls if the body does not fit.
    """
    value = F.col("value")
    confluent = F.substring(value, 1, CONFLUENT_HEADER_BYTES)
    single_object = F.substring(value, 1, SINGLE_OBJECT_HEADER_BYTES)
    rest = 1 << 30
    reader = latest_schema(RECORD).text
    branches: Column | None = None
    # Newest first: two versions may share a fingerprint, and then the newest counts.
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
            is_valid = header.isin([F.lit(magic) for magic in accepted_magics]) & is_short
            branches = F.when(is_valid, batch) if branches is None else branches.when(is_valid, batch)
    assert branches is not None, f"{RECORD} has no schema"
    return branches


def _fault(settings: StreamingSettings) -> Column:
    """Return why a record is refused as telemetry, apart from its time; null if it is not."""
    size = F.length("value")
    too_large = F.concat(F.lit("the record has "), size, F.lit(f" bytes, but at most {RECORD_BYTES_MAX} are read"))
    fault = F.when(size > RECORD_BYTES_MAX, too_large)
    fault = fault.when(F.col("batch.broker").isNull(), _undecodable_reason())
    for condition, why in (
        *implausible(),
        *unknown_brokers(known_brokers(settings)),
        *wrong_topics(broker_topics(settings)),
    ):
        fault = fault.when(condition, why)
    return fault


def _clock_reason(bounds: EventBounds) -> Column:
    """Return why a batch's own time is refused, null if it is near Kafka's."""
    reason = F.lit(None).cast("string")
    delay_ms = F.col("time_ms") - F.col("batch.time_ms")
    for distance_ms, side, bound_ms in (
        (-delay_ms, "after", bounds.future_ms_max),
        (delay_ms, "before", bounds.past_ms_max),
    ):
        if bound_ms is not None:
            text = F.concat(
                F.lit("its time is "),
                distance_ms,
                F.lit(
                    f" ms {side} the record's Kafka time, at most {bound_ms} are accepted: check the clock of broker "
                ),
                F.col("batch.broker"),
            )
            reason = F.when(distance_ms > bound_ms, text).otherwise(reason)
    return reason


def _near(name: str, bounds: EventBounds) -> Column:
    """Return the reports whose second is near Kafka's time; most batches have no others and are not searched."""
    cells, seconds, kafka_ms = F.col(f"batch.{name}"), F.col(f"batch.{name}.second"), F.col("time_ms")
    latest_ms = None if bounds.future_ms_max is None else kafka_ms + bounds.future_ms_max
    earliest_ms = None if bounds.past_ms_max is None else kafka_ms - bounds.past_ms_max
    far = F.lit(False)
    if latest_ms is not None:
        far |= F.array_max(seconds) * SECOND_MS > latest_ms
    if earliest_ms is not None:
        far |= F.array_min(seconds) * SECOND_MS < earliest_ms

    def is_near(each: Column) -> Column:
        second_ms, is_within = each["second"] * SECOND_MS, F.lit(True)
        if latest_ms is not None:
            is_within &= second_ms <= latest_ms
        if earliest_ms is not None:
            is_within &= second_ms >= earliest_ms
        return is_within

    return F.when(F.col("fault").isNull() & far, F.filter(cells, is_near)).otherwise(cells)


def _undecodable_reason() -> Column:
    """Return why the bytes are not telemetry, in the words of ``schemas.codec``."""
    value = F.col("value")
    known = [accepted for schema_id in schema_ids_of(RECORD) for accepted in accepted_ids(schema_id)]
    schema_id = F.conv(F.hex(F.substring(value, 2, 4)), 16, 10)
    version = F.pmod(schema_id.cast("bigint"), F.lit(VERSIONS_MAX))
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
        .when(is_confluent & _is_among(schema_id, newer_wire_ids(RECORD)), _version_reason(version, newer_hint(RECORD)))
        .when(is_confluent & _is_among(schema_id, older_wire_ids(RECORD)), _version_reason(version, older_hint(RECORD)))
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


def _is_among(schema_id: Column, ids: range) -> Column:
    return schema_id.isin([str(each) for each in ids])


def _version_reason(version: Column, hint: str) -> Column:
    return F.concat(F.lit(f"{RECORD} version "), version, F.lit(f" {hint}"))


def _window_start(time_ms: str, window_ms: int) -> Column:
    return F.col(time_ms) - F.pmod(F.col(time_ms), F.lit(window_ms))


def _second_window_start(second: Column, window_ms: int) -> Column:
    return second * SECOND_MS - F.pmod(second * SECOND_MS, F.lit(window_ms))


def _windows(window_ms: int) -> Column:
    """Return the starts of all windows to which a batch contributes, its own first."""
    own = F.array(_window_start("batch.time_ms", window_ms))
    seconds = F.concat("deliveries.second", "seconds.second")
    first = _second_window_start(F.array_min(seconds), window_ms)
    last = _second_window_start(F.array_max(seconds), window_ms)
    several = F.transform(seconds, lambda second: _second_window_start(second, window_ms))
    return (
        F.when(F.size(seconds) == 0, own)
        .when(first == last, F.array_union(own, F.array(first)))
        .otherwise(F.array_union(own, several))
    )


def _of_window(name: str, window_ms: int) -> Column:
    """Return the reports on the row's window; most batches lie in one window and are not searched."""
    cells, seconds = F.col(name), F.col(f"{name}.second")
    here = F.col("window_ms")
    first = _second_window_start(F.array_min(seconds), window_ms)
    last = _second_window_start(F.array_max(seconds), window_ms)
    return F.when((first == here) & (last == here), cells).otherwise(
        F.filter(cells, lambda each: _second_window_start(each["second"], window_ms) == here)
    )
