"""Compare a topic in a cluster with the table of topics: more than the table requires is accepted, less is not.

Pure; querying Kafka belongs to :mod:`infra.kafka.create_topics`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from regraft.schemas.topics import Topic

TIMESTAMP_TYPE = "message.timestamp.type"
MIN_INSYNC = "min.insync.replicas"
COMPACTED_SEGMENT_BYTES = 8 * 1024 * 1024  # Only closed segments are compacted, and small ones close sooner.
REPLICAS_WANTED = 3
AT_LEAST = ("retention.ms", "min.compaction.lag.ms", MIN_INSYNC)
NOT_CHECKED = ("segment.bytes",)
UNLIMITED = "-1"


@dataclass(frozen=True, slots=True)
class Durability:
    """How many brokers keep a record, and how many of them must have it before it counts as written."""

    replicas: int
    insync_min: int


def durability_of(broker_count: int) -> Durability:
    """Return what this many brokers can promise; with three, losing one of them loses no acknowledged record."""
    replicas = min(max(broker_count, 1), REPLICAS_WANTED)
    return Durability(replicas, 2 if replicas >= REPLICAS_WANTED else 1)


def durability_note(broker_count: int) -> str:
    """Describe what is at risk with this many brokers, empty if nothing is."""
    durability = durability_of(broker_count)
    if durability.replicas >= REPLICAS_WANTED:
        return ""
    return (
        f"Kafka has {broker_count} of {REPLICAS_WANTED} brokers, so topics get {durability.replicas} of "
        f"{REPLICAS_WANTED} replicas, and losing one broker can lose acknowledged plans and orders."
    )


def configuration_of(topic: Topic, broker_count: int) -> dict[str, str]:
    """Return the configuration of a new topic."""
    options = {MIN_INSYNC: str(durability_of(broker_count).insync_min)}
    if topic.timestamps:
        options[TIMESTAMP_TYPE] = topic.timestamps
    if topic.retention_ms is not None:
        return {**options, "cleanup.policy": "delete", "retention.ms": str(topic.retention_ms)}
    if topic.compaction_lag_ms:
        options["min.compaction.lag.ms"] = str(topic.compaction_lag_ms)
    return {**options, "cleanup.policy": "compact", "segment.bytes": str(COMPACTED_SEGMENT_BYTES)}


def shape_errors(topic: Topic, partitions: int, replicas: int, broker_count: int) -> list[str]:
    """Return what is wrong with the number of partitions and replicas, one phrase each."""
    errors = []
    if partitions < topic.partitions:
        errors.append(f"partitions is {partitions}, not {topic.partitions}")
    if partitions > topic.partitions and topic.is_one_log:
        errors.append(f"partitions is {partitions}, not {topic.partitions}, because its records must stay in order")
    wanted = durability_of(broker_count).replicas
    if replicas < wanted:
        errors.append(f"replicas is {replicas}, not {wanted}, with {broker_count} brokers")
    return errors


def wrong_options(topic: Topic, actual: Mapping[str, str], broker_count: int) -> dict[str, str]:
    """Return the options whose actual values promise less, or something else, with the values they should have."""
    wanted = configuration_of(topic, broker_count)
    return {name: value for name, value in wanted.items() if not _is_enough(name, value, actual.get(name, ""))}


def _is_enough(name: str, wanted: str, actual: str) -> bool:
    if name in NOT_CHECKED or actual == wanted:
        return True
    if name not in AT_LEAST or not actual.lstrip("-").isdigit():
        return False
    return int(actual) >= int(wanted) or (name == "retention.ms" and actual == UNLIMITED)
