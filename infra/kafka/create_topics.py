"""Create the topics of a table in Kafka, and check those that exist against it.

In: access to Kafka and the table (schemas/topics.py). Out: topics that match the table. Writing to them does not belong
here.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it re-exports them without saying so
    AdminClient,
    ClusterMetadata,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from regraft.infra.kafka.compare_topics import (
    TIMESTAMP_TYPE,
    configuration_of,
    durability_of,
    shape_errors,
    wrong_options,
)
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import is_kafka_ready, open_admin
from regraft.infra.process.stack_error import StackError
from regraft.schemas.texts import name_some
from regraft.schemas.topics import CREATE_TIME, DEFAULT_NAMESPACE, NO_AGENT, TOPICS, Topic, topic_names

TIMEOUT_S = 30.0
SEEN_WAIT_S_MAX = 10.0
MISSING_NAMED_MAX = 3


class TopicMismatchError(StackError):
    """Reports which topic does not match the table, and what to do."""


class TopicsMissingError(StackError):
    """Reports which topics are missing, and what to do."""


def create_topics(
    kafka: KafkaAccess,
    topics: Sequence[Topic] = TOPICS,
    namespace: str = DEFAULT_NAMESPACE,
    agents: Sequence[str] = (NO_AGENT,),
    *,
    partitions: Mapping[Topic, int] = MappingProxyType({}),
) -> list[str]:
    """Create missing topics, including those of each agent, and return their names; check the existing ones.

    New topics get as many replicas as the cluster's brokers allow, at most REPLICAS_WANTED, and the partitions given by
    ``partitions``, else by the table. Raises TopicMismatchError, and StackError if Kafka is unavailable.
    """
    admin = open_admin(kafka, TIMEOUT_S)
    wanted = _named(topics, namespace, agents)
    cluster = _cluster(admin, kafka.bootstrap)
    brokers = len(cluster.brokers)
    fresh = [
        NewTopic(
            name,
            num_partitions=partitions.get(topic, topic.partitions),
            replication_factor=durability_of(brokers).replicas,
            config=configuration_of(topic, brokers),
        )
        for name, topic in wanted.items()
        if name not in cluster.topics
    ]
    created = _create(admin, fresh) if fresh else []
    _wait_seen(admin, kafka.bootstrap, set(wanted))
    _check(kafka, admin, {name: topic for name, topic in wanted.items() if name not in created})
    return created


def require_topics(kafka: KafkaAccess, namespace: str, agents: Sequence[str] = (NO_AGENT,)) -> None:
    """Raise TopicsMissingError, with what to do, unless all topics exist; StackError if Kafka is unavailable."""
    there = _cluster(open_admin(kafka, TIMEOUT_S), kafka.bootstrap).topics
    missing = sorted(_named(TOPICS, namespace, agents).keys() - there.keys())
    if missing:
        raise TopicsMissingError(
            f"Kafka at {kafka.bootstrap} lacks {len(missing)} topics: {name_some(missing, MISSING_NAMED_MAX)}. "
            "Create them with `regraft topics --create`, or start with --create-topics."
        )


def check_topics(
    kafka: KafkaAccess,
    namespace: str,
    agents: Sequence[str] = (NO_AGENT,),
    *,
    is_replay: bool = False,
    timeout_s: float = TIMEOUT_S,
) -> str:
    """Check the existing topics; return why that was not possible, as if Kafka is unavailable, else "".

    Readers wait for missing ones. ``is_replay``: topics keep the recorded times instead of Kafka's. Raises
    TopicMismatchError.
    """
    if not is_kafka_ready(kafka):
        return "Kafka does not answer"  # No stage ends because of that.
    admin = open_admin(kafka, timeout_s)
    try:
        there = _cluster(admin, kafka.bootstrap, timeout_s).topics
        topics = [replace(topic, timestamps=CREATE_TIME) for topic in TOPICS] if is_replay else TOPICS
        names = _named(topics, namespace, agents)
        _check(kafka, admin, {name: topic for name, topic in names.items() if name in there})
    except KafkaException as error:
        return str(error.args[0].str())
    return ""


def count_brokers(kafka: KafkaAccess) -> int:
    """Return how many brokers the cluster has now. Raises StackError if it is unavailable."""
    return len(_cluster(open_admin(kafka, TIMEOUT_S), kafka.bootstrap).brokers)


def timestamp_type(kafka: KafkaAccess, name: str) -> str | None:
    """Return the topic's timestamp type (whose clock stamps its records), None if Kafka does not report it."""
    admin = open_admin(kafka, TIMEOUT_S)
    try:
        [future] = admin.describe_configs(
            [ConfigResource(ResourceType.TOPIC, name)], request_timeout=TIMEOUT_S
        ).values()
        return str(future.result()[TIMESTAMP_TYPE].value)
    except KafkaException:
        return None


def alter_hint(kafka: KafkaAccess, name: str, configuration: Mapping[str, str]) -> str:
    """Return the command that gives a topic this configuration."""
    changes = ",".join(f"{key}={value}" for key, value in configuration.items())
    return f"kafka-configs.sh {_alter(kafka)} --entity-type topics --entity-name {name} --add-config {changes}"


def _alter(kafka: KafkaAccess) -> str:
    return f"--bootstrap-server {kafka.bootstrap} --alter"


def _named(topics: Sequence[Topic], namespace: str, agents: Sequence[str]) -> dict[str, Topic]:
    return {name: topic for topic in topics for name in topic_names(topic, namespace, agents)}


def _cluster(admin: AdminClient, bootstrap: str, timeout_s: float | None = None) -> ClusterMetadata:
    timeout_s = TIMEOUT_S if timeout_s is None else timeout_s
    try:
        return admin.list_topics(timeout=timeout_s)
    except KafkaException as error:
        raise StackError(
            f"Kafka at {bootstrap} did not answer within {timeout_s:g} s ({error.args[0].str()}): "
            "check that it runs and that the address is right."
        ) from error


def _create(admin: AdminClient, fresh: list[NewTopic]) -> list[str]:
    created = []
    for name, future in admin.create_topics(fresh, operation_timeout=TIMEOUT_S).items():
        try:
            future.result()
            created.append(name)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # by another process; checked below
                text = f"Topic {name} could not be created ({error.args[0].str()})"
                raise StackError(f"{text}: {_to_do(error)}.") from error
    return created


def _to_do(error: KafkaException) -> str:
    rights = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
    is_refused = error.args[0].code() in rights
    return "run `regraft topics --create` with a login that may" if is_refused else "see Kafka's log"


def _wait_seen(admin: AdminClient, bootstrap: str, names: set[str]) -> None:
    """Wait until the broker's metadata contain the topics, a moment after Kafka's controller has answered."""
    deadline_s = time.monotonic() + SEEN_WAIT_S_MAX
    while not names <= _cluster(admin, bootstrap).topics.keys():
        if time.monotonic() > deadline_s:
            missing = ", ".join(sorted(names - _cluster(admin, bootstrap).topics.keys()))
            raise StackError(f"Topics {missing} did not appear within {SEEN_WAIT_S_MAX:g} s: see Kafka's log.")
        time.sleep(0.05)


def _check(kafka: KafkaAccess, admin: AdminClient, wanted: dict[str, Topic]) -> None:
    cluster = _cluster(admin, kafka.bootstrap)
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in wanted]
    futures = admin.describe_configs(resources, request_timeout=TIMEOUT_S) if resources else {}
    for resource, future in futures.items():
        name, topic, brokers = resource.name, wanted[resource.name], len(cluster.brokers)
        actual = {key: str(entry.value) for key, entry in future.result().items()}
        partitions = cluster.topics[name].partitions
        replicas = min((len(one.replicas) for one in partitions.values()), default=0)
        wrong = wrong_options(topic, actual, brokers)
        errors = shape_errors(topic, len(partitions), replicas, brokers)
        errors += [f"{key} is {actual.get(key)}, not {value}" for key, value in wrong.items()]
        if errors:
            hints = [alter_hint(kafka, name, wrong)] if wrong else []
            if len(partitions) < topic.partitions:
                hints.append(f"kafka-topics.sh {_alter(kafka)} --topic {name} --partitions {topic.partitions}")
            how = f" ({', '.join(hints)})" if hints else ""
            raise TopicMismatchError(
                f"Topic {name} does not have the configuration that Regraft needs ({'; '.join(errors)}): "
                f"alter it{how} or delete it, or choose another namespace."
            )
