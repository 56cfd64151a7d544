"""The compacted register of clients is read from its beginning and kept up to date, on a real Kafka."""

import pytest
from confluent_kafka import Producer

import regraft.controller.ports.client_register
from regraft.controller.ports.client_register import KafkaClientRegister
from regraft.infra.kafka.create_topics import create_topics
from regraft.infra.local.kafka_server import RunningKafka
from regraft.schemas.client import Client, Role
from regraft.schemas.codec import encode
from regraft.schemas.topics import CLIENTS, topic_name
from tests.controller.scripted_ring import publisher, user
from tests.wait_until import wait_until

pytestmark = pytest.mark.stack


class Register:
    """The topic of clients, as brokers write it."""

    def __init__(self, kafka: RunningKafka, namespace: str) -> None:
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap})
        self._topic = topic_name(CLIENTS, namespace)

    def put(self, name: str, role: Role = Role.SUBSCRIBER) -> None:
        self.put_client(Client(name, role, "b00", (), 0.0, 1))

    def put_client(self, client: Client) -> None:
        self._write(client.client, encode(client))

    def remove(self, name: str) -> None:
        self._write(name, None)

    def write_rubbish(self, name: str) -> None:
        self._write(name, b"rubbish")

    def _write(self, name: str, value: bytes | None) -> None:
        self._producer.produce(self._topic, value, key=name.encode())
        assert self._producer.flush(30) == 0


@pytest.fixture
def register(kafka: RunningKafka, request: pytest.FixtureRequest) -> Register:
    create_topics(kafka.access, namespace=_namespace(request))
    return Register(kafka, _namespace(request))


def _namespace(request: pytest.FixtureRequest) -> str:
    return str(request.node.name).replace("_", "-")[:40]


def test_the_register_gives_the_number_of_subscriptions(
    kafka: RunningKafka, register: Register, request: pytest.FixtureRequest
) -> None:
    """Publishers and clients that have left do not count, and a client reported twice counts once."""
    for name in ("s1", "s2", "s3", "s2"):
        register.put(name)
    register.put("p1", Role.PUBLISHER)
    register.remove("s1")
    register.write_rubbish("s9")
    counter = KafkaClientRegister(kafka.access, _namespace(request), lambda letter: None)
    wait_until(lambda: counter.count() is not None)
    assert counter.count() == 2
    assert sum(counter.undecodable.values()) == 1
    register.put("s4")
    wait_until(lambda: counter.count() == 3)
    register.remove("s2")
    register.remove("p1")
    wait_until(lambda: counter.count() == 2)
    counter.close()


def test_an_empty_register_has_no_subscriptions_and_the_number_of_an_absent_one_is_unknown(
    kafka: RunningKafka, register: Register, request: pytest.FixtureRequest
) -> None:
    """No connected client is a number; an absent topic is None."""
    counter = KafkaClientRegister(kafka.access, _namespace(request), lambda letter: None)
    wait_until(lambda: counter.count() == 0)
    counter.close()
    absent = KafkaClientRegister(kafka.access, "nowhere", lambda letter: None)
    assert [absent.count() for _ in range(3)] == [None] * 3
    absent.close()


def test_the_register_gives_users_with_their_topics_and_what_publishers_publish_on(
    kafka: RunningKafka, register: Register, request: pytest.FixtureRequest
) -> None:
    """Nothing is known before the register was read to its end; then a user's newest record counts until it leaves."""
    counter = KafkaClientRegister(kafka.access, _namespace(request), lambda letter: None)
    assert counter.registered.topic_of == {}
    assert counter.is_loading
    assert counter.error == "the register of clients is not yet read to its end"
    register.put_client(user("u1", "b00", "a", "b"))
    register.put_client(user("u2", "b01", "b"))
    register.put_client(user("u1", "b01", "c"))
    register.put_client(user("u3", "elsewhere", "a"))
    register.put_client(publisher("p", "b00", "c"))
    wait_until(lambda: counter.count() == 3)
    assert (counter.error, counter.is_loading) == ("", False)
    interests = counter.registered.interests(("b00", "b01"))
    assert (interests.users, interests.topics, interests.homes.tolist()) == (("u1", "u2"), ("b", "c"), [1, 1])
    assert [interests.topics_of(name) for name in interests.users] == [("c",), ("b",)]
    assert (counter.registered.topic_of, counter.registered.unplaced) == ({"p": "c"}, 1)
    register.remove("u1")
    wait_until(lambda: counter.count() == 2)
    after = counter.registered.interests(("b00", "b01"))
    assert after.users == ("u2",)
    counter.close()


def test_a_register_beyond_the_bound_is_dropped(
    kafka: RunningKafka, register: Register, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From then on the number is unknown, however many clients leave again."""
    monkeypatch.setattr(regraft.controller.ports.client_register, "SUBSCRIPTIONS_MAX", 2)
    counter = KafkaClientRegister(kafka.access, _namespace(request), lambda letter: None)
    register.put("s1")
    wait_until(lambda: counter.count() == 1)
    register.put("s2")
    register.put("s3")
    wait_until(lambda: counter.count() is None)
    for name in ("s1", "s2", "s3"):
        register.remove(name)
    assert [counter.count() for _ in range(3)] == [None] * 3
    assert (counter.is_loading, counter.registered.held_count) == (False, 0)
    assert counter.error == "the register of clients has more than 2 subscriptions"
    counter.close()
