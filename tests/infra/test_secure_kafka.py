"""Clients of a real Kafka by every mechanism: librdkafka's, and Spark's."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # it re-exports it without saying so

from infra.kafka_access import KafkaAccess
from infra.kafka_clients import close_producer, leave_to_caller, open_admin, open_consumer, open_producer
from infra.kafka_server import is_kafka_ready
from infra.spark_session import build_spark_session
from streaming.streaming_settings import SPARK_SETTINGS
from tests.infra.secured_kafka import PASSWORD, SecuredServer, secured_server

pytestmark = pytest.mark.stack

WAYS = ("SCRAM-SHA-512", "PLAIN", "OAUTHBEARER", "MUTUAL")
PATIENCE_S = 20.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    with secured_server(tmp_path_factory.mktemp("secured")) as running:
        yield running


def write_one(access: KafkaAccess, topic: str, value: str) -> None:
    """Make the topic and write one record to it."""
    admin = open_admin(access, PATIENCE_S)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(PATIENCE_S)
    producer = open_producer(access, on_error=leave_to_caller)
    producer.produce(topic, value)
    assert close_producer(producer, PATIENCE_S) == 0


@pytest.mark.parametrize("how", WAYS)
def test_each_kind_of_client_logs_in(server: SecuredServer, how: str) -> None:
    """A producer, a consumer and an admin client, by each mechanism and by mutual TLS."""
    access, topic = server.access(how), f"clients.{how}"
    assert access.security.faults() == []
    assert is_kafka_ready(access, PATIENCE_S)
    write_one(access, topic, how)
    consumer = open_consumer(access, on_error=leave_to_caller)
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    assert message.value() == how.encode()
    consumer.close()


@pytest.mark.spark
def test_spark_logs_in_by_each_mechanism_and_shows_no_secret(server: SecuredServer, tmp_path: Path) -> None:
    """What was written is read; neither Spark's log nor a plan holds a password or key."""
    spark = build_spark_session("secured", run_dir=tmp_path, extra=SPARK_SETTINGS)
    shown = ""
    try:
        for how in WAYS:
            write_one(server.access(how), f"spark.{how}", how)
            source = spark.read.format("kafka").options(**server.access(how).spark_options())
            table = source.option("subscribe", f"spark.{how}").load()
            assert [bytes(row.value).decode() for row in table.select("value").collect()] == [how]
            shown += table._jdf.queryExecution().toString()
    finally:
        spark.stop()
    shown += "".join(file.read_text(errors="replace") for file in (tmp_path / "spark").glob("*.log*"))
    assert "spark.PLAIN" in shown
    secrets = [server.secured.login().password, server.client.key_file.read_text().splitlines()[1]]
    assert not [secret for secret in (*secrets, PASSWORD, "PRIVATE KEY") if secret and secret in shown]
