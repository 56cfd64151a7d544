"""Restore what a controller must not lose from a backup: plans, terms, members, registers, alerts and the audit.

In: a recording made by `regraft backup`, access to Kafka. Out: records in empty topics, in one transaction. What
brokers hold beyond the backup is found by :mod:`controller.ports.recover_plans`.

Orders are not restored: an order is followed only if Kafka's own clock shows that it was stored when it was signed, so
a copy has no effect. The outcome lists those in force.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException, Producer

from regraft.controller.ports.plan_store import writer_id
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import SENT_BYTES_MAX, open_transactional_producer
from regraft.infra.kafka.read_messages import count_records
from regraft.infra.process.stack_error import StackError
from regraft.producers.recordings.read_recording import RecordedMessage, Recording, open_recording
from regraft.schemas.codec import UndecodableRecordError, decode
from regraft.schemas.order import Order
from regraft.schemas.order_book import OrderBook
from regraft.schemas.topics import (
    ALERTS,
    AUDIT,
    CLIENTS,
    LEADER,
    MEMBERS,
    ORDERS,
    PLANS,
    SAMPLING,
    TOPICS,
    topic_name,
)

RESTORED = (LEADER, MEMBERS, SAMPLING, CLIENTS, ALERTS, AUDIT, PLANS)
BACKED_UP = (*RESTORED, ORDERS)
CALL_S = 30.0
TRANSACTION_MS = 300_000


class RestoreError(StackError):
    """A backup cannot be restored; the message says why."""


@dataclass(frozen=True, slots=True)
class Backup:
    """What a backup holds for the topics of a namespace; ``orders`` are those in force, as commands to give again."""

    messages: tuple[RecordedMessage, ...]
    last_ms: int
    orders: tuple[str, ...]

    @property
    def counts(self) -> Counter[str]:
        """The number of records by topic."""
        return Counter(message.topic for message in self.messages)


def open_backup(file: Path, namespace: str, now_ms: int) -> Backup:
    """Return what a backup holds. Raises RestoreError, and RecordingError if it is not a recording."""
    recording = open_recording(file)
    if recording.info.namespace != namespace:
        raise RestoreError(
            f"{file} is of namespace {recording.info.namespace}, but kafka.namespace is {namespace}: set "
            "kafka.namespace to that of the backup."
        )
    missing = {topic.suffix for topic in BACKED_UP} - set(recording.info.topics)
    if missing:
        raise RestoreError(f"{file} lacks {', '.join(sorted(missing))}: only backups can be restored.")
    messages = tuple(_newest(recording))
    if recording.warnings:
        raise RestoreError(f"{file} is incomplete: {recording.warnings[0]} Restore an earlier backup.")
    return Backup(messages, recording.last_ms or 0, _orders_in_force(recording, now_ms))


def restore(kafka: KafkaAccess, namespace: str, backup: Backup, show: Callable[[int], None]) -> None:
    """Write a backup into the topics, which must exist and be empty, in one transaction.

    ``show`` is called with the number of records so far. Raises RestoreError; nothing is written then.
    """
    names = {topic.suffix: topic_name(topic, namespace) for topic in RESTORED}
    options = {"queue.buffering.max.messages": 2_000_000, "message.max.bytes": SENT_BYTES_MAX + 50_000}
    producer = open_transactional_producer(kafka, writer_id(namespace), TRANSACTION_MS, options)
    try:
        for name in names.values():
            _require_empty(kafka, name)
        producer.init_transactions(CALL_S)
        producer.begin_transaction()
        for count, message in enumerate(backup.messages, 1):
            _produce(producer, names[message.topic], message)
            if count % 1_000 == 0:
                show(count)
        producer.commit_transaction(TRANSACTION_MS / 1_000)
    except KafkaException as error:
        raise RestoreError(
            f"Kafka at {kafka.bootstrap} did not store the backup ({error.args[0].str()}): nothing was restored."
        ) from error
    show(len(backup.messages))


def _require_empty(kafka: KafkaAccess, name: str) -> None:
    if held := count_records(kafka, [name]):
        raise RestoreError(
            f"{name} at {kafka.bootstrap} already holds {held} records, and a backup needs empty topics. Stop all "
            "stages, delete the topics of the namespace, and create them with `regraft topics --create`."
        )


def _produce(producer: Producer, name: str, message: RecordedMessage) -> None:
    while True:
        try:
            producer.produce(name, key=message.key, value=message.value, partition=0, timestamp=message.time_ms)
        except BufferError:  # Kafka is slower than the file: wait until there is room.
            producer.poll(0.1)
            continue
        producer.poll(0)
        return


def _newest(recording: Recording) -> list[RecordedMessage]:
    """Return the newest record of each key in compacted topics, and all of the others, in the topics' order."""
    kept: dict[str, dict[object, RecordedMessage]] = {topic.suffix: {} for topic in RESTORED}
    compacted = {topic.suffix for topic in TOPICS if topic.compacted}
    for number, message in enumerate(recording.messages(set(kept))):
        newest, key = kept[message.topic], message.key if message.topic in compacted else number
        newest.pop(key, None)  # The newest version moves to the end.
        newest[key] = message
    return [message for topic in RESTORED for message in kept[topic.suffix].values() if message.value is not None]


def _orders_in_force(recording: Recording, now_ms: int) -> tuple[str, ...]:
    """Return the pauses and maintenances in force, as commands."""
    book = OrderBook()
    for message in recording.messages({ORDERS.suffix}):
        with suppress(UndecodableRecordError):  # Writers of orders may write anything.
            if message.value is not None:
                book.take(decode(message.value, Order))
    in_force = book.in_force(now_ms)
    commands = [f"regraft pause --reason {in_force.paused.reason!r}"] if in_force.paused is not None else []
    return (
        *commands,
        *(
            f"regraft members maintain {one.broker}{' --evacuate' * one.evacuate} --reason {one.reason!r}"
            for one in in_force.maintenance
        ),
    )
