"""A real broker from the locked jars: it serves, keeps its data when killed, and its topics match the table."""

import os
import signal
import socket
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from regraft.infra.kafka.check_kafka import missing_topics
from regraft.infra.kafka.create_topics import (
    TopicMismatchError,
    TopicsMissingError,
    check_topics,
    create_topics,
    require_topics,
    timestamp_type,
)
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import is_kafka_ready, open_admin
from regraft.infra.kafka.read_messages import read_last
from regraft.infra.local import kafka_server as module
from regraft.infra.local.kafka_server import (
    KafkaAddress,
    KafkaFiles,
    KafkaServerError,
    RunningKafka,
    start_kafka,
    write_settings,
)
from regraft.infra.process.find_port import LOOPBACK, PortInUseError
from regraft.infra.process.stack_error import StackError
from regraft.schemas.topics import CLIENTS, CREATE_TIME, LOG_APPEND_TIME, PLANS, TELEMETRY, TOPICS, topic_name
from tests.wait_until import wait_until

READY_S = 60.0
RECORDS = 500


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningKafka]:
    with start_kafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running


def _produce(bootstrap: str, topic: str, first: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(first, first + RECORDS):
        producer.produce(topic, str(number).encode())
    assert producer.flush(READY_S) == 0


def _consume(bootstrap: str, topic: str, count: int) -> list[int]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe([topic])
    numbers: list[int] = []
    deadline_s = time.monotonic() + READY_S
    while len(numbers) < count and time.monotonic() < deadline_s:
        numbers += [int(message.value()) for message in consumer.consume(count, 1.0) if message.error() is None]
    consumer.close()
    return sorted(numbers)


def test_a_directory_with_a_comma_is_refused(tmp_path: Path) -> None:
    """Kafka would read two directories: nothing is written there, and the error says what to do."""
    with pytest.raises(KafkaServerError, match=r"a,b/data: choose a directory without a comma"):
        write_settings(KafkaFiles(tmp_path / "a,b"), KafkaAddress(1, 2), None, None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.stack
def test_the_last_records_are_counted_without_the_markers_of_transactions(kafka: RunningKafka) -> None:
    """A topic of transactions ends with a marker, which takes an offset: the last record is found before it."""
    create_topics(kafka.access, namespace="marked")
    name = topic_name(PLANS, "marked")
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "marked"})
    producer.init_transactions(READY_S)
    for number in range(12):
        producer.begin_transaction()
        producer.produce(name, str(number).encode(), key=str(number).encode())
        producer.commit_transaction(READY_S)
    for count in (1, 5, 100):
        found = [int(message.value() or b"") for message in read_last(kafka.access, [name], count, READY_S)]
        assert found == list(range(12))[-count:]


@pytest.mark.stack
def test_topics_are_created_once_and_checked(kafka: RunningKafka) -> None:
    """Missing topics of the table are created; a second call finds them correct."""
    assert create_topics(kafka.access, namespace="one") == [topic_name(topic, "one") for topic in TOPICS]
    assert create_topics(kafka.access, namespace="one") == []


@pytest.mark.stack
def test_missing_topics_are_named_and_not_created(kafka: RunningKafka) -> None:
    """A run against somebody's cluster makes no topics by itself: it says which are missing, and how to create them."""
    with pytest.raises(TopicsMissingError, match=r"lacks \d+ topics: asked\.\S+, .* and \d+ more.*topics --create`"):
        require_topics(kafka.access, "asked")
    with pytest.raises(TopicsMissingError):
        require_topics(kafka.access, "asked")
    create_topics(kafka.access, namespace="asked")
    require_topics(kafka.access, "asked")
    with pytest.raises(TopicsMissingError, match=r"asked\.announcements\.west"):
        require_topics(kafka.access, "asked", ["west"])


@pytest.mark.stack
def test_a_topic_that_exists_keeps_its_partitions(kafka: RunningKafka) -> None:
    """Extra partitions are for new topics; an old topic is not at error if the fleet has grown."""
    name = topic_name(TELEMETRY, "sized")
    for partitions in (7, 9):
        create_topics(kafka.access, [TELEMETRY], namespace="sized", partitions={TELEMETRY: partitions})
        assert len(open_admin(kafka.access, READY_S).list_topics(name, timeout=READY_S).topics[name].partitions) == 7


@pytest.mark.stack
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (replace(TELEMETRY, partitions=TELEMETRY.partitions + 1), r"partitions is 4, not 5"),
        (
            replace(TELEMETRY, partitions=7),
            r"is 4, not 7\): alter it \(kafka-topics\.sh .* --partitions 7\)",
        ),
        (replace(TELEMETRY, retention_ms=90_000_000), r"retention\.ms is 86400000, not 90000000"),
        (
            replace(TELEMETRY, timestamps=CREATE_TIME),
            r"type is LogAppendTime, not CreateTime\): alter it \(kafka-configs",
        ),
        (replace(CLIENTS, retention_ms=1_000), r"cleanup\.policy is compact, not delete"),
    ],
)
def test_topic_of_another_shape_is_reported(kafka: RunningKafka, changed: object, message: str) -> None:
    """A topic that differs from the table is refused with the difference."""
    create_topics(kafka.access, namespace="shape")
    assert timestamp_type(kafka.access, topic_name(TELEMETRY, "shape")) == LOG_APPEND_TIME
    with pytest.raises(TopicMismatchError, match=message):
        create_topics(kafka.access, [changed], namespace="shape")  # type: ignore[list-item]


@pytest.mark.stack
def test_topics_with_more_than_the_table_wants_are_accepted(kafka: RunningKafka) -> None:
    """More partitions and longer retention lose nothing; a topic with a single order may not be split."""
    more = [replace(TELEMETRY, partitions=6, retention_ms=90_000_000), replace(PLANS, partitions=2)]
    create_topics(kafka.access, more, namespace="more")
    create_topics(kafka.access, [TELEMETRY], namespace="more")
    with pytest.raises(TopicMismatchError, match=r"partitions is 2, not 1, because its records must stay in order"):
        check_topics(kafka.access, "more")
    check_topics(kafka.access, "nothing-there")
    check_topics(KafkaAccess(f"{LOOPBACK}:1"), "more")


@pytest.mark.stack
def test_a_deleted_topic_is_missing_once_there_are_others(kafka: RunningKafka) -> None:
    """A cluster in which nothing has run yet lacks nothing."""
    assert missing_topics(kafka.access, "lack", ("",), READY_S) == []
    create_topics(kafka.access, namespace="lack")
    assert missing_topics(kafka.access, "lack", ("",), READY_S) == []
    name, admin = topic_name(PLANS, "lack"), open_admin(kafka.access, READY_S)
    admin.delete_topics([name], operation_timeout=READY_S)[name].result()
    wait_until(lambda: missing_topics(kafka.access, "lack", ("",), READY_S) == [name], READY_S)


@pytest.mark.stack
def test_killed_broker_returns_with_its_data(kafka: RunningKafka) -> None:
    """A broker killed with SIGKILL is restarted on the same port and has every acknowledged record."""
    create_topics(kafka.access, namespace="kill")
    topic = topic_name(TELEMETRY, "kill")
    _produce(kafka.bootstrap, topic, 0)
    pid = kafka.supervisor.pid("kafka")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    _produce(kafka.bootstrap, topic, RECORDS)  # the producer waits for the broker's return
    wait_until(lambda: kafka.supervisor.is_ready("kafka"), READY_S)
    assert kafka.supervisor.restarts("kafka") == 1
    assert _consume(kafka.bootstrap, topic, 2 * RECORDS) == list(range(2 * RECORDS))


@pytest.mark.stack
def test_second_run_in_a_directory_has_ports_and_data_of_the_first(tmp_path: Path) -> None:
    """Restarted in the same directory, the broker has the same address and the same topics."""
    with start_kafka(tmp_path) as first:
        create_topics(first.access)
    with start_kafka(tmp_path) as second:
        assert second.address == first.address
        assert create_topics(second.access) == []


@pytest.mark.stack
def test_port_taken_after_the_choice_leads_to_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the chosen port is taken before the broker binds it, the broker starts on another one."""
    with socket.socket() as rival:
        rival.bind((LOOPBACK, 0))
        rival.listen()
        taken = rival.getsockname()[1]
        choices = iter([(taken, module.choose_ports(1)[0]), *(module.choose_ports(2) for _ in range(2))])
        monkeypatch.setattr(module, "choose_ports", lambda _count: next(choices))
        with start_kafka(tmp_path) as running:
            assert running.address.port != taken


def test_a_requested_port_in_use_is_refused(tmp_path: Path) -> None:
    """A taken port that the user asked for is an error, not a reason to choose another."""
    with socket.socket() as rival:
        rival.bind((LOOPBACK, 0))
        rival.listen()
        with pytest.raises(PortInUseError):
            start_kafka(tmp_path, port=rival.getsockname()[1])


def test_an_address_without_a_server_is_not_ready(capfd: pytest.CaptureFixture[str]) -> None:
    """An address without a listener is not ready, and nothing else is printed."""
    assert not is_kafka_ready(KafkaAccess(f"{LOOPBACK}:1"), timeout_s=0.2)
    assert capfd.readouterr() == ("", "")


def test_no_kafka_for_topics_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """If no broker answers the error gives the address and the time-out, and nothing else is printed."""
    monkeypatch.setattr("regraft.infra.kafka.create_topics.TIMEOUT_S", 0.3)
    with pytest.raises(StackError, match=r"^Kafka at 127\.0\.0\.1:1 did not answer within 0\.3 s .*: check .*\.$"):
        create_topics(KafkaAccess(f"{LOOPBACK}:1"))
    assert capfd.readouterr() == ("", "")


def test_address_is_read_back_from_the_settings(tmp_path: Path) -> None:
    """The next run in the directory tries the ports in the broker's settings first."""
    files, address = KafkaFiles(tmp_path / "kafka"), KafkaAddress(*module.choose_ports(2))
    module.write_settings(files, address, None, None)
    assert module._choose_address(files, None, again=False) == address
    assert module._choose_address(files, None, again=True) != address


@pytest.mark.stack
def test_a_cluster_id_that_starts_with_a_dash_is_not_an_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One random id in 64 starts with a dash; the broker is prepared all the same."""
    monkeypatch.setattr(module.uuid, "uuid4", lambda: uuid.UUID(bytes=b"\xfb" * 16))
    with start_kafka(tmp_path) as running:
        assert is_kafka_ready(running.access)
    assert "cluster.id=-_v7" in (tmp_path / "kafka" / "data" / "meta.properties").read_text()


def test_further_properties_win_over_the_usual_ones(tmp_path: Path) -> None:
    """They come last, and Kafka uses the last of two equal names."""
    files = KafkaFiles(tmp_path)
    module.write_settings(files, KafkaAddress(19092, 19093), None, {"log.segment.bytes": "1048576"})
    lines = [line for line in files.properties.read_text().splitlines() if line.startswith("log.segment.bytes=")]
    assert lines == ["log.segment.bytes=67108864", "log.segment.bytes=1048576"]
