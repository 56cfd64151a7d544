"""Whatever is killed during a micro-batch: rows and markers are those of an undisturbed job."""

import dataclasses
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from regraft.infra.kafka.create_topics import create_topics
from regraft.infra.kafka.read_messages import read_to_end
from regraft.infra.local.kafka_server import RunningKafka
from regraft.schemas.codec import encode
from regraft.schemas.telemetry import Delivery, LinkProbe, QueueSample, TelemetryBatch
from regraft.schemas.topics import STATE, TOPICS, WINDOWS, Topic, topic_name
from regraft.streaming.streaming_settings import StreamingSettings
from tests.streaming.kill_parts import (
    KAFKA_MARKER,
    KAFKA_ROWS,
    WORKER_AFTER,
    WORKER_BEFORE,
    WORKER_BETWEEN,
    Armed,
    kill_where_armed,
)
from tests.streaming.test_run_job import Running, job, known_brokers_of, send, wait_status
from tests.wait_until import PATIENCE_S, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.stack]

__all__ = ["job"]  # The fixture.

BROKERS, PUBLISHERS, AT_ONCE_S = 6, 4, 4


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


def test_a_kill_during_a_micro_batch_changes_no_byte(
    spark: SparkSession, job: StreamingSettings, kafka: RunningKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Python worker before, between and after its rows, and Kafka during rows and during markers."""
    job = dataclasses.replace(known_brokers_of(job), write_timeout_ms=60_000)
    calm = dataclasses.replace(
        job,
        namespace=f"{job.namespace}-calm",
        telemetry_topic=job.source_topic,
        checkpoint_directory=tmp_path / "calm",
        status_file=tmp_path / "calm.json",
    )
    create_topics(kafka.access, TOPICS, calm.namespace)
    begin_ms, sent = (int(time.time()) - 100) * 1_000, 0
    armed = Armed(tmp_path / "armed")
    armed.directory.mkdir()
    with monkeypatch.context() as patched:
        kill_where_armed(patched, armed)
        running = Running(spark, job)
        for point in ("", WORKER_BEFORE, WORKER_BETWEEN, WORKER_AFTER, KAFKA_ROWS, KAFKA_MARKER, ""):
            if point:
                wait_until(lambda: kafka.supervisor.is_ready("kafka"))
                armed.arm(point, kafka.supervisor.pid("kafka"))
            send(job, batches_at(range(sent, sent + AT_ONCE_S), begin_ms))
            sent += AT_ONCE_S
            until_ms = begin_ms + (sent - 1) * 1_000
            wait_closed(running, until_ms)
            assert not armed.is_armed(point)
        status = running.end()
    assert (status.late_rows, status.dead_letters, status.records_lost) == (0, 0, 0)
    assert (status.windows, status.windows_rewritten) == (sent - 1, 0)
    undisturbed = Running(spark, calm)
    wait_closed(undisturbed, until_ms)
    undisturbed.end()
    (rows, again), (expected, _) = written(job), written(calm)
    assert rows == expected
    assert again[STATE] > 0  # Some records were repeated, and each window was announced once.
    assert again[WINDOWS] == 0
