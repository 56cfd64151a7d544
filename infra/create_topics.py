"""Create the topics of a table in Kafka, and check those that exist against it.

In: a way to Kafka and the table (schemas/topics.py). Out: topics that are as the table says. Writing to them does
not belong here. ``python -m infra.create_topics`` does it for the cluster in ``REGRAFT_KAFKA_BOOTSTRAP``.
"""

import os
import sys
import time
from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it re-exports them without saying so
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from infra.kafka_access import KafkaAccess
from infra.kafka_clients import open_admin
from infra.stack_error import StackError
from schemas.topics import DEFAULT_NAMESPACE, TOPICS, Topic, topic_name

TIMEOUT_S = 30.0
TIMESTAMP_TYPE = "message.timestamp.type"
SEEN_WAIT_S_MAX = 10.0
COMPACTED_SEGMENT_BYTES = 8 * 1024 * 1024  # only closed segments are compacted: small ones close during a short run


class TopicMismatchError(StackError):
    """Say which topic is not as the table has it, and what to do."""


def create_topics(
    kafka: KafkaAccess, topics: Sequence[Topic] = TOPICS, namespace: str = DEFAULT_NAMESPACE, *, replicas: int = -1
) -> list[str]:
    """Create the topics that are missing and return their names; check those that exist.

    ``replicas`` -1 leaves the number to the cluster. Raises TopicMismatchError, and StackError when Kafka is away.
    """
    bootstrap, admin = kafka.bootstrap, open_admin(kafka, TIMEOUT_S)
    wanted = {topic_name(topic, namespace): topic for topic in topics}
    existing = _partitions(admin, bootstrap)
    fresh = [
        NewTopic(name, num_partitions=topic.partitions, replication_factor=replicas, config=_configuration(topic))
        for name, topic in wanted.items()
        if name not in existing
    ]
    created = _create(admin, fresh) if fresh else []
    _wait_seen(admin, bootstrap, set(wanted))
    _check(
        kafka,
        admin,
        {name: topic for name, topic in wanted.items() if name not in created},
        _partitions(admin, bootstrap),
    )
    return created


def timestamp_type(kafka: KafkaAccess, name: str) -> str | None:
    """Return whose clock gives the topic's records their time, None where Kafka does not say."""
    admin = open_admin(kafka, TIMEOUT_S)
    try:
        [future] = admin.describe_configs(
            [ConfigResource(ResourceType.TOPIC, name)], request_timeout=TIMEOUT_S
        ).values()
        return str(future.result()[TIMESTAMP_TYPE].value)
    except KafkaException:
        return None


def alter_hint(kafka: KafkaAccess, name: str, configuration: Mapping[str, str]) -> str:
    """Return the command that alters a topic so."""
    changes = ",".join(f"{key}={value}" for key, value in configuration.items())
    return (
        f"kafka-configs.sh --bootstrap-server {kafka.bootstrap} --alter --entity-type topics --entity-name {name} "
        f"--add-config {changes}"
    )


def _configuration(topic: Topic) -> dict[str, str]:
    found = {TIMESTAMP_TYPE: topic.timestamps} if topic.timestamps else {}
    if topic.retention_ms is not None:
        return {**found, "cleanup.policy": "delete", "retention.ms": str(topic.retention_ms)}
    if topic.compaction_lag_ms:
        found["min.compaction.lag.ms"] = str(topic.compaction_lag_ms)
    return {**found, "cleanup.policy": "compact", "segment.bytes": str(COMPACTED_SEGMENT_BYTES)}


def _partitions(admin: AdminClient, bootstrap: str) -> dict[str, int]:
    try:
        found = admin.list_topics(timeout=TIMEOUT_S).topics
    except KafkaException as error:
        raise StackError(
            f"Kafka at {bootstrap} did not answer within {TIMEOUT_S:g} s ({error.args[0].str()}): "
            "check that it runs and that the address is right."
        ) from error
    return {name: len(topic.partitions) for name, topic in found.items()}


def _create(admin: AdminClient, fresh: list[NewTopic]) -> list[str]:
    created = []
    for name, future in admin.create_topics(fresh, operation_timeout=TIMEOUT_S).items():
        try:
            future.result()
            created.append(name)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another process was quicker: check it below
                raise StackError(
                    f"Topic {name} could not be created ({error.args[0].str()}): ask Kafka's log."
                ) from error
    return created


def _wait_seen(admin: AdminClient, bootstrap: str, names: set[str]) -> None:
    """Wait until the broker's metadata show the topics: it learns of them a moment after the controller's answer."""
    deadline_s = time.monotonic() + SEEN_WAIT_S_MAX
    while not names <= _partitions(admin, bootstrap).keys():
        if time.monotonic() > deadline_s:
            missing = ", ".join(sorted(names - _partitions(admin, bootstrap).keys()))
            raise StackError(f"Topics {missing} did not appear within {SEEN_WAIT_S_MAX:g} s: ask Kafka's log.")
        time.sleep(0.05)


def _check(kafka: KafkaAccess, admin: AdminClient, wanted: dict[str, Topic], partitions: dict[str, int]) -> None:
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in wanted]
    futures = admin.describe_configs(resources, request_timeout=TIMEOUT_S) if resources else {}
    for resource, future in futures.items():
        name, topic, found = resource.name, wanted[resource.name], future.result()
        expected = {"partitions": str(topic.partitions), **_configuration(topic)}
        expected.pop("segment.bytes", None)  # a size to taste, not a promise
        actual = {"partitions": str(partitions[name]), **{key: entry.value for key, entry in found.items()}}
        wrong = {key: value for key, value in expected.items() if actual[key] != value}
        if wrong:
            faults = "; ".join(f"{key} is {actual[key]}, not {value}" for key, value in wrong.items())
            wrong.pop("partitions", None)  # no configuration
            how = f" ({alter_hint(kafka, name, wrong)})" if wrong else ""
            raise TopicMismatchError(
                f"Topic {name} is not as schemas/topics.py has it ({faults}): "
                f"alter it{how} or delete it, or choose another namespace."
            )


def main() -> None:
    """Create the project's topics in the cluster that ``REGRAFT_KAFKA_BOOTSTRAP`` names."""
    bootstrap = os.environ.get("REGRAFT_KAFKA_BOOTSTRAP")
    if not bootstrap:
        sys.exit("REGRAFT_KAFKA_BOOTSTRAP is not set: name the cluster, for example 127.0.0.1:9092.")
    try:
        create_topics(KafkaAccess(bootstrap))
    except StackError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
