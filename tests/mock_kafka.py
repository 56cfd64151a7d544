"""A Kafka in memory: librdkafka's mock cluster, which lives as long as a producer."""

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

from tests.wait_until import PATIENCE_S


@contextmanager
def mock_kafka(*topics: str) -> Iterator[tuple[Producer, str]]:
    """Yield the producer and the cluster's address; these topics exist, and others once they are made."""
    owner = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "ignored", "log_level": 0})
    broker = next(iter(owner.list_topics(timeout=PATIENCE_S).brokers.values()))
    make_topics(owner, *topics)
    yield owner, f"{broker.host}:{broker.port}"
    owner.flush(1)


def make_topics(owner: Producer, *topics: str) -> None:
    """Make topics: the cluster does so when it is asked for them."""
    for topic in topics:
        owner.list_topics(topic, timeout=PATIENCE_S)
