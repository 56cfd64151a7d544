"""Subscriptions are counted from the compacted register of clients, on a real Kafka."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

import controller.count_subscriptions
from controller.count_subscriptions import KafkaSubscriptionCounter
from infra.create_topics import create_topics
from infra.kafka_server import RunningKafka, start_kafka
from schemas.client import Client, Role
from schemas.codec import encode
from schemas.topics import CLIENTS, topic_name
from tests.wait_until import wait_until

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningKafka]:
    with start_kafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running


class Register:
    """The topic of clients, as brokers write it."""

    def __init__(self, kafka: RunningKafka, namespace: str) -> None:
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap})
        self._topic = topic_name(CLIENTS, namespace)

    def put(self, name: str, role: Role = Role.SUBSCRIBER) -> None:
        self._write(name, encode(Client(name, role, "b00", (), 0.0, 1)))

    def remove(self, name: str) -> None:
        self._write(name, None)

    def write_rubbish(self, name: str) -> None:
        self._write(name, b"rubbish")

    def _write(self, name: str, value: bytes | None) -> None:
        self._producer.produce(self._topic, value, key=name.encode())
        assert self._producer.flush(30) == 0


@pytest.fixture
def register(kafka: RunningKafka, request: pytest.FixtureRequest) -> Register:
    create_topics(kafka.bootstrap, namespace=_namespace(request))
    return Register(kafka, _namespace(request))


def _namespace(request: pytest.FixtureRequest) -> str:
    return str(request.node.name).replace("_", "-")[:40]


def test_the_register_gives_the_number_of_subscriptions(
    kafka: RunningKafka, register: Register, request: pytest.FixtureRequest
) -> None:
    """Publishers do not count, who left does not either, and who is told twice counts once."""
    for name in ("s1", "s2", "s3", "s2"):
        register.put(name)
    register.put("p1", Role.PUBLISHER)
    register.remove("s1")
    register.write_rubbish("s9")
    counter = KafkaSubscriptionCounter(kafka.bootstrap, _namespace(request), lambda letter: None)
    wait_until(lambda: counter.count() is not None)
    assert counter.count() == 2
    assert sum(counter.undecodable.values()) == 1
    register.put("s4")
    wait_until(lambda: counter.count() == 3)
    register.remove("s2")
    register.remove("p1")
    wait_until(lambda: counter.count() == 2)
    counter.close()


def test_an_empty_register_has_no_subscriptions_and_an_absent_one_is_unknown(
    kafka: RunningKafka, register: Register, request: pytest.FixtureRequest
) -> None:
    """Nobody connected is a number; a topic that is not there is none."""
    counter = KafkaSubscriptionCounter(kafka.bootstrap, _namespace(request), lambda letter: None)
    wait_until(lambda: counter.count() == 0)
    counter.close()
    absent = KafkaSubscriptionCounter(kafka.bootstrap, "nowhere", lambda letter: None)
    assert [absent.count() for _ in range(3)] == [None] * 3
    absent.close()


def test_a_register_beyond_the_bound_is_let_go(
    kafka: RunningKafka, register: Register, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number is unknown from then on, however many leave again."""
    monkeypatch.setattr(controller.count_subscriptions, "SUBSCRIPTIONS_MAX", 2)
    counter = KafkaSubscriptionCounter(kafka.bootstrap, _namespace(request), lambda letter: None)
    register.put("s1")
    wait_until(lambda: counter.count() == 1)
    register.put("s2")
    register.put("s3")
    wait_until(lambda: counter.count() is None)
    for name in ("s1", "s2", "s3"):
        register.remove(name)
    assert [counter.count() for _ in range(3)] == [None] * 3
    counter.close()
