"""Clients of a real Kafka by every mechanism: librdkafka's, and Spark's."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # it re-exports it without saying so

from regraft.infra.kafka.check_kafka import Diagnosis, check_kafka
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import (
    close_producer,
    is_kafka_ready,
    leave_to_caller,
    open_admin,
    open_consumer,
    open_producer,
)
from regraft.infra.local.make_certificates import LocalAuthority
from regraft.infra.local.spark_session import build_spark_session
from regraft.streaming.streaming_settings import SPARK_SETTINGS
from tests.infra.secured_kafka import PASSWORD, STRANGER, SecuredServer, secured_server

pytestmark = pytest.mark.stack

WAYS = ("SCRAM-SHA-512", "PLAIN", "OAUTHBEARER", "MUTUAL")
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    with secured_server(tmp_path_factory.mktemp("secured")) as running:
        yield running


def write_one(access: KafkaAccess, topic: str, value: str) -> None:
    """Create the topic and write one record to it."""
    admin = open_admin(access, PATIENCE_S)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(PATIENCE_S)
    producer = open_producer(access, on_error=leave_to_caller)
    producer.produce(topic, value)
    assert close_producer(producer, PATIENCE_S) == 0


@pytest.mark.parametrize("how", WAYS)
def test_each_kind_of_client_logs_in(server: SecuredServer, how: str) -> None:
    """A producer, a consumer and an admin client, by each mechanism and by mutual TLS."""
    access, topic = server.access(how), f"clients.{how}"
    assert access.security.errors() == []
    assert is_kafka_ready(access, PATIENCE_S)
    write_one(access, topic, how)
    consumer = open_consumer(access, on_error=leave_to_caller)
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    assert message.value() == how.encode()
    consumer.close()


def found_for(access: KafkaAccess, *topics: str) -> str:
    """Return what is reported about a server in one sentence, with what to do about an error."""
    found = check_kafka(access, topics)
    return f"{found.found}. {found.to_do}" if isinstance(found, Diagnosis) else f"well: {found}"


def test_what_is_wrong_with_a_server_is_reported_in_one_sentence(server: SecuredServer, tmp_path: Path) -> None:
    """Name, port, TLS, certificate, login: each error has its own sentence without secrets."""
    scram, wrong = server.access("SCRAM-SHA-512"), tmp_path / "password"
    wrong.write_text("guessed")
    foreign = LocalAuthority(tmp_path / "foreign").ca_file
    expected = {
        "the name no-such-host.invalid does not resolve": ({}, "no-such-host.invalid:9092"),
        "port 1 of 127.0.0.1 is closed": ({}, "127.0.0.1:1"),
        "does not speak TLS": ({}, server.addresses["OPEN"]),
        "is not trusted": ({"ca_file": foreign}, scram.bootstrap),
        "has expired": ({}, server.addresses["EXPIRED"]),
        "is for a different name than 127.0.0.1": ({}, server.addresses["ELSEWHERE"]),
        "refuses the credentials of regraft": ({"password_file": wrong}, scram.bootstrap),
        "does not accept SCRAM-SHA-256": ({"mechanism": "SCRAM-SHA-256"}, scram.bootstrap),
        "does not accept the client certificate": (
            {"mechanism": None, "username": None, "password_file": None},
            server.addresses["MUTUAL"],
        ),
        "connection used SSL": ({"mechanism": None, "username": None, "password_file": None}, scram.bootstrap),
    }
    for sentence, (changed, address) in expected.items():
        security = replace(scram.security, **changed)  # type: ignore[arg-type]
        found = found_for(KafkaAccess(address, security=security))
        assert sentence in found, found
        assert "guessed" not in found
    assert "connection used PLAINTEXT" in found_for(KafkaAccess(scram.bootstrap))
    assert found_for(scram).startswith("well: ")


def test_missing_rights_are_named(server: SecuredServer) -> None:
    """A login without rights to the topics is reported; topics that do not exist yet are not an error."""
    scram = server.access("SCRAM-SHA-512")
    write_one(scram, "rights.topic", "x")
    assert "1 of 2 topics are missing" in found_for(scram, "rights.topic", "rights.none")
    stranger = KafkaAccess(scram.bootstrap, security=server.secured.login(STRANGER))
    assert "stranger may not read or write any topic, such as rights.topic" in found_for(stranger, "rights.topic")


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
