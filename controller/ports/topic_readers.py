"""The controller's readers on Kafka, and the sender of dead letters for records that they cannot use.

Nothing here makes decisions. While Kafka is unavailable, readers return nothing and dead letters wait in a bounded
buffer; both resume by themselves. What the controller writes belongs to :mod:`controller.ports.plan_store`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec
import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from regraft.controller.ports.plan_store import KafkaPlanStore
from regraft.infra.kafka.dead_letters import RecordDecoder, addressed
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import Option, open_consumer
from regraft.infra.kafka.read_messages import names_found
from regraft.infra.kafka.record_writer import RecordWriter
from regraft.infra.process.handle_each import is_logged
from regraft.schemas.announcement import Announcement, announcement_error
from regraft.schemas.command import CommandResult
from regraft.schemas.dead_letter import DeadLetter
from regraft.schemas.topics import ANNOUNCEMENTS, RESULTS

SEARCH_S = 10.0  # Between two searches for topics of new agents: each asks Kafka for all its topics.


log = structlog.get_logger(__name__)

CALL_S = 1.0  # Longest wait for one answer of Kafka, so that the loop stays alive while Kafka is unavailable.
RETRY_S = 1.0  # Pause between attempts to find a topic.
RECORDS_PER_POLL_MAX = 5000
OUT_BUFFER_MAX = 20_000  # Dead letters that wait while Kafka is unavailable.
OUT_WAIT_S = 120.0  # A letter that could not be sent for this long is dropped.

Record = TypeVar("Record", bound=msgspec.Struct)


class LetterSender:
    """Sends dead letters; drops and counts what the bounded buffer cannot hold."""

    def __init__(self, kafka: KafkaAccess, namespace: str) -> None:
        self._namespace = namespace
        self._writer = RecordWriter(kafka, outage_s_max=OUT_WAIT_S, buffer_records_max=OUT_BUFFER_MAX, linger_ms=2)

    @property
    def lost(self) -> Counter[str]:
        """The number of records that could not be sent, by topic."""
        return self._writer.lost

    @property
    def waiting_count(self) -> int:
        """The number of records that Kafka has not acknowledged yet."""
        return self._writer.waiting_count

    def send(self, letter: DeadLetter) -> None:
        """Send a record that could not be used to the dead letters, with the reason."""
        self._writer.write(*addressed(letter, self._namespace))
        self._writer.serve()

    def close(self) -> None:
        """Wait a bounded time for unsent letters."""
        self._writer.close(CALL_S)


@dataclass
class TopicReader(Generic[Record]):
    """Reads topics from a point in time on, without group and commits: a restarted reader starts there again.

    ``record_types`` is by topic name; ``since_ms`` is wall-clock time; ``assigned_count`` counts how often it has
    begun. A record that does not decode becomes a dead letter, is counted in ``undecodable`` by topic and is skipped,
    and so is one that ``error`` (topic, record) rejects with a reason. ``on_time`` gets the newest timestamp of each
    read to the end, once all that was there at the start has been read.
    """

    kafka: KafkaAccess
    record_types: Mapping[str, type[Record]]
    since_ms: int
    on_letter: Callable[[DeadLetter], None]
    error: Callable[[str, Record], str] | None = None
    on_time: Callable[[int], None] | None = None

    def __post_init__(self) -> None:
        self._consumer = _consumer(self.kafka)
        self._decoder = RecordDecoder(self.on_letter, self.error)
        self._assigned = False
        self._awaited: dict[str, type[Record]] = {}
        self._unread: set[tuple[str, int]] = set()
        self._retry_at_s = 0.0
        self._errors = 0
        self.assigned_count = 0

    @property
    def undecodable(self) -> Counter[str]:
        """The number of records that did not decode, by topic."""
        return self._decoder.undecodable

    @property
    def is_reading(self) -> bool:
        """Return True if the topics have been found; records written from then on are not missed."""
        return self._assigned

    @property
    def error_count(self) -> int:
        """The number of read errors since the start."""
        return self._errors

    def poll(self) -> list[Record]:
        """Return new records, at most RECORDS_PER_POLL_MAX; does not wait."""
        records = [self.decoded(message) for message in self.messages(RECORDS_PER_POLL_MAX)]
        return [record for record in records if record is not None]

    def add_topics(self, record_types: Mapping[str, type[Record]]) -> None:
        """Read these topics, too, from the same time on, each as soon as it exists; the others do not wait for it."""
        self._awaited = {
            name: record_type for name, record_type in record_types.items() if name not in self.record_types
        }

    def messages(self, count_max: int) -> list[Message]:
        """Return new messages, including tombstones, at most ``count_max``; does not wait."""
        if not self._assigned and not self._try_assign():
            return []
        if self._awaited:
            self._try_awaited()
        try:
            messages = self._consumer.consume(count_max, timeout=0)
        except KafkaException as failure:
            self._report_error(str(failure))
            return []
        for message in messages:
            if (error := message.error()) is not None:
                self._on_error(error, (message.topic() or "", message.partition() or 0))
        usable = [message for message in messages if message.error() is None]
        if self.on_time is not None and 0 < len(usable) < count_max and self.has_read_all():
            self.on_time(max(message.timestamp()[1] for message in usable))
        return usable

    def decoded(self, message: Message) -> Record | None:
        """Return a message's record; None for a tombstone, and for a record that became a dead letter."""
        return self._decoder.decode(message, self.record_types[message.topic() or ""])

    def has_read_all(self) -> bool:
        """Return True if the end of each topic has been reached once since the start.

        The end is compared with the reader's position: transaction markers take offsets, too, and are not messages.
        """
        return self._assigned and not self._unread

    def start_over(self) -> None:
        """Read from the beginning again, as after a restart."""
        self._consumer.unassign()
        self._assigned = False

    def committed(self, topic: str) -> int | None:
        """Return the committed offset of a topic with one partition, or None while Kafka does not answer."""
        try:
            (position,) = self._consumer.committed([TopicPartition(topic, 0)], timeout=CALL_S)
            if position.error is not None:
                raise KafkaException(position.error)
        except KafkaException as error:
            self._report_error(str(error))
            return None
        return max(position.offset, 0)

    def commit(self, topic: str, offset: int) -> None:
        """Commit the offset of a topic with one partition, without waiting; a later commit replaces it."""
        try:
            self._consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=True)
        except KafkaException as error:
            self._report_error(str(error))

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def _on_error(self, error: KafkaError, place: tuple[str, int]) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            self._unread.discard(place)
            return
        self._report_error(error.str())
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            # The topic was deleted: find it once it exists again; records read twice change nothing.
            self.start_over()

    def _try_assign(self) -> bool:
        if time.monotonic() < self._retry_at_s:
            return False
        self._retry_at_s = time.monotonic() + RETRY_S
        try:
            starts = [start for topic in self.record_types for start in self._starts(topic)]
            self._consumer.assign(starts)
        except KafkaException as error:
            self._report_error(str(error))
            return False
        self._unread = {(start.topic, start.partition) for start in starts}
        self._assigned = True
        self.assigned_count += 1
        return True

    def _try_awaited(self) -> None:
        """Begin to read the awaited topics that exist by now."""
        if time.monotonic() < self._retry_at_s:
            return
        self._retry_at_s = time.monotonic() + RETRY_S
        for topic in list(self._awaited):
            try:
                starts = self._starts(topic)
                self._consumer.incremental_assign(starts)
            except KafkaException as error:
                self._report_error(f"{topic}: {error}")
                continue
            self._unread |= {(start.topic, start.partition) for start in starts}
            self.record_types = {**self.record_types, topic: self._awaited.pop(topic)}

    def _starts(self, topic: str) -> list[TopicPartition]:
        """Return where to begin in a topic. Raises KafkaException.

        The end is asked first: a record written between the two questions has a higher offset, and is found by its time
        or read from that end on. The other way round it would never be read.
        """
        parts = _partitions(self._consumer, topic)
        ends = [self._consumer.get_watermark_offsets(part, timeout=CALL_S)[1] for part in parts]
        timed = [TopicPartition(topic, part.partition, self.since_ms) for part in parts]
        starts: list[TopicPartition] = self._consumer.offsets_for_times(timed, timeout=CALL_S)
        for start, end in zip(starts, ends, strict=True):
            if start.error is not None:
                raise KafkaException(start.error)
            if start.offset < 0:  # No record that late yet.
                start.offset = end
        return starts

    def _report_error(self, reason: str) -> None:
        self._errors += 1
        if is_logged(self._errors):
            log.warning("kafka_read_failed", topics=list(self.record_types), reason=reason, count=self._errors)


def _consumer(kafka: KafkaAccess) -> Consumer:
    options: dict[str, Option] = {
        "queued.max.messages.kbytes": 32_768,
        "fetch.wait.max.ms": 50,  # The default, half a second in the broker, would delay markers.
        "enable.partition.eof": True,
    }
    return open_consumer(kafka, options)


def _partitions(consumer: Consumer, topic: str) -> list[TopicPartition]:
    """Return the topic's partitions. Raises KafkaException if it does not exist."""
    metadata = consumer.list_topics(topic, timeout=CALL_S).topics[topic]
    if metadata.error is not None:
        raise KafkaException(metadata.error)
    return [TopicPartition(topic, number) for number in sorted(metadata.partitions)]


class AnnouncementReader(TopicReader[Announcement]):
    """A reader of announcements that finds the topics itself, because new agents are not configured."""

    def __init__(
        self, kafka: KafkaAccess, plans: KafkaPlanStore, since_ms: int, on_letter: Callable[[DeadLetter], None]
    ) -> None:
        super().__init__(kafka, {}, since_ms, on_letter, self._error)
        self._plans = plans
        self._search_at_s = 0.0

    def poll(self) -> list[Announcement]:
        """Return new announcements; an agent's topic is read as soon as it exists."""
        if time.monotonic() >= self._search_at_s:
            self._search_at_s = time.monotonic() + SEARCH_S
            self.add_topics(dict.fromkeys(self._names(), Announcement))
        return super().poll()

    def start_over(self) -> None:
        """Search for the topics again: that of a removed agent must not block reading the others."""
        super().start_over()
        self.record_types, self._search_at_s = {}, 0.0

    def _names(self) -> list[str]:
        try:
            return names_found(self._consumer, ANNOUNCEMENTS, self._plans.topics.namespace, CALL_S)
        except KafkaException as error:
            self._report_error(str(error))
            return []

    def _error(self, name: str, announcement: Announcement) -> str:
        topics = self._plans.topics
        return announcement_error(topics.namespace, name, announcement, topics.agent_of.get(announcement.broker))


class ResultReader(TopicReader[CommandResult]):
    """A reader of answers that follows the members."""

    def __init__(
        self, kafka: KafkaAccess, plans: KafkaPlanStore, since_ms: int, on_letter: Callable[[DeadLetter], None]
    ) -> None:
        super().__init__(
            kafka,
            dict.fromkeys(plans.topics.names(RESULTS), CommandResult),
            since_ms,
            on_letter,
            lambda name, result: plans.topics.error(name, result.broker),
        )
        self._plans = plans

    def poll(self) -> list[CommandResult]:
        """Return new answers; an agent's topic is read as soon as it exists."""
        self.add_topics(dict.fromkeys(self._plans.topics.names(RESULTS), CommandResult))
        return super().poll()
