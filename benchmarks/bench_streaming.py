"""Telemetry cells per second from Kafka to state in Kafka: the Spark job, and the same work by a plain Python loop.

``python -m benchmarks.bench_streaming [--cells N] [--json FILE]``. A real Kafka is filled with N Delivery cells of 100
brokers x 50 publishers, one cell a second each, 50 in a TelemetryBatch. Then the whole job catches up: Kafka -> Spark
(local[2]) -> state rows and markers in Kafka; then a loop of confluent-kafka, fastavro and dicts does the same. Both
must write the same rows byte for byte, account for every cell, and drop none as late. Steady is the rate over the last
60 % of the cells, by what was completed, until all windows are written. Each program runs in a process of its own.
"""

import argparse
import io
import json
import multiprocessing
import random
import resource
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, TopicPartition
from fastavro import schemaless_reader

from regraft.infra.create_topics import create_topics
from regraft.infra.kafka_access import KafkaAccess
from regraft.infra.kafka_clients import open_consumer, open_producer
from regraft.infra.kafka_server import start_kafka
from regraft.infra.measured_figures import Figure, run_facts, write_figures
from regraft.infra.spark_session import JAVA_OPTIONS, build_spark_session, end_session
from regraft.infra.stack_error import StackError
from regraft.schemas.codec import CONFLUENT_HEADER_BYTES, decode, encode
from regraft.schemas.packed_cells import MASK_BYTES
from regraft.schemas.registry import latest_schema
from regraft.schemas.state import StateRow, WindowClosed
from regraft.schemas.telemetry import Delivery, TelemetryBatch
from regraft.schemas.topics import DEAD_LETTERS, STATE, TELEMETRY, WINDOWS, Topic, topic_name
from regraft.schemas.unpack_state import unpack_window
from regraft.streaming.build_rows import state_key, window_key
from regraft.streaming.job_errors import StreamingJobError
from regraft.streaming.reference_aggregator import ReferenceAggregator
from regraft.streaming.run_job import JobStatus, run_job
from regraft.streaming.streaming_settings import SPARK_SETTINGS, StreamingSettings

BROKERS, PUBLISHERS, CELLS_PER_RECORD = 100, 50, 50
NOTIFICATIONS_PER_S = 20
BEGIN_S = 1_700_000_000
WINDOW_MS = 5_000
CLOSING_MS = 120_000  # A last heartbeat of every broker this much later closes every window.
SEED = 11
JOB, LOOP = "spark", "plain"
DRIVER_MEMORY_MB = 2_048
STEADY_SHARE = 0.6
WAIT_S_MAX = 900.0


# When, in s from the beginning, how many cells were done, and what CPU s all processes had taken by then.
Progress = tuple[float, int, float]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one program wrote: a digest for each key, and cells in all."""

    digests: dict[bytes, bytes]
    cells: int
    late_rows: int


def telemetry(cells: int) -> int:
    """Return how many seconds of telemetry hold at least this many cells."""
    return -(-cells // (BROKERS * PUBLISHERS))


def broker_name(number: int) -> str:
    return f"broker-{number:03d}"


def generate(bootstrap: str, seconds: int) -> None:
    """Write the telemetry; masks are sparse, so that a wrong merge shows. Broker k is the home of publisher k."""
    rng = random.Random(SEED)
    options = {"linger.ms": 50, "compression.type": "lz4", "batch.size": 1 << 20}
    producer = open_producer(KafkaAccess(bootstrap), options)
    topic = topic_name(TELEMETRY)

    def send(batch: TelemetryBatch) -> None:
        while True:
            try:
                producer.produce(topic, encode(batch.packed()), key=batch.broker)
                return
            except BufferError:
                producer.poll(0.1)

    for second in range(seconds):
        first = second * NOTIFICATIONS_PER_S
        for broker in range(BROKERS):
            deliveries = tuple(
                Delivery(
                    f"publisher-{p:02d}",
                    first // 64,
                    BEGIN_S + second,
                    1 << rng.randrange(63),
                    1,
                    200,
                    1 << rng.randrange(63) if p == broker else 0,
                )
                for p in range(PUBLISHERS)
            )
            time_ms = (BEGIN_S + second) * 1_000 + 900 + broker // 2
            send(TelemetryBatch(broker_name(broker), BEGIN_S * 1_000, second, time_ms, 1, deliveries))
        producer.poll(0)
    for broker in range(BROKERS):
        time_ms = (BEGIN_S + seconds) * 1_000 + CLOSING_MS
        send(TelemetryBatch(broker_name(broker), BEGIN_S * 1_000, seconds, time_ms, 1))
    if producer.flush(60):
        raise RuntimeError("Kafka did not take all telemetry within 60 s")


def run_spark(
    bootstrap: str, seconds: int, directory: Path, records_per_trigger_max: int, driver_memory_mb: int, cores: int
) -> dict[str, Any]:
    """Run the whole job until the last window is closed; return how long, what it used and how far it was when."""
    begin = time.monotonic()
    options = f"{SPARK_SETTINGS['spark.driver.extraJavaOptions']} {JAVA_OPTIONS}"
    spark = build_spark_session(
        "bench-streaming",
        run_dir=directory,
        master=f"local[{cores}]",
        driver_memory_mb=driver_memory_mb,
        extra={**SPARK_SETTINGS, "spark.driver.extraJavaOptions": options},
    )
    settings = StreamingSettings(
        bootstrap,
        directory / "checkpoint",
        namespace=JOB,
        window_ms=WINDOW_MS,
        trigger_ms=0,
        records_per_trigger_max=records_per_trigger_max,
        future_ms_max=None,
        past_ms_max=None,
        shards=cores,
        telemetry_topic=topic_name(TELEMETRY),
        status_file=directory / "status.json",
    )
    stop, windows = threading.Event(), -(-seconds * 1_000 // WINDOW_MS)
    results: list[JobStatus] = []
    faults: list[str] = []

    def run() -> None:
        try:
            results.append(run_job(spark, settings, stop))
        except StreamingJobError as error:
            faults.append(str(error))

    ready = time.monotonic()
    job = threading.Thread(target=run)
    job.start()
    progress: list[Progress] = []
    while job.is_alive() and time.monotonic() < ready + WAIT_S_MAX and not _all_closed(bootstrap, windows):
        status = json.loads(settings.status_file.read_text()) if settings.status_file.exists() else {"cells": 0}
        if status["cells"] and (not progress or progress[-1][1] < status["cells"]):
            progress.append((time.monotonic() - ready, status["cells"], sum(_used_cpu_s().values())))
        time.sleep(0.05)
    ended = time.monotonic()
    cpu_s, java = _used_cpu_s(), _java_children()
    java_mb = max((_peak_mb_of(child) for child in java), default=0.0)
    workers = [child for each in java for child in each.children(recursive=True)]
    workers_mb = sum(map(_peak_mb_of, workers))
    stop.set()
    job.join(60)
    end_session(spark)
    if not results:
        raise StackError("; ".join(faults) or f"the job did not close all windows within {WAIT_S_MAX:g} s")
    return {
        "start_s": ready - begin,
        "total_s": ended - ready,
        "late_rows": results[0].late_rows,
        "dead_letters": results[0].dead_letters,
        "progress": progress,
        "cpu_s": cpu_s,
        "peak_mb": {"spark driver (Python)": _peak_mb(), "spark (Java)": java_mb, "spark workers": workers_mb},
    }


def run_loop(bootstrap: str, seconds: int) -> dict[str, Any]:
    """Do the same with one consumer, fastavro, dicts and one producer."""
    begin = time.monotonic()
    schema = latest_schema("TelemetryBatch").parsed
    aggregator = ReferenceAggregator(WINDOW_MS, grace_ms=2_000)
    consumer = open_consumer(KafkaAccess(bootstrap))
    topic = topic_name(TELEMETRY)
    partitions = sorted(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    latest = dict.fromkeys(partitions, 0)  # Partitions are read unevenly: a window closes behind the slowest.
    producer = open_producer(
        KafkaAccess(bootstrap),
        {
            "linger.ms": 5,
            "compression.type": "lz4",
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": 1_000_000,
            "delivery.report.only.error": True,
        },
    )
    windows = written = cells = 0
    progress: list[Progress] = []
    while windows < -(-seconds * 1_000 // WINDOW_MS):
        for message in consumer.consume(1_000, timeout=1.0):
            value, partition = message.value(), message.partition()
            if message.error() or value is None or partition is None:
                raise RuntimeError(f"reading failed: {message.error()}")
            batch = schemaless_reader(io.BytesIO(value[CONFLUENT_HEADER_BYTES:]), schema)
            latest[partition] = max(latest[partition], batch["time_ms"])
            aggregator.take(batch)
            cells += sum(len(second["masks"]) // MASK_BYTES for second in batch["seconds"])
        progress.append((time.monotonic() - begin, cells, time.process_time()))
        closed = aggregator.advance(min(latest.values()))
        for window in closed:
            for row in window.rows:
                key = state_key(row.window_start_ms, row.kind, row.entity)
                producer.produce(topic_name(STATE, LOOP), encode(row), key=key)
            written += len(window.rows)
            producer.flush(60)
            marker = window.marker
            producer.produce(topic_name(WINDOWS, LOOP), encode(marker), key=window_key(marker.window_start_ms))
        windows += len(closed)
    producer.flush(60)
    consumer.close()
    return {
        "total_s": time.monotonic() - begin,
        "late_rows": aggregator.late_rows,
        "progress": progress,
        "cpu_s": {"plain loop": time.process_time()},
        "peak_mb": {"plain loop": _peak_mb()},
    }


def read_outcome(bootstrap: str, namespace: str) -> Outcome:
    """Read back what a program wrote, packed rows as single ones; the newest value of a key counts."""
    markers: dict[bytes, tuple[WindowClosed, int]] = {}
    for key, value, time_ms in _read(bootstrap, topic_name(WINDOWS, namespace)):
        markers[key] = decode(value, WindowClosed), time_ms
    schema = latest_schema("StateRow").parsed
    digests: dict[bytes, bytes] = {}
    cells: dict[bytes, tuple[int, int]] = {}
    packed: dict[bytes, StateRow] = {}
    for key, value, _ in _read(bootstrap, topic_name(STATE, namespace)):
        if b"/packed_deliveries/" in key:
            packed[key] = decode(value, StateRow)
            continue
        digests[key] = blake2b(value, digest_size=12).digest()
        if b"/delivery/" in key:
            row = schemaless_reader(io.BytesIO(value[CONFLUENT_HEADER_BYTES:]), schema)
            cells[key] = (row["window_start_ms"], row["delivery"]["local_deliveries"])
    for window_name, (marker, time_ms) in markers.items():
        single, counted = unpack_window([row for key, row in packed.items() if key.startswith(window_name)], marker)
        markers[window_name] = counted, time_ms
        for row in single:
            key = state_key(row.window_start_ms, row.kind, row.entity)
            digests[key] = blake2b(encode(row), digest_size=12).digest()
            cells[key] = (row.window_start_ms, row.delivery.local_deliveries if row.delivery else 0)
    of_window: dict[int, int] = {}
    for start_ms, count in cells.values():
        of_window[start_ms] = of_window.get(start_ms, 0) + count
    rows = sum(sum(marker.row_counts.values()) for marker, _ in markers.values())
    if rows != len(digests):
        raise RuntimeError(f"{namespace}: the markers announce {rows} rows, {len(digests)} are there")
    late = sum(marker.late_rows for marker, _ in markers.values())
    return Outcome(digests, sum(of_window.values()), late)


def steady_cells_per_s(progress: Sequence[Progress], total_s: float) -> float:
    """Return the rate over the last part of the cells, until all windows are written.

    Work in hand when a micro-batch began is of cells before it, so only what was completed counts.
    """
    begin_s, done, _ = _steady_from(progress)
    return (progress[-1][1] - done) / (total_s - begin_s)


def steady_cpu_s_per_million(progress: Sequence[Progress], cpu_s: float) -> float:
    """Return the CPU time for a million cells over the same part: without what starting and compiling takes."""
    _, done, used_s = _steady_from(progress)
    return (cpu_s - used_s) / (progress[-1][1] - done) * 1e6


def _steady_from(progress: Sequence[Progress]) -> Progress:
    return next(each for each in progress if each[1] >= (1 - STEADY_SHARE) * progress[-1][1])


def _all_closed(bootstrap: str, windows: int) -> bool:
    return _count(bootstrap, topic_name(WINDOWS, JOB)) >= windows


def _count(bootstrap: str, topic: str) -> int:
    consumer = open_consumer(KafkaAccess(bootstrap))
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
        return high - low
    finally:
        consumer.close()


def _read(bootstrap: str, topic: str) -> list[tuple[bytes, bytes, int]]:
    consumer = open_consumer(KafkaAccess(bootstrap))
    consumer.assign([TopicPartition(topic, 0, 0)])
    _, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
    found: list[tuple[bytes, bytes, int]] = []
    while len(found) < high:
        for message in consumer.consume(5_000, timeout=5.0):
            kind, time_ms = message.timestamp()
            key, value = message.key(), message.value()
            if message.error() or key is None or value is None or kind == TIMESTAMP_NOT_AVAILABLE:
                raise RuntimeError(f"reading {topic} failed: {message.error()}")
            found.append((key if isinstance(key, bytes) else key.encode(), value, time_ms))
    consumer.close()
    return found


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024


def _used_cpu_s() -> dict[str, float]:
    """Return the CPU time of the Spark driver, its Java and Python workers so far."""
    java = _java_children()
    workers = [child for each in java for child in each.children(recursive=True)]
    return {
        "driver (Python)": time.process_time(),
        "Java": sum(map(_cpu_s, java)),
        "workers": sum(map(_cpu_s, workers)),
    }


def _java_children() -> list[psutil.Process]:
    return [
        child
        for child in psutil.Process().children(recursive=True)
        if "java" in child.name() and child.status() != psutil.STATUS_ZOMBIE
    ]


def _cpu_s(process: psutil.Process) -> float:
    spent = process.cpu_times()
    return float(spent.user + spent.system)


def _peak_mb_of(process: psutil.Process) -> float:
    status = (Path("/proc") / str(process.pid) / "status").read_text(encoding="utf-8")
    return int(status.split("VmHWM:")[1].split()[0]) / 1_024


def _apart(program: Callable[..., Any], *arguments: object) -> Any:
    """Run a program in a fresh process, so that its memory is its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(program, arguments)


def _figures(facts: dict[str, dict[str, Any]], outcomes: dict[str, Outcome], kafka_mb: float) -> list[Figure]:
    where: dict[str, str | int | float] = {"brokers": BROKERS, "publishers": PUBLISHERS, "cells": outcomes[JOB].cells}
    figures = []
    steady = {name: steady_cells_per_s(fact["progress"], fact["total_s"]) for name, fact in facts.items()}
    for name, outcome in outcomes.items():
        by = where | {"by": name}
        figures += [
            Figure("steady_cells_per_s", by, round(steady[name]), "1/s"),
            Figure("total_s", by, round(facts[name]["total_s"], 2), "s"),
            Figure("whole_run_cells_per_s", by, round(outcome.cells / facts[name]["total_s"]), "1/s"),
            Figure("late_rows", by, facts[name]["late_rows"], "rows"),
            Figure("state_rows", by, len(outcome.digests), "rows"),
        ]
        used = facts[name]["cpu_s"]
        figures += [Figure("cpu_s", by | {"process": process}, round(spent, 1), "s") for process, spent in used.items()]
        per_million = sum(used.values()) / outcome.cells * 1e6
        figures.append(Figure("cpu_s_per_million_cells", by, round(per_million, 2), "s"))
        per_million = steady_cpu_s_per_million(facts[name]["progress"], sum(used.values()))
        figures.append(Figure("steady_cpu_s_per_million_cells", by, round(per_million, 2), "s"))
        peaks = facts[name]["peak_mb"]
        figures += [
            Figure("peak_rss_mb", by | {"process": process}, round(peak), "MB") for process, peak in peaks.items()
        ]
    figures.append(Figure("peak_rss_mb", where | {"by": "both", "process": "kafka (Java)"}, round(kafka_mb), "MB"))
    figures.append(Figure("session_start_s", where | {"by": JOB}, round(facts[JOB]["start_s"], 2), "s"))
    figures.append(Figure("steady_ratio", where, round(steady[JOB] / steady[LOOP], 2), "spark / plain"))
    return figures


def _verify(facts: dict[str, dict[str, Any]], outcomes: dict[str, Outcome], cells: int) -> list[str]:
    faults = []
    for name, outcome in outcomes.items():
        if outcome.cells != cells:
            faults.append(f"{name} accounts for {outcome.cells} of {cells} cells")
        if facts[name]["late_rows"] or outcome.late_rows:
            faults.append(f"{name} dropped {facts[name]['late_rows']} rows as late")
    if facts[JOB]["dead_letters"]:
        faults.append(f"{facts[JOB]['dead_letters']} records became dead letters")
    different = [key for key, digest in outcomes[JOB].digests.items() if outcomes[LOOP].digests.get(key) != digest]
    if different or len(outcomes[JOB].digests) != len(outcomes[LOOP].digests):
        faults.append(f"{len(different)} rows differ between spark and plain, for example {different[:2]}")
    return faults


def measure(
    cells: int, records_per_trigger_max: int, driver_memory_mb: int, cores: int, directory: Path
) -> tuple[list[Figure], list[str]]:
    """Fill Kafka, run both programs, compare; return the figures and what is wrong."""
    seconds = telemetry(cells)
    cells = seconds * BROKERS * PUBLISHERS
    with start_kafka(directory) as kafka:
        bootstrap = kafka.bootstrap
        create_topics(kafka.access, [TELEMETRY])
        written: tuple[Topic, ...] = (STATE, WINDOWS, DEAD_LETTERS)
        for namespace in (JOB, LOOP):
            create_topics(kafka.access, written, namespace)
        print(f"writing {cells:,} cells into Kafka")
        _apart(generate, bootstrap, seconds)
        print("the Spark job catches up")
        sizes = (records_per_trigger_max, driver_memory_mb, cores)
        facts = {JOB: _apart(run_spark, bootstrap, seconds, directory, *sizes)}
        print("the plain loop catches up")
        facts[LOOP] = _apart(run_loop, bootstrap, seconds)
        kafka_mb = max(_peak_mb_of(child) for child in _java_children())
        outcomes = {name: read_outcome(bootstrap, name) for name in (JOB, LOOP)}
    return _figures(facts, outcomes, kafka_mb), _verify(facts, outcomes, cells)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=8_000_000, help="Delivery cells to read, at least 4 million")
    parser.add_argument("--records-per-trigger", type=int, default=20_000, help="bound of one micro-batch")
    parser.add_argument("--driver-memory-mb", type=int, default=DRIVER_MEMORY_MB, help="heap of Spark's driver")
    parser.add_argument("--cores", type=int, default=2, help="cores of Spark's local master, and shards")
    parser.add_argument("--json", type=Path, help="file for the figures")
    given = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="bench-streaming-"))
    try:
        figures, faults = measure(
            given.cells, given.records_per_trigger, given.driver_memory_mb, given.cores, directory
        )
    except StackError as error:
        sys.stderr.write(f"Not measured: {error}.\n")
        return 1
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    for figure in figures:
        labels = " ".join(str(figure.where[label]) for label in ("by", "process") if label in figure.where)
        print(f"{figure.name:30} {labels:32} {figure.value:>14,} {figure.unit}")
    for fault in faults:
        print(f"WRONG: {fault}")
    if given.json is not None:
        settings = {"cells": given.cells, "records_per_trigger_max": given.records_per_trigger, "window_ms": WINDOW_MS}
        settings |= {"driver_memory_mb": given.driver_memory_mb, "cores": given.cores}
        write_figures(given.json, run_facts(settings, SEED), figures)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
