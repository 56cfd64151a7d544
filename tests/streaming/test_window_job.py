"""The query on a real Spark session, with records from files in the form of Kafka's: rows, lateness, dead letters."""

import dataclasses
import random
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from regraft.schemas.codec import decode, encode
from regraft.schemas.state import StateRow
from regraft.schemas.telemetry import TelemetryBatch
from regraft.schemas.unpack_state import unpack_window
from regraft.streaming.close_windows import JoinedWindow
from regraft.streaming.encode_rows import Message
from regraft.streaming.job_errors import EXIT_REFUSED, explained
from regraft.streaming.keep_dead_letters import letter_of
from regraft.streaming.read_telemetry import dead_letters
from regraft.streaming.reference_aggregator import ReferenceAggregator
from regraft.streaming.streaming_settings import StreamingSettings
from regraft.streaming.window_job import ClosedBatch, shard_keys, spark_hash, start_query
from tests.streaming.random_telemetry import (
    BEGIN_MS,
    WINDOW_MS,
    as_dicts,
    lossy,
    random_telemetry,
)
from tests.streaming.test_judge_records import (
    BAD,
    GOOD,
    KAFKA_MS,
    NONSENSE,
    Written,
    batch_of,
    content,
    letters,
    reference_of,
    settings_of,
    written_of,
)

pytestmark = pytest.mark.spark

KAFKA_RECORD = T.StructType(
    [
        T.StructField("topic", T.StringType()),
        T.StructField("partition", T.IntegerType()),
        T.StructField("offset", T.LongType()),
        T.StructField("timestamp", T.TimestampType()),
        T.StructField("key", T.BinaryType()),
        T.StructField("value", T.BinaryType()),
    ]
)


def kafka_frame(
    spark: SparkSession,
    values: Sequence[bytes | None],
    times_ms: Sequence[int] | None = None,
    topics: Sequence[str] | None = None,
) -> DataFrame:
    moments = [datetime.fromtimestamp(time_ms / 1_000, UTC) for time_ms in times_ms or [KAFKA_MS] * len(values)]
    places = zip(topics or ["regraft.telemetry"] * len(values), moments, values, strict=True)
    rows = [(topic, 0, offset, moment, b"b1", value) for offset, (topic, moment, value) in enumerate(places)]
    return spark.createDataFrame(rows, KAFKA_RECORD)


def write_files(
    spark: SparkSession,
    directory: Path,
    groups: Sequence[Sequence[TelemetryBatch]],
    times_ms: Sequence[Sequence[int]] | None = None,
) -> DataFrame:
    """Return a stream that reads one group per micro-batch; by default Kafka received each batch at its own time."""
    for place, group in enumerate(groups):
        taken_ms = [batch.time_ms for batch in group] if times_ms is None else times_ms[place]
        frame = kafka_frame(spark, [encode(batch) for batch in group], taken_ms)
        frame.coalesce(1).write.mode("append").parquet(str(directory))
    return spark.readStream.schema(KAFKA_RECORD).option("maxFilesPerTrigger", 1).parquet(str(directory))


@dataclasses.dataclass(frozen=True)
class FileRows:
    """Keeps the rows that workers write, by key; repeated rows must have the same bytes."""

    directory: Path

    def write(self, messages: list[Message]) -> int:
        self.directory.mkdir(parents=True, exist_ok=True)
        for message in messages:
            path = self.directory / message["key"].hex()
            assert not path.exists() or path.read_bytes() == message["value"]
            path.write_bytes(message["value"])
        return 0

    def rows_of(self, window_start_ms: int) -> list[StateRow]:
        rows = [decode(path.read_bytes(), StateRow) for path in self.directory.iterdir()]
        return [row for row in rows if row.window_start_ms == window_start_ms]


class Job:
    """The query on a stream of files, and its output; it can fail once after a write, as in a crash."""

    def __init__(self, spark: SparkSession, settings: StreamingSettings, sink: FileRows, fail_at: int = 0) -> None:
        self.spark, self.settings, self.sink, self.fail_at = spark, settings, sink, fail_at
        self.batches: list[ClosedBatch] = []

    def take(self, batch: ClosedBatch) -> None:
        self.batches.append(batch)
        if self.fail_at and sum(bool(each.windows) for each in self.batches) == self.fail_at:
            raise RuntimeError("crashed after the write")

    def run(self, records: DataFrame, **how: Any) -> None:
        query = start_query(self.spark, self.settings, self.take, self.sink, records=records, **how)
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    @property
    def windows(self) -> list[JoinedWindow]:
        return [window for batch in self.batches for window in batch.windows]

    @property
    def late_rows(self) -> int:
        return sum(report.late_rows for batch in self.batches for report in batch.reports)

    def content(self) -> list[Written]:
        found = []
        for window in self.windows:
            rows, marker = unpack_window(self.sink.rows_of(window.window.start_ms), window.marker)
            found.append(written_of(rows, marker))
        return found


@pytest.mark.parametrize("seed", [3, 14])
def test_a_stream_closes_windows_as_the_reference_does(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """Micro-batch by micro-batch, including late parts, the windows are the reference's, each complete and once."""
    rng = random.Random(seed)
    batches = random_telemetry(rng, flushes=24)
    groups = [lossy(rng, batches[start : start + 18]) for start in range(0, len(batches), 18)]
    groups[-1].append(batches[2])  # Arrives long after its window was closed.
    settings = settings_of(tmp_path, grace_ms=1_000, future_ms_max=None)
    reference, expected = ReferenceAggregator(WINDOW_MS, 1_000), []
    for group in groups:
        for taken in as_dicts(group):
            reference.take(taken)
        expected += reference.advance()
    job = Job(spark, settings, FileRows(tmp_path / "rows"))
    job.run(write_files(spark, tmp_path / "in", groups), waits_for_all=False)
    assert job.content() == content(expected)
    assert job.late_rows == reference.late_rows > 0
    assert [window.marker.late_rows for window in job.windows] == [window.marker.late_rows for window in expected]


def test_a_crash_after_the_write_writes_the_same_again(spark: SparkSession, tmp_path: Path) -> None:
    """After a restart from its checkpoint the query repeats the windows of its last micro-batch byte for byte."""
    batches = random_telemetry(random.Random(5), flushes=20)
    groups = [batches[start : start + 20] for start in range(0, len(batches), 20)]
    settings, stream = settings_of(tmp_path, grace_ms=0), write_files(spark, tmp_path / "in", groups)
    crashing = Job(spark, settings, FileRows(tmp_path / "rows"), fail_at=2)
    with pytest.raises(Exception, match="crashed after the write"):
        crashing.run(stream)
    calm = Job(spark, settings, crashing.sink)  # It requires the same bytes from both.
    calm.run(stream)
    again = next(batch.windows for batch in calm.batches if batch.windows)
    last = crashing.batches[-1].windows
    assert [encode(window.marker) for window in last] == [encode(window.marker) for window in again]
    starts = [window.window.start_ms for window in [*crashing.windows[: -len(last)], *calm.windows]]
    assert starts == sorted(set(starts))


def test_the_grace_may_change_between_starts(spark: SparkSession, tmp_path: Path) -> None:
    """A job that has caught up continues with a shorter grace on the same checkpoint; no window is lost or split."""
    batches = random_telemetry(random.Random(8), flushes=24)
    half = [batch for batch in batches if batch.time_ms < BEGIN_MS + 15_000]
    rest = [batch for batch in batches if batch.time_ms >= BEGIN_MS + 15_000]
    settings = settings_of(tmp_path, grace_ms=0)
    job = Job(spark, settings, FileRows(tmp_path / "rows"))
    job.run(write_files(spark, tmp_path / "in", [half]), grace_ms=60_000, waits_for_all=False)
    assert job.windows == []
    job.run(write_files(spark, tmp_path / "in", [rest]), waits_for_all=False)
    assert job.content() == content(reference_of(batches, settings.bounds).advance())


def test_each_shard_gets_a_partition_of_its_own(spark: SparkSession) -> None:
    """The keys are hashed here as Spark does, whose partition for a group is its key's hash modulo their number."""
    numbers = [*range(-3, 400), 2**31 - 1, -(2**31)]
    rows = spark.createDataFrame([(number,) for number in numbers], "number int").select(F.hash("number")).collect()
    assert [spark_hash(number) for number in numbers] == [row[0] for row in rows]
    for shards in (1, 2, 8, 33):
        assert [spark_hash(key) % shards for key in shard_keys(shards)] == list(range(shards))


def test_a_micro_batch_without_telemetry_closes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """The first micro-batch of a new job, or one of dead letters alone, has no reports, and the query continues."""
    stream = write_files(spark, tmp_path / "in", [[]])
    kafka_frame(spark, [b"garbage"]).coalesce(1).write.mode("append").parquet(str(tmp_path / "in"))
    job = Job(spark, settings_of(tmp_path), FileRows(tmp_path / "rows"))
    job.run(stream)
    assert job.batches
    assert not any(batch.reports or batch.windows for batch in job.batches)


def test_refused_records_become_dead_letters(spark: SparkSession, tmp_path: Path) -> None:
    """Empty, unknown, cut, forged and too long records are kept with the reason, as the codec states it."""
    values = [*(value for value, _ in BAD), *(value for value, _ in NONSENSE), encode(GOOD)]
    job = settings_of(tmp_path, future_ms_max=None, past_ms_max=None)
    rows = dead_letters(kafka_frame(spark, values), job).orderBy("offset").collect()
    assert [letter_of(row) for row in rows] == letters(batch_of(values), job)
    assert [row["offset"] for row in rows] == list(range(len(values) - 1))


def test_stopping_from_another_thread_leaves_a_usable_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    """A query stopped while it writes loses nothing: the next start writes what was not committed."""
    batches = random_telemetry(random.Random(9), flushes=16)
    stream = write_files(spark, tmp_path / "in", [batches])
    entered, leave = threading.Event(), threading.Event()

    def slow(_: ClosedBatch) -> None:
        entered.set()
        leave.wait(20)
        raise RuntimeError("stopped before the write")

    settings = settings_of(tmp_path, grace_ms=0)
    job = Job(spark, settings, FileRows(tmp_path / "rows"))
    query = start_query(spark, settings, slow, job.sink, records=stream)
    assert entered.wait(30)
    leave.set()
    query.stop()
    job.run(stream)
    assert job.content() == content(reference_of(batches, settings.bounds).advance())


@pytest.mark.parametrize("damaged", ["metadata", "offsets/*", "commits/*", "state/0/*/*.delta", "sources/0/*"])
def test_a_damaged_checkpoint_is_reported_in_one_sentence(spark: SparkSession, tmp_path: Path, damaged: str) -> None:
    """A disk that was full or lost its power leaves empty files: which, that nothing is lost, and the way out."""
    batches = random_telemetry(random.Random(6), flushes=12)
    settings = settings_of(tmp_path, grace_ms=0)
    job = Job(spark, settings, FileRows(tmp_path / "rows"))
    job.run(write_files(spark, tmp_path / "in", [batches[:18]]))
    stream = write_files(spark, tmp_path / "in", [batches[18:]])
    job.run(stream)
    files = list(Path(settings.query_directory).glob(damaged))
    assert files
    for file in files:
        file.write_bytes(b"")
        (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
    write_files(spark, tmp_path / "in", [batches[:1]])
    with pytest.raises((PySparkException, Py4JError)) as error:
        job.run(stream)
    told = explained(error.value, settings)
    assert str(told).startswith(f"the checkpoint in {settings.query_directory} is damaged (")
    assert told.exit_code == EXIT_REFUSED
