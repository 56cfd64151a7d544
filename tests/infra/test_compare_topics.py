"""A cluster's topics are compared with the table: more is accepted, less is not."""

from dataclasses import replace

import pytest

from regraft.infra.kafka.compare_topics import (
    configuration_of,
    durability_note,
    durability_of,
    shape_errors,
    wrong_options,
)
from regraft.schemas.topics import COMMANDS, LEADER, ORDERS, PLANS, TELEMETRY, TOPICS, WINDOWS


@pytest.mark.parametrize(
    ("brokers", "replicas", "insync_min"), [(0, 1, 1), (1, 1, 1), (2, 2, 1), (3, 3, 2), (4, 3, 2), (9, 3, 2)]
)
def test_acknowledged_records_survive_a_broker_if_there_are_three(brokers: int, replicas: int, insync_min: int) -> None:
    """With fewer brokers they get what is possible, and a message says so."""
    found = durability_of(brokers)
    assert (found.replicas, found.insync_min) == (replicas, insync_min)
    assert bool(durability_note(brokers)) == (brokers < 3)


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.suffix)
def test_a_new_topic_has_no_error(topic: object) -> None:
    """With any number of brokers."""
    for brokers in (1, 2, 3, 5):
        configuration = configuration_of(topic, brokers)  # type: ignore[arg-type]
        assert wrong_options(topic, configuration, brokers) == {}  # type: ignore[arg-type]
        assert shape_errors(topic, topic.partitions, min(brokers, 3), brokers) == []  # type: ignore[attr-defined, arg-type]


def test_more_is_accepted_and_less_is_not() -> None:
    """Of partitions, replicas, in-sync replicas, retention and lag; unlimited exceeds any time."""
    assert shape_errors(TELEMETRY, 12, 5, 3) == []
    assert shape_errors(TELEMETRY, 3, 3, 3) == ["partitions is 3, not 4"]
    assert shape_errors(TELEMETRY, 4, 1, 3) == ["replicas is 1, not 3, with 3 brokers"]
    made = configuration_of(TELEMETRY, 3)
    for retention, is_enough in (("-1", True), ("86400001", True), ("86399999", False), ("", False)):
        wrong = wrong_options(TELEMETRY, made | {"retention.ms": retention}, 3)
        assert ("retention.ms" not in wrong) == is_enough
    assert wrong_options(TELEMETRY, made | {"min.insync.replicas": "3"}, 3) == {}
    assert wrong_options(TELEMETRY, made | {"min.insync.replicas": "1"}, 3) == {"min.insync.replicas": "2"}
    assert wrong_options(ORDERS, configuration_of(ORDERS, 1) | {"min.compaction.lag.ms": "0"}, 1)
    assert wrong_options(PLANS, configuration_of(PLANS, 1) | {"cleanup.policy": "compact,delete"}, 1)


def test_topics_with_one_order_may_not_be_split() -> None:
    """Two partitions of terms would allow two leaders."""
    for topic in (LEADER, PLANS, COMMANDS, ORDERS, WINDOWS):
        assert topic.is_one_log
        assert shape_errors(topic, 2, 1, 1) == ["partitions is 2, not 1, because its records must stay in order"]
    assert not replace(TELEMETRY).is_one_log
