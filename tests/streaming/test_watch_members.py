"""The job knows which brokers were added, and notices if records of members do not arrive; on a mock of Kafka."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from regraft.infra.kafka.prove_reading import MISSES_MAX
from regraft.schemas.codec import encode
from regraft.schemas.member import BrokerFacts, Member, MemberState
from regraft.schemas.topics import MEMBERS, TELEMETRY, topic_name
from regraft.streaming import watch_members
from regraft.streaming.job_metrics import JobHealth
from regraft.streaming.source_topics import added_brokers
from regraft.streaming.streaming_settings import StreamingSettings
from regraft.streaming.watch_members import MemberWatcher
from tests.mock_kafka import mock_kafka
from tests.wait_until import PATIENCE_S, wait_until

NAMESPACE = "lab"
ARRIVED = "all records of members have arrived up to the end reported by Kafka"


@pytest.fixture
def cluster() -> Iterator[tuple[Producer, str]]:
    """Yield a producer that holds a mock cluster with the topics, and its address."""
    with mock_kafka(*(topic_name(topic, NAMESPACE) for topic in (MEMBERS, TELEMETRY))) as owner_and_address:
        yield owner_and_address


@pytest.fixture
def owner(cluster: tuple[Producer, str]) -> Producer:
    """Return the producer."""
    return cluster[0]


def add_member(owner: Producer, broker: str) -> None:
    member = Member(broker, MemberState.JOINING, 1, "", facts=BrokerFacts(1.0))
    owner.produce(topic_name(MEMBERS, NAMESPACE), key=broker, value=encode(member), partition=0)
    assert owner.flush(PATIENCE_S) == 0


@pytest.fixture
def watcher(cluster: tuple[Producer, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemberWatcher]:
    """Yield a watcher that asks Kafka with each poll."""
    monkeypatch.setattr(watch_members, "PROVE_S", 0.0)
    monkeypatch.setattr(watch_members, "CALL_S", PATIENCE_S)
    inventory = tmp_path / "inventory.json"
    found = MemberWatcher(
        StreamingSettings(cluster[1], tmp_path / "checkpoint", namespace=NAMESPACE, inventory_path=inventory)
    )
    yield found
    found.close()


def test_members_that_do_not_arrive_are_noticed_and_read_with_another_consumer(
    owner: Producer, watcher: MemberWatcher
) -> None:
    """Otherwise all telemetry of a broker that was added would be refused, in silence."""
    add_member(owner, "x01")
    watcher.read_all(PATIENCE_S)
    health = JobHealth(180.0)
    health.members, health.has_batch = watcher, True
    wait_until(lambda: watcher.poll() or watcher.is_proved)
    assert watcher.agent_of == {"x01": ""}
    assert health().is_ready
    assert ARRIVED in health().proved
    consumer = watcher._consumer
    assert consumer is not None
    consumer.pause(consumer.assignment())
    add_member(owner, "x02")
    for _ in range(MISSES_MAX + 1):
        assert watcher._consumer is consumer
        watcher.poll()
    assert watcher._consumer is not consumer
    assert not health().is_ready
    assert health().notes == ("records of lab.members are not arriving, although Kafka has them",)
    assert health().proved == ()
    wait_until(lambda: watcher.poll() or not watcher.error)
    assert watcher.agent_of == {"x01": "", "x02": ""}
    assert health().is_ready


def test_a_member_that_arrives_before_the_end_of_the_topic_is_stored(
    owner: Producer, watcher: MemberWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka names the end after the records, often only with the next poll; the broker must not be forgotten."""
    monkeypatch.setattr(watch_members, "RECORDS_PER_POLL_MAX", 1)
    add_member(owner, "x01")
    wait_until(watcher.poll)
    assert watcher.agent_of == added_brokers(watcher._settings) == {"x01": ""}
    assert not watcher.poll()


def test_a_kafka_that_does_not_answer_is_no_proof(owner: Producer, watcher: MemberWatcher) -> None:
    """The job is not ready while it cannot know whether brokers were added."""
    watcher.read_all(PATIENCE_S)
    health = JobHealth(180.0)
    health.members, health.has_batch = watcher, True
    watcher.poll()
    assert health().is_ready
    assert watcher._proof is not None
    watcher._proof.ask = lambda reached: False  # type: ignore[method-assign]
    watcher.poll()
    assert not health().is_ready
    assert health().notes == ("Kafka does not say where lab.members ends",)
