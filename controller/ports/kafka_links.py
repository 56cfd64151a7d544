"""The controller's ports on Kafka: readers of state and results, the plan store, and the way out for the rest.

Nothing here decides anything. While Kafka is away readers return nothing, the plan store says so and the other
records wait in a bounded buffer; all of them go on by themselves when it is back.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec
import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from schemas.codec import UndecodableRecordError, decode, encode
from schemas.command import Command
from schemas.dead_letter import DeadLetter
from schemas.event import AdaptationEvent
from schemas.plan import Plan
from schemas.topics import COMMANDS, DEAD_LETTERS, EVENTS, PLANS, topic_name

log = structlog.get_logger(__name__)

CALL_S = 1.0  # Longest wait for one answer of Kafka, so that the loop stays alive while it is away.
LOAD_S = 10.0  # Longest reading of the plans topic before the attempt is given up and made again.
RETRY_S = 1.0  # Pause between attempts to find a topic.
RECORDS_PER_POLL_MAX = 5000
OUT_BUFFER_MAX = 20_000  # Records that wait while Kafka is away: minutes of events and repeated commands.
LOG_LEVEL = 2  # librdkafka itself writes lines that are no JSON; what fails is told here.
OUT_WAIT_MS = 120_000  # A record that could not be sent for so long is given up; commands are repeated anyway.

Record = TypeVar("Record", bound=msgspec.Struct)


class RecordSender:
    """Sends commands, events and dead letters; drops and counts what the bounded buffer cannot hold."""

    def __init__(self, bootstrap: str, namespace: str) -> None:
        self._namespace = namespace
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 2,
                "queue.buffering.max.messages": OUT_BUFFER_MAX,
                "message.timeout.ms": OUT_WAIT_MS,
                "log_level": LOG_LEVEL,
            }
        )
        self.lost: Counter[str] = Counter()

    @property
    def waiting_count(self) -> int:
        """How many records Kafka has not acknowledged yet."""
        return len(self._producer)

    def send(self, command: Command) -> None:
        """Send a command to its broker."""
        self._produce(topic_name(COMMANDS, self._namespace), command.broker, command)

    def emit(self, event: AdaptationEvent) -> None:
        """Send an event."""
        self._produce(topic_name(EVENTS, self._namespace), event.subject, event)

    def bury(self, letter: DeadLetter) -> None:
        """Keep a record that could not be used, with the reason."""
        self._produce(topic_name(DEAD_LETTERS, self._namespace), letter.topic, letter)

    def close(self) -> None:
        """Wait a bounded time for what is still to be sent."""
        self._producer.flush(CALL_S)

    def _produce(self, topic: str, key: str, record: msgspec.Struct) -> None:
        try:
            self._producer.produce(topic, key=key.encode(), value=encode(record), on_delivery=self._on_delivery)
        except (BufferError, KafkaException) as error:
            self._count_loss(topic, str(error))
        self._producer.poll(0)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._count_loss(message.topic() or "", error.str())

    def _count_loss(self, topic: str, reason: str) -> None:
        self.lost[topic] += 1
        count = self.lost[topic]
        if count & (count - 1) == 0:  # At 1, 2, 4, 8 ...: an outage must not flood the log.
            log.warning("record_not_sent", topic=topic, reason=reason, count=count)


@dataclass
class TopicReader(Generic[Record]):
    """Reads topics from a point in time on, without group and commits: a restarted reader starts there again.

    ``record_types`` is by topic name; ``since_ms`` is wall-clock time. A record that does not decode becomes a dead
    letter, is counted in ``undecodable`` by topic and is skipped.
    """

    bootstrap: str
    record_types: Mapping[str, type[Record]]
    since_ms: int
    bury: Callable[[DeadLetter], None]
    undecodable: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._consumer = _consumer(self.bootstrap)
        self._assigned = False
        self._retry_at_s = 0.0
        self._faults = 0

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
        return _decoded(message, self.record_types[message.topic() or ""], self.bury, self.undecodable)

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

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()

    def _on_error(self, error: KafkaError) -> None:
        self._tell_fault(error.str())
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            # The topic was deleted under us: find it again once it is there, records read twice change nothing.
            self._consumer.unassign()
            self._assigned = False

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
        return True

    def _tell_fault(self, reason: str) -> None:
        self._faults += 1
        if self._faults & (self._faults - 1) == 0:
            log.warning("kafka_reading_fails", topics=list(self.record_types), reason=reason, count=self._faults)


class KafkaPlanStore:
    """The plans topic: a plan counts as stored when all in-sync replicas have acknowledged it."""

    def __init__(self, bootstrap: str, namespace: str, bury: Callable[[DeadLetter], None]) -> None:
        self._bootstrap = bootstrap
        self._topic = topic_name(PLANS, namespace)
        self._bury = bury
        self._producer = self._new_producer()
        self._under_way: Plan | None = None
        self._acknowledged = False
        self.undecodable: Counter[str] = Counter()

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
        consumer = _consumer(self._bootstrap, {"enable.partition.eof": True})
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
        if self._producer.flush(CALL_S):
            self._producer.purge()
            self._producer.flush(0)

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
                plan = _decoded(message, Plan, self._bury, self.undecodable)
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
        self._producer.purge()
        self._producer = self._new_producer()
        self._under_way = None

    def _new_producer(self) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 0,
                "log_level": LOG_LEVEL,
            }
        )


def _consumer(bootstrap: str, more: Mapping[str, object] | None = None) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "regraft-controller",  # The client wants a name; partitions are assigned by hand.
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "queued.max.messages.kbytes": 32_768,
            "log_level": LOG_LEVEL,
            "fetch.wait.max.ms": 50,  # A marker must not wait half a second in the broker, the default.
            **(more or {}),
        }
    )


def _partitions(consumer: Consumer, topic: str) -> list[TopicPartition]:
    """Return the topic's partitions; raise KafkaException when it is not there."""
    found = consumer.list_topics(topic, timeout=CALL_S).topics[topic]
    if found.error is not None:
        raise KafkaException(found.error)
    return [TopicPartition(topic, number) for number in sorted(found.partitions)]


def _decoded(
    message: Message, record_type: type[Record], bury: Callable[[DeadLetter], None], undecodable: Counter[str]
) -> Record | None:
    """Return the message's record, or bury it and return None."""
    value = message.value()
    topic = message.topic() or ""
    if value is None:
        return None  # A tombstone of a compacted topic.
    try:
        return decode(value, record_type)
    except UndecodableRecordError as error:
        undecodable[topic] += 1
        stamp = message.timestamp()[1]
        bury(DeadLetter(topic, message.partition() or 0, message.offset() or 0, str(error), value, stamp))
        return None
