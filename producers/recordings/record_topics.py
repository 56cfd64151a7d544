"""Read Kafka topics from a position on and pass every message to a recording, until asked to stop.

In: a bootstrap address, a namespace, topics. Out: calls of a RecordingWriter, and progress. While Kafka is unavailable,
nothing is lost: reading resumes where it was. The files belong to :mod:`producers.recordings.write_recording`.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import structlog
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import Option, report_error
from regraft.infra.kafka.prove_reading import CALL_S, ProvedReader
from regraft.infra.process.serve_metrics import Health, Pulse
from regraft.infra.process.stack_error import StackError
from regraft.infra.process.stage_metrics import StageMetrics
from regraft.producers.recordings.write_recording import RecordingWriter
from regraft.schemas.alert import Alert
from regraft.schemas.announcement import Announcement
from regraft.schemas.audit import AuditEntry
from regraft.schemas.client import Client
from regraft.schemas.command import Command, CommandResult
from regraft.schemas.event import AdaptationEvent
from regraft.schemas.leader import LeaderTerm
from regraft.schemas.member import Member
from regraft.schemas.order import Order
from regraft.schemas.plan import Plan
from regraft.schemas.sample_request import SampleRequest
from regraft.schemas.state import StateRow, WindowClosed
from regraft.schemas.telemetry import TelemetryBatch
from regraft.schemas.topics import (
    ALERTS,
    ANNOUNCEMENTS,
    AUDIT,
    CLIENTS,
    COMMANDS,
    EVENTS,
    LEADER,
    MEMBERS,
    NO_AGENT,
    ORDERS,
    PLANS,
    RESULTS,
    SAMPLING,
    STATE,
    TELEMETRY,
    WINDOWS,
    Topic,
    topic_names,
)

RECORD_TYPES: dict[Topic, type[msgspec.Struct]] = {
    TELEMETRY: TelemetryBatch,
    CLIENTS: Client,
    STATE: StateRow,
    WINDOWS: WindowClosed,
    COMMANDS: Command,
    RESULTS: CommandResult,
    PLANS: Plan,
    EVENTS: AdaptationEvent,
    LEADER: LeaderTerm,
    MEMBERS: Member,
    SAMPLING: SampleRequest,
    ANNOUNCEMENTS: Announcement,
    ORDERS: Order,
    AUDIT: AuditEntry,
    ALERTS: Alert,
}
log = structlog.get_logger(__name__)

INPUT_TOPICS = (TELEMETRY, CLIENTS)  # Required by replay and backtest.

MESSAGES_PER_POLL_MAX = 10_000
CHECKED_PER_POLL_MAX = 1_000  # A larger poll is a backlog: there is no time to check each value.
POLL_S = 0.1
CONNECT_S_MAX = 5.0
RETRY_S = 0.2
CHECK_S = 10.0  # Between checks for topics that did not exist before.
PROVE_S = 5.0  # Between questions to Kafka where a partition ends.
SHOW_S = 1.0
QUEUE_KBYTES_MAX = 131_072

Show = Callable[["RecordingProgress"], None]
SILENCE_S_MAX = 60.0  # Of the loop; Kafka's answers, the slowest part, are awaited for some seconds.
PROOF_S_MAX = 60.0


class RecorderMetrics:
    """The Prometheus metrics of a recording; names start with ``regraft_recorder_``."""

    def __init__(self) -> None:
        self.stage = StageMetrics("recorder")
        self.registry = self.stage.registry
        gauge = self.stage.gauge
        self.records = gauge("records", "Records in the recording.")
        self.bytes = gauge("bytes", "Bytes of the recording's files.")
        self.missed = gauge("missed", "Records that Kafka deleted before they were read, by topic.", ["topic"])
        self.stalled = gauge("stalled_topics", "Topics whose records are not arriving, although Kafka has them.")


class RecorderHealth:
    """The recorder's health, for /health and /ready; read from other threads.

    ``asked`` beats when Kafka has said where a partition ends; ``stalled`` are topics that were not read up to there.
    """

    def __init__(self) -> None:
        self.pulse = Pulse("the recorder", SILENCE_S_MAX)
        self.asked = Pulse("asking Kafka where its topics end", PROOF_S_MAX)
        self.has_asked = False
        self.stalled: frozenset[str] = frozenset()

    def __call__(self) -> Health:
        """Return the recorder's health now."""
        error = self.pulse.error()
        stalled = f"records of {', '.join(sorted(self.stalled))} are not arriving, although Kafka has them"
        silence = self.asked.error()
        notes = tuple(note for note in (stalled if self.stalled else "", silence) if note)
        is_proved = self.has_asked and error is None and not notes
        proved = f"everything was last read up to the end reported by Kafka {self.asked.silent_s:.0f} s ago"
        return Health(is_proved, () if error is None else (error,), notes, (proved,) if is_proved else ())


@dataclass(frozen=True, slots=True)
class RecordingProgress:
    """Progress of a recording; ``is_kafka_away`` means that the last attempt to read failed."""

    records: int
    bytes: int
    records_per_s: float
    seconds: float
    parts: int
    file_name: str
    is_kafka_away: bool


class TopicRecorder(ProvedReader):
    """Records topics of one namespace.

    A compacted topic is read from its beginning, any other from its current end or, with ``from_start``, also from its
    beginning. With ``to_end``, recording stops when it has reached the newest record of each partition. ``missed``
    counts, by topic, the messages that Kafka deleted before they were read. The topics of all ``agents`` are recorded
    as one, with distinct partitions.

    If records that Kafka has do not arrive, another consumer reads on: ``health`` says so, ``stalls`` counts it, by
    topic.
    """

    def __init__(
        self,
        kafka: KafkaAccess,
        namespace: str,
        topics: Sequence[Topic],
        writer: RecordingWriter,
        *,
        from_start: bool,
        to_end: bool = False,
        agents: Sequence[str] = (NO_AGENT,),
    ) -> None:
        self._is_away = False
        options: dict[str, Option] = {"fetch.wait.max.ms": 100, "queued.max.messages.kbytes": QUEUE_KBYTES_MAX}
        super().__init__(kafka, options, self._on_error)
        self._writer = writer
        self._wanted: dict[str, Topic] = {}
        self._places: dict[str, tuple[int, int]] = {}  # Name -> its index among its topic's names, and their count.
        for topic in topics:
            names = topic_names(topic, namespace, agents)
            self._wanted |= dict.fromkeys(names, topic)
            self._places |= {name: (number, len(names)) for number, name in enumerate(names)}
        self._from_start = from_start
        self._to_end = to_end
        self._ended: set[tuple[str, int]] = set()
        self._checked_s = 0.0
        self.missed: Counter[str] = Counter()
        self.stalls: Counter[str] = Counter()
        self.health = RecorderHealth()
        self._proved_s = 0.0

    def connect(self) -> None:
        """Find the topics and where to begin. Raises StackError without Kafka, or without an input topic."""
        deadline_s = time.monotonic() + CONNECT_S_MAX
        while True:
            try:
                self._assign_found(is_first=True)
                break
            except KafkaException as error:
                if time.monotonic() < deadline_s:  # A new topic may not have a leader yet.
                    time.sleep(RETRY_S)
                    continue
                raise StackError(
                    f"Kafka at {self._kafka.bootstrap} did not answer within {CONNECT_S_MAX:g} s "
                    f"({error.args[0].str()}): start it, or name a different one with --bootstrap."
                ) from error
        missing = [
            name for name, topic in self._wanted.items() if topic in INPUT_TOPICS and not self._is_assigned(name)
        ]
        if missing:
            raise StackError(
                f"There is no topic {' and no topic '.join(missing)} at {self._kafka.bootstrap}: start the run first, "
                "or name its namespace with --set kafka.namespace=NAME."
            )

    def run(self, stop: threading.Event, duration_s: float | None, show: Show) -> None:
        """Record until ``stop`` is set, ``duration_s`` has passed or, with ``to_end``, the end is reached.

        Raises DiskFullError if the disk is full.
        """
        writer, begun_s = self._writer, time.monotonic()
        shown_s, shown_records = begun_s, 0
        while not stop.is_set():
            now_s = time.monotonic()
            self.health.pulse.beat()
            if duration_s is not None and now_s - begun_s >= duration_s:
                break
            self._take(self._poll(), now_s)
            writer.tick(now_s)
            if now_s - self._checked_s >= CHECK_S:
                self._assign_new()
            if now_s - self._proved_s >= PROVE_S:
                self._prove(now_s)
            if now_s - shown_s >= SHOW_S:
                records = writer.counts.records
                show(self._progress(now_s - begun_s, (records - shown_records) / (now_s - shown_s)))
                shown_s, shown_records = now_s, records
            if self._to_end and self._ended.issuperset(self._reached):
                break

    def _poll(self) -> list[Message]:
        try:
            return self._consumer.consume(MESSAGES_PER_POLL_MAX, timeout=POLL_S)
        except KafkaException as error:
            self._on_error(error.args[0])
            return []

    def _take(self, messages: list[Message], now_s: float) -> None:
        writer, wanted, following = self._writer, self._wanted, self._reached
        writer.is_checking = len(messages) <= CHECKED_PER_POLL_MAX
        if not writer.is_checking:
            writer.counts.unchecked += len(messages)
        for message in messages:
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                place = (message.topic() or "", message.partition() or 0)
                self._ended.add(place)
                following[place] = max(message.offset() or 0, following.get(place, 0))
                continue
            if error is not None:
                self._on_error(error)
                continue
            name, partition, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
            topic = wanted[name]
            place = (name, partition)
            if offset > following.get(place, offset) and not topic.compacted:
                self._count_missed(topic, TopicPartition(name, partition), following[place])
            following[place] = offset + 1
            writer.write(
                topic.suffix,
                message.timestamp()[1],
                self._recorded_partition(name, partition),
                offset,
                message.key() or b"",
                message.value(),
                now_s,
            )
        if messages:
            self._is_away = False

    def _prove(self, now_s: float) -> None:
        """Find topics whose records do not arrive although Kafka has them: the recording would lack them in silence."""
        self._proved_s, before = now_s, set(self._proof.stalled)
        if self._is_answered():
            self.health.asked.beat()
            self.health.has_asked = True
        self.health.stalled = frozenset(self._proof.stalled)
        if fresh := self._proof.stalled - before:
            self.stalls.update(fresh)
            log.error("recording_stalled", topics=sorted(fresh))
        if self.is_stalled:
            self.reopen()

    def _recorded_partition(self, name: str, partition: int) -> int:
        """Return a number that no other agent's partition of the topic has, so that offsets increase in each."""
        number, count = self._places[name]
        return partition * count + number

    def _count_missed(self, topic: Topic, place: TopicPartition, wanted: int) -> None:
        """Count messages that Kafka deleted before they were read; other gaps in offsets are transaction markers."""
        try:
            begin = self._consumer.get_watermark_offsets(place, timeout=CALL_S)[0]
        except KafkaException as error:
            self._on_error(error.args[0])
            return
        if begin > wanted:
            self.missed[topic.suffix] += begin - wanted

    def _assign_new(self) -> None:
        """Assign topics and partitions that did not exist before."""
        if self._is_away:
            return
        try:
            self._assign_found(is_first=False)
        except KafkaException as error:
            self._on_error(error.args[0])

    def _assign_found(self, *, is_first: bool) -> None:
        """Assign existing partitions that are not read yet; those that appear later are read from their beginning."""
        self._checked_s = time.monotonic()
        topics = self._consumer.list_topics(timeout=CALL_S).topics
        fresh = []
        for name, topic in self._wanted.items():
            partitions = topics[name].partitions if name in topics and topics[name].error is None else {}
            for number in sorted(partitions):
                if (name, number) in self._reached:
                    continue
                place = TopicPartition(name, number)
                begin, end = self._consumer.get_watermark_offsets(place, timeout=CALL_S)
                is_from_now = is_first and not (self._from_start or topic.compacted)
                fresh.append(TopicPartition(name, number, end if is_from_now else begin))
        if fresh and is_first:
            self._consumer.assign(fresh)
        elif fresh:
            self._consumer.incremental_assign(fresh)
        self._reached.update({(part.topic, part.partition): part.offset for part in fresh})

    def _is_assigned(self, name: str) -> bool:
        return any(known == name for known, _ in self._reached)

    def _on_error(self, error: KafkaError) -> None:
        self._is_away = True
        report_error(self._kafka.client_id, error)

    def _progress(self, seconds: float, records_per_s: float) -> RecordingProgress:
        counts = self._writer.counts
        return RecordingProgress(
            counts.records,
            counts.bytes,
            records_per_s,
            seconds,
            counts.parts,
            self._writer.file_name,
            self._is_away,
        )
