"""A real Kafka for each file of tests, and separate topics for each test."""

from collections.abc import Iterator

import pytest

from regraft.infra.kafka.create_topics import create_topics
from regraft.infra.local.kafka_server import RunningKafka, start_kafka


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningKafka]:
    """One broker."""
    with start_kafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture
def namespace(kafka: RunningKafka, request: pytest.FixtureRequest) -> str:
    """The test's namespace, with its topics."""
    name = request.node.name.replace("_", "-")[:40]
    create_topics(kafka.access, namespace=name)
    return name
