"""Whatever is killed during a micro-batch: rows and markers are those of an undisturbed job."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from regraft.infra.kafka.create_topics import create_topics
from regraft.infra.kafka.read_messages import read_to_end
from regraft.infra.local.kafka_server import RunningKafka
from regraft.schemas.codec import encode
from regraft.schemas.telemetry import Delivery, LinkProbe, QueueSample, TelemetryBatch
from regraft.schemas.topics import STATE, TOPICS, WINDOWS, Topic, topic_name
from regraft.streaming.job_errors import EXIT_FAILED
from regraft.streaming.streaming_settings import StreamingSettings
from tests.streaming.kill_parts import (
    JAVA_BEFORE,
    KAFKA_MARKER,
    KAFKA_ROWS,
    WORKER_AFTER,
    WORKER_BEFORE,
    WORKER_BETWEEN,
    Armed,
    kill_where_armed,
)
from tests.streaming.submitted_job import ROOT, running, stage_command
from tests.streaming.test_run_job import Running, job, known_brokers_of, send, wait_status
from tests.wait_until import PATIENCE_S, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.stack]

__all__ = ["job"]  # The fixture.

BROKERS, PUBLISHERS, AT_ONCE_S = 6, 4, 4
STILL, STILL_S = "kafka suspended", 2.5  # Two windows; Kafka's session with itself lasts 4 s.


def batches_at(seconds: range, begin_ms: int) -> list[tuple[str, bytes]]:
    """Return what each broker reports in each second, with every kind of record."""
    values = []
    for second in seconds:
        for number in range(BROKERS):
            time_ms, count = begin_ms + second * 1_000 + 500, second * 10
            cells = tuple(
                Delivery(
                    f"p{each}", second // 7, time_ms // 1_000, 1 << (second % 60) | 1 << number, 1, 10, number == each
                )
                for each in range(PUBLISHERS)
            )
            queues = (QueueSample("", *[count + each for each in range(6)], number, number + 1, wait_ms=count),)
            probes = (LinkProbe(f"b{(number + 1) % BROKERS}", 1.5 * number + second % 3),)
            batch = TelemetryBatch(f"b{number}", begin_ms, second, time_ms, 1, cells, queues, probes).packed()
            values.append((batch.broker, encode(batch)))
    return values


def send_to_suspended(job: StreamingSettings, values: list[tuple[str, bytes]], kafka_pid: int | None) -> None:
    """Send what waits in brokers' buffers while Kafka is suspended for longer than a window, and then arrives."""
    assert kafka_pid is not None
    producer = Producer({"bootstrap.servers": job.bootstrap})
    os.kill(kafka_pid, signal.SIGSTOP)
    try:
        for broker, value in values:
            producer.produce(job.source_topic, value, key=broker)
            time.sleep(STILL_S / len(values))
        assert len(producer) == len(values)
    finally:
        os.kill(kafka_pid, signal.SIGCONT)
    assert producer.flush(PATIENCE_S) == 0


def wait_closed(running: Running, until_ms: int) -> None:
    """Wait for the windows that end until then, through a restart of Kafka."""
    is_running = running.thread.is_alive
    wait_status(running.settings, lambda status: status["window_end_ms_last"] == until_ms, is_running, PATIENCE_S)


def written(job: StreamingSettings) -> tuple[dict[tuple[Topic, bytes], bytes], Counter[Topic]]:
    """Return all that the job wrote by key, and how many records were repeated; repeats must have the same bytes."""
    found: dict[tuple[Topic, bytes], list[bytes]] = defaultdict(list)
    again: Counter[Topic] = Counter()
    for topic in (STATE, WINDOWS):
        for message in read_to_end(job.kafka, topic_name(topic, job.namespace)) or []:
            found[topic, message.key()].append(message.value())
    for (topic, key), values in found.items():
        assert len({*values}) == 1, key
        again[topic] += len(values) - 1
    return {key: values[0] for key, values in found.items()}, again


def written_undisturbed(spark: SparkSession, job: StreamingSettings, until_ms: int) -> dict[tuple[Topic, bytes], bytes]:
    """Return what an undisturbed job writes of the same telemetry, by key."""
    calm = dataclasses.replace(
        job,
        namespace=f"{job.namespace}-calm",
        telemetry_topic=job.source_topic,
        checkpoint_directory=job.checkpoint_directory.with_name("calm"),
        status_file=job.checkpoint_directory.with_name("calm.json"),
    )
    create_topics(calm.kafka, TOPICS, calm.namespace)
    undisturbed = Running(spark, calm)
    wait_closed(undisturbed, until_ms)
    undisturbed.end()
    return written(calm)[0]


def test_a_kill_during_a_micro_batch_changes_no_byte(
    spark: SparkSession, job: StreamingSettings, kafka: RunningKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Python worker before, between and after its rows, Kafka during rows and markers, and a suspended Kafka."""
    job = dataclasses.replace(known_brokers_of(job), write_timeout_ms=60_000)
    begin_ms, sent = (int(time.time()) - 100) * 1_000, 0
    armed = Armed(tmp_path / "armed")
    armed.directory.mkdir()
    with monkeypatch.context() as patched:
        kill_where_armed(patched, armed)
        disturbed = Running(spark, job)
        for point in ("", WORKER_BEFORE, WORKER_BETWEEN, WORKER_AFTER, KAFKA_ROWS, KAFKA_MARKER, STILL, ""):
            values = batches_at(range(sent, sent + AT_ONCE_S), begin_ms)
            wait_until(lambda: kafka.supervisor.is_ready("kafka"))
            if point == STILL:
                send_to_suspended(job, values, kafka.supervisor.pid("kafka"))
            else:
                if point:
                    armed.arm(point, kafka.supervisor.pid("kafka"))
                send(job, values)
            sent += AT_ONCE_S
            until_ms = begin_ms + (sent - 1) * 1_000
            wait_closed(disturbed, until_ms)
            assert not armed.is_armed(point)
        status = disturbed.end()
    assert (status.late_rows, status.dead_letters, status.records_lost) == (0, 0, 0)
    assert (status.windows, status.windows_rewritten) == (sent - 1, 0)
    rows, again = written(job)
    assert rows == written_undisturbed(spark, job, until_ms)
    assert again[STATE] > 0  # Some records were repeated, and each window was announced once.
    assert again[WINDOWS] == 0


@contextmanager
def staged(job: StreamingSettings, run_dir: Path, armed: Armed) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``regraft stage stream`` in local mode, killed where armed, with its log in ``run_dir/log``."""
    program = [sys.executable, str(Path(__file__).with_name("killed_stage.py"))]
    command = stage_command(program, job, run_dir, driver_memory_mb=512)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "ARMED": str(armed.directory)}
    with running(command, run_dir, environment) as process:
        yield process


def test_a_java_killed_alone_ends_the_job_with_a_sentence_and_a_restart_changes_no_byte(
    spark: SparkSession, job: StreamingSettings, tmp_path: Path
) -> None:
    """Between the rows and the markers of a micro-batch; a supervisor sees the code of a failure and starts again."""
    armed, run_dir = Armed(tmp_path / "armed"), tmp_path / "run"
    armed.directory.mkdir()
    run_dir.mkdir()
    job = dataclasses.replace(known_brokers_of(job), checkpoint_directory=run_dir / "checkpoint")
    assert job.inventory_path is not None
    (run_dir / "inventory.json").write_bytes(job.inventory_path.read_bytes())
    begin_ms = (int(time.time()) - 100) * 1_000
    send(job, batches_at(range(AT_ONCE_S), begin_ms))
    armed.arm(JAVA_BEFORE)
    with staged(job, run_dir, armed) as process:
        code = process.wait(PATIENCE_S)
    log = (run_dir / "log").read_text()
    assert code == EXIT_FAILED, log
    [sentence] = [line for line in log.splitlines() if line.startswith("Java was killed")]
    assert "no telemetry is lost, and the job resumes where it was when it starts again" in sentence
    send(job, batches_at(range(AT_ONCE_S, 2 * AT_ONCE_S), begin_ms))
    until_ms = begin_ms + (2 * AT_ONCE_S - 1) * 1_000
    again_running = Running(spark, job)
    wait_closed(again_running, until_ms)
    again_running.end()
    rows, again = written(job)
    assert rows == written_undisturbed(spark, job, until_ms)
    assert again[WINDOWS] == AT_ONCE_S - 1  # The micro-batch ran again.
