"""Announcements on a real broker: read from agents unknown before, each only for its own brokers."""

import pytest

from regraft.controller.ports.plan_store import KafkaPlanStore
from regraft.controller.ports.topic_readers import AnnouncementReader
from regraft.infra.kafka.create_topics import create_topics
from regraft.infra.kafka.kafka_clients import open_admin, open_producer
from regraft.infra.local.kafka_server import RunningKafka
from regraft.schemas.announcement import Announcement
from regraft.schemas.codec import encode
from regraft.schemas.dead_letter import DeadLetter
from regraft.schemas.member import BrokerFacts
from regraft.schemas.topics import ANNOUNCEMENTS, NO_AGENT, topic_name
from tests.wait_until import wait_until

pytestmark = pytest.mark.stack
NAMED = {"b00": "west", "b01": "west"}


def test_new_agents_are_read_but_only_for_their_own_brokers(
    kafka: RunningKafka, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent's topic may appear and vanish meanwhile; an announcement in another's name is a dead letter."""
    monkeypatch.setattr("regraft.controller.ports.topic_readers.SEARCH_S", 0.0)
    letters: list[DeadLetter] = []
    store = KafkaPlanStore(kafka.access, namespace, NAMED)  # read-only
    reader, producer = AnnouncementReader(kafka.access, store, 0, letters.append), open_producer(kafka.access)
    found: list[str] = []

    def announce(agent_of_topic: str, broker: str, agent: str) -> None:
        announcement = Announcement(broker, BrokerFacts(agent=agent), 5)
        topic = topic_name(ANNOUNCEMENTS, namespace, agent_of_topic)
        producer.produce(topic, key=broker, value=encode(announcement))
        assert producer.flush(30.0) == 0

    def announced() -> list[str]:
        found.extend(one.broker for one in reader.poll())
        return found

    announce(NO_AGENT, "x00", NO_AGENT)
    wait_until(lambda: announced() == ["x00"])
    create_topics(kafka.access, namespace=namespace, agents=("east",))
    announce("east", "b00", "east")  # West's broker
    announce("east", "x01", "west")
    announce("east", "x02", "east")
    wait_until(lambda: announced() == ["x00", "x02"])
    assert [letter.topic for letter in letters] == [f"{namespace}.announcements.east"] * 2
    assert "but agent 'west' speaks for it" in letters[0].reason
    assert "for agent 'west', but not in that agent's topic" in letters[1].reason
    gone, admin = f"{namespace}.announcements.east", open_admin(kafka.access, 30.0)
    admin.delete_topics([gone])[gone].result()
    announce(NO_AGENT, "x03", NO_AGENT)
    wait_until(lambda: announced()[-1] == "x03")
    reader.close()
    store.close()
