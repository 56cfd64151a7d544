"""The programs that bench_streaming runs on one topic of telemetry: the Spark job, and a plain Python loop.

In: a Kafka that holds all input. Out: rows and markers in the program's namespace, and a ``ResourceUse``. Evaluating
them, and the same work by Kafka Streams (``streams_yardstick``), does not belong here.
"""

import io
import json
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition
from fastavro import schemaless_reader

from benchmarks.process_costs import PYTHON, spark_cpu_s, spark_peak_mb
from benchmarks.streaming_input import WINDOW_MS, Written
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import open_consumer, open_producer
from regraft.infra.local.spark_session import build_spark_session, end_session
from regraft.infra.process.stack_error import StackError
from regraft.schemas.codec import CONFLUENT_HEADER_BYTES, encode
from regraft.schemas.packed_cells import MASK_BYTES
from regraft.schemas.registry import latest_schema
from regraft.schemas.topics import STATE, TELEMETRY, WINDOWS, topic_name
from regraft.streaming.build_rows import state_key, window_key
from regraft.streaming.job_errors import StreamingJobError
from regraft.streaming.reference_aggregator import ReferenceAggregator
from regraft.streaming.run_job import JobStatus, run_job
from regraft.streaming.streaming_settings import StreamingSettings

JOB, LOOP = "spark", "plain"
WAIT_S_MAX = 900.0
POLL_S = 0.05
STEADY_SHARE = 0.6
EXECUTOR_MEMORY_MB = 1_024

# Time in s since the program was ready, cells done by then, CPU s by process until then.
Progress = tuple[float, int, dict[str, float]]


@dataclass(slots=True)
class ResourceUse:
    """The resources of one program: time until it was ready, from then until its last row, CPU and memory by process.

    ``kafka_cpu_s``: CPU time of Kafka during the run, not included in ``cpu_s``.
    """

    start_s: float
    total_s: float
    late_rows: int
    progress: list[Progress]
    cpu_s: dict[str, float]
    peak_mb: dict[str, float]
    dead_letters: int = 0
    kafka_cpu_s: float = 0.0
    rows_written: int = 0

    @property
    def whole_run_s(self) -> float:
        """The time from the program's start to its last row."""
        return self.start_s + self.total_s

    def completed_per_s(self, cells: int) -> float:
        """Return the rate over the last part of the cells, from the end of a micro-batch until all is written.

        Only completed cells count: work in progress at the beginning of the part belongs to earlier cells.
        """
        begin_s, done, _ = self._last_part(cells)
        return (cells - done) / (self.total_s - begin_s)

    def completed_cells(self, cells: int) -> int:
        """Return the number of cells in that part."""
        return cells - self._last_part(cells)[1]

    def completed_cpu_s(self, cells: int) -> dict[str, float]:
        """Return the CPU time of that part by process, which excludes starting and compiling."""
        before_s = self._last_part(cells)[2]
        return {process: used_s - before_s.get(process, 0.0) for process, used_s in self.cpu_s.items()}

    def _last_part(self, cells: int) -> Progress:
        """Return the progress at which the last part begins.

        That is the first one within STEADY_SHARE of the end, else the last one before it.
        """
        steady = [each for each in self.progress if each[1] >= (1 - STEADY_SHARE) * cells and each[1] < cells]
        earlier = [each for each in self.progress if each[1] < cells]
        return steady[0] if steady else earlier[-1] if earlier else (0.0, 0, {})


@dataclass(frozen=True, slots=True)
class JobSizes:
    """The sizes of the Spark job; ``executors``: this many, with one core each, besides the driver."""

    records_per_trigger_max: int
    driver_memory_mb: int
    cores: int
    executors: int = 0

    @property
    def master(self) -> str:
        """The master URL for Spark."""
        return f"local-cluster[{self.executors},1,{EXECUTOR_MEMORY_MB}]" if self.executors else f"local[{self.cores}]"


def run_spark(bootstrap: str, written: Written, directory: Path, sizes: JobSizes) -> ResourceUse:
    """Run the whole job until the last window is closed; raise StackError if that fails or takes too long."""
    begin_s = time.monotonic()
    settings = _job_settings(bootstrap, directory, sizes)
    spark = build_spark_session(
        "bench-streaming",
        run_dir=directory,
        master=sizes.master,
        driver_memory_mb=sizes.driver_memory_mb,
        extra=settings.session_options,
    )
    stop = threading.Event()
    results: list[JobStatus] = []
    errors: list[str] = []

    def run() -> None:
        try:
            results.append(run_job(spark, settings, stop))
        except StreamingJobError as error:
            errors.append(str(error))

    ready_s = time.monotonic()
    job = threading.Thread(target=run)
    job.start()
    progress = _watch_job(job, settings, written, ready_s)
    total_s, cpu_s, peaks_mb = time.monotonic() - ready_s, spark_cpu_s(), spark_peak_mb()
    stop.set()
    job.join(60)
    end_session(spark)
    if not results or total_s > WAIT_S_MAX:
        raise StackError("; ".join(errors) or f"the job did not close all windows within {WAIT_S_MAX:g} s")
    late_rows, dead_letters, rows = results[0].late_rows, results[0].dead_letters, results[0].rows
    return ResourceUse(
        ready_s - begin_s, total_s, late_rows, progress, cpu_s, peaks_mb, dead_letters, rows_written=rows
    )


def _job_settings(bootstrap: str, directory: Path, sizes: JobSizes) -> StreamingSettings:
    return StreamingSettings(
        bootstrap,
        directory / "checkpoint",
        namespace=JOB,
        window_ms=WINDOW_MS,
        trigger_ms=0,
        records_per_trigger_max=sizes.records_per_trigger_max,
        future_ms_max=None,
        past_ms_max=None,
        shards=sizes.executors or sizes.cores,
        telemetry_topic=topic_name(TELEMETRY),
        status_file=directory / "status.json",
    )


def _watch_job(job: threading.Thread, settings: StreamingSettings, written: Written, ready_s: float) -> list[Progress]:
    """Record the job's progress after each micro-batch until all markers exist."""
    progress: list[Progress] = []
    markers = _EndOfTopic(settings.bootstrap, topic_name(WINDOWS, JOB))
    assert settings.status_file is not None
    while job.is_alive() and time.monotonic() < ready_s + WAIT_S_MAX and markers.count() < written.windows:
        cells = json.loads(settings.status_file.read_text())["cells"] if settings.status_file.exists() else 0
        if cells > (progress[-1][1] if progress else 0):
            progress.append((time.monotonic() - ready_s, cells, spark_cpu_s()))
        time.sleep(POLL_S)
    markers.close()
    return progress


class _EndOfTopic:
    """Counts the records of a topic with one partition."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer, self._place = open_consumer(KafkaAccess(bootstrap)), TopicPartition(topic, 0)

    def count(self) -> int:
        low, high = self._consumer.get_watermark_offsets(self._place, timeout=10)
        return high - low

    def close(self) -> None:
        self._consumer.close()


def run_loop(bootstrap: str, written: Written) -> ResourceUse:
    """Do the job's work with one consumer, fastavro, dicts and one producer."""
    begin_s = time.monotonic()
    schema = latest_schema("TelemetryBatch").parsed
    aggregator = ReferenceAggregator(WINDOW_MS, grace_ms=2_000)
    consumer = open_consumer(KafkaAccess(bootstrap))
    topic = topic_name(TELEMETRY)
    partitions = sorted(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    latest_ms = dict.fromkeys(partitions, 0)  # Partitions are read unevenly: windows close behind the slowest.
    rows = _RowWriter(bootstrap)
    cells, progress, ready_s = 0, list[Progress](), time.monotonic()
    while rows.windows < written.windows:
        for message in consumer.consume(1_000, timeout=1.0):
            value, partition = message.value(), message.partition()
            if message.error() or value is None or partition is None:
                raise RuntimeError(f"reading failed: {message.error()}")
            batch: Any = schemaless_reader(io.BytesIO(value[CONFLUENT_HEADER_BYTES:]), schema)
            latest_ms[partition] = max(latest_ms[partition], batch["time_ms"])
            aggregator.take(batch)
            cells += sum(len(second["masks"]) // MASK_BYTES for second in batch["seconds"])
        progress.append((time.monotonic() - ready_s, cells, {PYTHON: time.process_time()}))
        rows.write(aggregator, min(latest_ms.values()))
    consumer.close()
    total_s, cpu_s = time.monotonic() - ready_s, {PYTHON: time.process_time()}
    peaks_mb = {PYTHON: spark_peak_mb()[PYTHON]}
    return ResourceUse(
        ready_s - begin_s, total_s, aggregator.late_rows, progress, cpu_s, peaks_mb, rows_written=rows.rows
    )


class _RowWriter:
    """Writes the rows of closed windows, then their markers."""

    def __init__(self, bootstrap: str) -> None:
        options: dict[str, str | int | bool] = {"linger.ms": 5, "compression.type": "lz4", "batch.size": 1 << 20}
        options |= {"queue.buffering.max.messages": 1_000_000, "delivery.report.only.error": True}
        self._producer = open_producer(KafkaAccess(bootstrap), options)
        self.windows = self.rows = 0

    def write(self, aggregator: ReferenceAggregator, event_ms: int) -> None:
        for window in aggregator.advance(event_ms):
            for row in window.rows:
                key = state_key(row.window_start_ms, row.kind, row.entity)
                self._producer.produce(topic_name(STATE, LOOP), encode(row), key=key)
            self._producer.flush(60)
            marker = window.marker
            key = window_key(marker.window_start_ms)
            self._producer.produce(topic_name(WINDOWS, LOOP), encode(marker), key=key)
            self.windows += 1
            self.rows += len(window.rows)
        self._producer.flush(60)
