"""The controller's ports on Kafka: readers of state and results, the plan store, and the way out for the rest.

Nothing here decides anything. While Kafka is away readers return nothing, the plan store says so and the other
records wait in a bounded buffer; all of them go on by themselves when it is back.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec
import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from infra.dead_letters import RecordDecoder, addressed
from infra.kafka_access import KafkaAccess
from infra.kafka_clients import Option, close_producer, open_consumer, open_producer
from infra.record_writer import RecordWriter
from schemas.audit import AuditEntry
from schemas.codec import encode
from schemas.command import Command
from schemas.dead_letter import DeadLetter
from schemas.event import AdaptationEvent
from schemas.plan import Plan
from schemas.topics import AUDIT, COMMANDS, EVENTS, PLANS, topic_name

log = structlog.get_logger(__name__)

CALL_S = 1.0  # Longest wait for one answer of Kafka, so that the loop stays alive while it is away.
LOAD_S = 10.0  # Longest reading of the plans topic before the attempt is given up and made again.
RETRY_S = 1.0  # Pause between attempts to find a topic.
RECORDS_PER_POLL_MAX = 5000
OUT_BUFFER_MAX = 20_000  # Records that wait while Kafka is away: minutes of events and repeated commands.
OUT_WAIT_S = 120.0  # A record that could not be sent for so long is given up; commands are repeated anyway.

Record = TypeVar("Record", bound=msgspec.Struct)


class RecordSender:
    """Sends commands, events, the audit and dead letters; drops and counts what the bounded buffer cannot hold."""

    def __init__(self, kafka: KafkaAccess, namespace: str) -> None:
        self._namespace = namespace
        self._writer = RecordWriter(kafka, outage_s_max=OUT_WAIT_S, buffer_records_max=OUT_BUFFER_MAX, linger_ms=2)

    @property
    def lost(self) -> Counter[str]:
        """How many records could not be sent, by topic."""
        return self._writer.lost

    @property
    def waiting_count(self) -> int:
        """How many records Kafka has not acknowledged yet."""
        return self._writer.waiting_count

    def send(self, command: Command) -> None:
        """Send a command to its broker."""
        self._write(topic_name(COMMANDS, self._namespace), command.broker, command)

    def emit(self, event: AdaptationEvent) -> None:
        """Send an event."""
        self._write(topic_name(EVENTS, self._namespace), event.subject, event)

    def keep(self, entry: AuditEntry) -> None:
        """Send what came of an order."""
        self._write(topic_name(AUDIT, self._namespace), entry.subject, entry)

    def bury(self, letter: DeadLetter) -> None:
        """Keep a record that could not be used, with the reason."""
        self._write(*addressed(letter, self._namespace))

    def close(self) -> None:
        """Wait a bounded time for what is still to be sent."""
        self._writer.close(CALL_S)

    def _write(self, topic: str, key: str, record: msgspec.Struct) -> None:
        self._writer.write(topic, key, record)
        self._writer.serve()


@dataclass
class TopicReader(Generic[Record]):
    """Reads topics from a point in time on, without group and commits: a restarted reader starts there again.

    ``record_types`` is by topic name; ``since_ms`` is wall-clock time; ``assigned_count`` counts how often it
    has begun. A record that does not decode becomes a dead letter, is counted in ``undecodable`` by topic and is
    skipped.
    """

    kafka: KafkaAccess
    record_types: Mapping[str, type[Record]]
    since_ms: int
    bury: Callable[[DeadLetter], None]

    def __post_init__(self) -> None:
        self._consumer = _consumer(self.kafka)
        self._decoder = RecordDecoder(self.bury)
        self._assigned = False
        self._retry_at_s = 0.0
        self._faults = 0
        self.assigned_count = 0

    @property
    def undecodable(self) -> Counter[str]:
        """How many records did not decode, by topic."""
        return self._decoder.undecodable

    @property
    def is_reading(self) -> bool:
        """Tell whether the topics have been found; records written from then on are not missed."""
        return self._assigned

    @property
    def fault_count(self) -> int:
        """How often reading failed since the start."""
        return self._faults

    def poll(self) -> list[Record]:
        """Return what has come since, at most RECORDS_PER_POLL_MAX records; does not wait."""
        records = [self.decoded(message) for message in self.messages(RECORDS_PER_POLL_MAX)]
        return [record for record in records if record is not None]

    def messages(self, count_max: int) -> list[Message]:
        """Return the messages that have come since, tombstones too, at most ``count_max``; does not wait."""
        if not self._assigned and not self._try_assign():
            return []
        try:
            found = self._consumer.consume(count_max, timeout=0)
        except KafkaException as failure:
            self._tell_fault(str(failure))
            return []
        for error in [message.error() for message in found]:
            if error is not None:
                self._on_error(error)
        return [message for message in found if message.error() is None]

    def decoded(self, message: Message) -> Record | None:
        """Return a message's record; None for a tombstone, and for what does not decode and so became a dead letter."""
        return self._decoder.decode(message, self.record_types[message.topic() or ""])

    def has_read_all(self) -> bool:
        """Tell whether all that the topics hold at this moment has been read; asks Kafka."""
        if not self._assigned:
            return False
        try:
            for part in self._consumer.assignment():
                first, end = self._consumer.get_watermark_offsets(part, timeout=CALL_S)
                if first < end and self._consumer.position([part])[0].offset < end:
                    return False
        except KafkaException as error:
            self._tell_fault(str(error))
            return False
        return True

    def begin_again(self) -> None:
        """Read from the beginning once more, as after a restart."""
        self._consumer.unassign()
        self._assigned = False

    def committed(self, topic: str) -> int | None:
        """Return up to where a topic of one partition was committed, None while Kafka does not say."""
        try:
            (found,) = self._consumer.committed([TopicPartition(topic, 0)], timeout=CALL_S)
            if found.error is not None:
                raise KafkaException(found.error)
        except KafkaException as error:
            self._tell_fault(str(error))
            return None
        return max(found.offset, 0)

    def commit(self, topic: str, offset: int) -> None:
        """Commit up to where a topic of one partition was read; nothing waits for it, and a later one replaces it."""
        try:
            self._consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=True)
        except KafkaException as error:
            self._tell_fault(str(error))

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()

    def _on_error(self, error: KafkaError) -> None:
        self._tell_fault(error.str())
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            # The topic was deleted under us: find it again once it is there, records read twice change nothing.
            self.begin_again()

    def _try_assign(self) -> bool:
        if time.monotonic() < self._retry_at_s:
            return False
        self._retry_at_s = time.monotonic() + RETRY_S
        try:
            found = [part for topic in self.record_types for part in _partitions(self._consumer, topic)]
            timed = [TopicPartition(part.topic, part.partition, self.since_ms) for part in found]
            starts = self._consumer.offsets_for_times(timed, timeout=CALL_S)
            for start in starts:
                if start.offset < 0:  # Nothing that late yet: begin at the present end, found before anything comes.
                    start.offset = self._consumer.get_watermark_offsets(start, timeout=CALL_S)[1]
            self._consumer.assign(starts)
        except KafkaException as error:
            self._tell_fault(str(error))
            return False
        self._assigned = True
        self.assigned_count += 1
        return True

    def _tell_fault(self, reason: str) -> None:
        self._faults += 1
        if self._faults & (self._faults - 1) == 0:
            log.warning("kafka_reading_fails", topics=list(self.record_types), reason=reason, count=self._faults)


class KafkaPlanStore:
    """The plans topic: a plan counts as stored when all in-sync replicas have acknowledged it."""

    def __init__(self, kafka: KafkaAccess, namespace: str, bury: Callable[[DeadLetter], None]) -> None:
        self._kafka = kafka
        self._topic = topic_name(PLANS, namespace)
        self._decoder = RecordDecoder(bury)
        self._producer = self._new_producer()
        self._under_way: Plan | None = None
        self._acknowledged = False

    @property
    def undecodable(self) -> Counter[str]:
        """How many records did not decode, by topic."""
        return self._decoder.undecodable

    def persist(self, plan: Plan) -> bool:
        """Store the plan; wait at most CALL_S for the acknowledgement and tell whether it came.

        Called again with the same plan it goes on waiting for the record under way, so nothing is stored out of order.
        """
        try:
            if self._under_way != plan:
                self._producer.produce(
                    self._topic, key=plan.plan.encode(), value=encode(plan), on_delivery=self._on_delivery
                )
                self._under_way, self._acknowledged = plan, False
            self._producer.flush(CALL_S)
        except (BufferError, KafkaException) as error:
            self._restart(str(error))
            return False
        if self._acknowledged:
            self._under_way, self._acknowledged = None, False
            return True
        return False

    def load(self) -> list[Plan] | None:
        """Return the newest version of each plan from the whole topic; None when it cannot be read to its end."""
        consumer = _consumer(self._kafka, {"enable.partition.eof": True})
        try:
            return self._read_all(consumer)
        except KafkaException as error:
            log.warning("plans_not_read", topic=self._topic, reason=str(error))
            return None
        finally:
            consumer.close()

    def forget(self, plan: str) -> None:
        """Write the plan's tombstone; nothing waits for it before the next plan is stored."""
        try:
            self._producer.produce(self._topic, key=plan.encode(), value=None)
        except (BufferError, KafkaException) as error:
            log.warning("plan_not_forgotten", plan=plan, reason=str(error))

    def close(self) -> None:
        """Wait a bounded time for a record under way, then let it go: the next controller finds what was stored."""
        close_producer(self._producer, CALL_S)

    def _read_all(self, consumer: Consumer) -> list[Plan] | None:
        open_partitions = {part.partition for part in _partitions(consumer, self._topic)}
        consumer.assign([TopicPartition(self._topic, number, OFFSET_BEGINNING) for number in open_partitions])
        found: dict[str, Plan] = {}
        give_up_s = time.monotonic() + LOAD_S
        while open_partitions and time.monotonic() < give_up_s:
            for message in consumer.consume(RECORDS_PER_POLL_MAX, timeout=0.1):
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        open_partitions.discard(message.partition())
                    continue
                if message.value() is None:
                    found.pop((message.key() or b"").decode(errors="replace"), None)
                    continue
                plan = self._decoder.decode(message, Plan)
                if plan is not None:
                    found.pop(plan.plan, None)
                    found[plan.plan] = plan
        return None if open_partitions else list(found.values())

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._acknowledged = True
        else:
            log.warning("plan_not_stored", reason=error.str())
            self._under_way = None  # The next call sends it again.

    def _restart(self, reason: str) -> None:
        """Start a new producer: after a fatal error an idempotent one never sends again."""
        log.warning("plan_producer_restarted", reason=reason)
        close_producer(self._producer, 0.0)
        self._producer = self._new_producer()
        self._under_way = None

    def _new_producer(self) -> Producer:
        return open_producer(self._kafka, {"linger.ms": 0})


def _consumer(kafka: KafkaAccess, more: Mapping[str, Option] | None = None) -> Consumer:
    usual = {
        "queued.max.messages.kbytes": 32_768,
        "fetch.wait.max.ms": 50,  # A marker must not wait half a second in the broker, the default.
    }
    return open_consumer(kafka, {**usual, **(more or {})})


def _partitions(consumer: Consumer, topic: str) -> list[TopicPartition]:
    """Return the topic's partitions; raise KafkaException when it is not there."""
    found = consumer.list_topics(topic, timeout=CALL_S).topics[topic]
    if found.error is not None:
        raise KafkaException(found.error)
    return [TopicPartition(topic, number) for number in sorted(found.partitions)]
