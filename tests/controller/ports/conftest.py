"""Separate topics for each test on a real Kafka."""

import pytest

from regraft.infra.kafka.create_topics import create_topics
from regraft.infra.local.kafka_server import RunningKafka


@pytest.fixture
def namespace(kafka: RunningKafka, request: pytest.FixtureRequest) -> str:
    """The test's namespace, with its topics."""
    name = request.node.name.replace("_", "-")[:40]
    create_topics(kafka.access, namespace=name)
    return name
