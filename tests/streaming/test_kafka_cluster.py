"""The job on three Kafka brokers: one is killed, and nothing that was acknowledged is lost."""

import dataclasses
import time
import uuid
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession

from regraft.infra.kafka.create_topics import create_topics
from regraft.infra.kafka.kafka_clients import open_consumer
from regraft.infra.local.supervise import Supervisor
from regraft.schemas.topics import STATE, TELEMETRY, TOPICS, topic_name
from regraft.streaming.streaming_settings import StreamingSettings
from tests.streaming.kafka_cluster import KafkaCluster, start_kafka_cluster
from tests.streaming.test_run_job import BROKERS, Running, beats, check_windows, known_brokers_of, send

pytestmark = [pytest.mark.spark, pytest.mark.stack]

BEFORE_S, AFTER_S = 20, 40


def records_in(kafka: KafkaCluster, topic: str) -> int:
    consumer = open_consumer(kafka.access)
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, at), timeout=20)[1] for at in range(4)]
    consumer.close()
    return sum(ends)


def test_a_killed_kafka_broker_costs_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """The leader of the topic of state dies while telemetry arrives: each window is written once and complete."""
    namespace, begin_ms = f"test-{uuid.uuid4().hex[:8]}", (int(time.time()) - 200) * 1_000
    with Supervisor() as supervisor:
        kafka = start_kafka_cluster(supervisor, tmp_path)
        create_topics(kafka.access, TOPICS, namespace)
        job = known_brokers_of(
            StreamingSettings(
                kafka.access.bootstrap,
                tmp_path / "checkpoint",
                namespace=namespace,
                window_ms=1_000,
                grace_ms=500,
                trigger_ms=100,
                status_file=tmp_path / "status.json",
            )
        )
        send(job, beats(range(BEFORE_S), begin_ms))  # Before the job begins: half of it would let windows close.
        running = Running(spark, dataclasses.replace(job, catch_up_grace_ms=500))
        running.wait(lambda status: status["windows"] >= BEFORE_S // 2)
        state = topic_name(STATE, namespace)
        killed = kafka.leader(state)
        kafka.kill(killed)
        for second in range(BEFORE_S, AFTER_S):  # The sender finds the new leaders, and so does the job.
            send(job, beats(range(second, second + 1), begin_ms))
        running.wait(lambda status: status["window_end_ms_last"] == begin_ms + (AFTER_S - 1) * 1_000)
        assert running.end().records_lost == 0
        assert kafka.leader(state) not in (killed, -1)
        assert records_in(kafka, topic_name(TELEMETRY, namespace)) == AFTER_S * BROKERS
        check_windows(job, AFTER_S - 1)
