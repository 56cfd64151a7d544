"""Thousands of spoiled records among good ones on a real Spark session: none ends the query or costs a good one."""

import dataclasses
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from regraft.schemas.codec import UndecodableRecordError, decode, encode
from regraft.schemas.telemetry import TelemetryBatch
from regraft.schemas.topics import TELEMETRY, TOPICS
from regraft.streaming.read_telemetry import dead_letters, telemetry_rows
from regraft.streaming.shard_rows import unpack_rows
from tests.fuzz.mutate_values import spoiled
from tests.fuzz.valid_records import valid_values
from tests.streaming.random_telemetry import BEGIN_MS, random_telemetry
from tests.streaming.test_judge_records import KAFKA_MS, Written, content, parts_of_rows, reference_of, settings_of
from tests.streaming.test_window_job import KAFKA_RECORD, FileRows, Job, kafka_frame

pytestmark = pytest.mark.spark

SPOILED = 3_000
SEED = 1
CLOSING = TelemetryBatch("good-last", 1, 0, BEGIN_MS + 120_000, 1)


def of_good(windows: Sequence[Written]) -> dict[int, Any]:
    """Return the parts of windows that are about good brokers."""
    found = {}
    for start_ms, rows, _, entries, _ in windows:
        own = [row for row in rows if row.entity.startswith("good-")]
        brokers = [entry for entry in entries if entry.broker.startswith("good-")]
        if own or brokers:
            found[start_ms] = own, brokers
    return found


def why_undecodable(value: bytes) -> str:
    try:
        decode(value, TelemetryBatch)
    except UndecodableRecordError as error:
        return str(error)
    return ""


def test_spoiled_telemetry_is_counted_and_costs_nothing_good(spark: SparkSession, tmp_path: Path) -> None:
    """Each record is used or becomes a dead letter, as the codec decides; the good brokers' windows are complete."""
    rng, job = random.Random(SEED), settings_of(tmp_path, grace_ms=0)
    good = [replace(batch, broker=f"good-{batch.broker}") for batch in random_telemetry(rng, flushes=24)]
    sent = [(value, KAFKA_MS) for _, value in spoiled(TELEMETRY, rng, SPOILED)]
    sent += [(value, KAFKA_MS) for topic in TOPICS for value in valid_values()[topic]]
    sent += [(encode(batch), batch.time_ms) for batch in good]
    rng.shuffle(sent)
    values = [value for value, _ in sent]
    records = kafka_frame(spark, values, [time_ms for _, time_ms in sent])

    packed = telemetry_rows(records, dataclasses.replace(job, shards=1)).toArrow()["packed"].to_pylist()
    taken = int(parts_of_rows(unpack_rows(packed)).parts.field("own").to_numpy().sum())
    letters = {row["offset"]: row["reason"] for row in dead_letters(records, job).collect()}
    assert taken + len(letters) == len(sent)
    assert not {values[offset] for offset in letters} & {encode(batch) for batch in good}
    differing = {
        offset: (why, letters.get(offset))
        for offset, value in enumerate(values)
        if bool(why := why_undecodable(value)) != (offset in letters)
        and not letters.get(offset, "").startswith("its time is ")
    }
    assert not differing

    records.coalesce(1).write.parquet(str(tmp_path / "in"))
    kafka_frame(spark, [encode(CLOSING)], [CLOSING.time_ms]).coalesce(1).write.mode("append").parquet(
        str(tmp_path / "in")
    )
    stream = spark.readStream.schema(KAFKA_RECORD).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    query = Job(spark, job, FileRows(tmp_path / "rows"))
    query.run(stream)
    expected = of_good(content(reference_of([*good, CLOSING], job.bounds).advance()))
    assert expected
    assert of_good(query.content()) == expected
