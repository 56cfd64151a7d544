"""Put a recording back on Kafka: its messages with their keys, partitions and times, into separate topics.

In: a recording, access to Kafka, a namespace. Out: topics; their use belongs to others. Messages older than the
telemetry (registers) go first, the rest in the order of their times, paced or as fast as Kafka accepts them.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from regraft.infra.kafka.create_topics import create_topics
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import leave_to_caller, open_consumer, open_producer
from regraft.infra.process.stack_error import StackError
from regraft.producers.recordings.read_recording import RecordedMessage, Recording
from regraft.schemas.texts import time_text
from regraft.schemas.topics import CLIENTS, CREATE_TIME, ORDERS, TELEMETRY, TOPICS, Topic, topic_name

KEPT_FOREVER_MS = -1  # A replay's records are older than any retention: Kafka would delete them unread.
WAITING_RECORDS_MAX = 100_000
WAITING_KBYTES_MAX = 65_536
OUTAGE_S_MAX = 60.0
GAP_MS_MAX = 60_000  # A longer gap is skipped: it may only be a clock that was set.
SERVE_S = 0.1
SERVE_RECORDS = 1_000
SHOW_S = 0.5
CALL_S = 10.0
INPUTS = (TELEMETRY, CLIENTS, ORDERS)  # Inputs from outside; everything else is derived from them.

Show = Callable[["ReplayProgress"], None]


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """Progress of a replay; ``left_s`` is the estimated remaining time, None until it is known."""

    records: int
    event_ms: int
    done_share: float
    left_s: float | None

    @property
    def text(self) -> str:
        """Describe it in a few words."""
        moment = time_text(self.event_ms)
        return moment if self.left_s is None else f"{moment}, {self.left_s:.0f} s left"


def check_replay_namespace(kafka: KafkaAccess, namespace: str, recording: Recording, live_namespace: str) -> None:
    """Raise StackError if a replay may not fill the namespace: it was recorded, is live, or has telemetry."""
    advice = "choose another --namespace, or omit it"
    if namespace == recording.info.namespace:
        raise StackError(
            f"Namespace {namespace} is the one that was recorded: a replay there would pass for live; {advice}."
        )
    if namespace == live_namespace:
        raise StackError(
            f"Namespace {namespace} is the one of the settings (kafka.namespace), where the live run is: {advice}."
        )
    held = _record_count(kafka, topic_name(TELEMETRY, namespace))
    if held:
        raise StackError(
            f"{topic_name(TELEMETRY, namespace)} at {kafka.bootstrap} already holds {held} records, perhaps of an "
            f"earlier replay: delete its topics, or {advice}."
        )


def create_replay_topics(kafka: KafkaAccess, namespace: str) -> None:
    """Create the topics of a replay, in which records keep their old times and are never deleted for their age.

    Raises StackError if Kafka does not create them.
    """
    topics = [
        replace(topic, retention_ms=None if topic.compacted else KEPT_FOREVER_MS, timestamps=CREATE_TIME)
        for topic in TOPICS
    ]
    create_topics(kafka, topics, namespace)


@dataclass(slots=True)
class Replayed:
    """What a replay has put on Kafka: records by topic, the times of its telemetry, and skipped gaps in ms.

    ``too_long`` records were left out because Kafka takes none of that size, ``to_come`` got the present time.
    """

    records: Counter[str]
    first_ms: int
    last_ms: int
    holes_ms: int = 0
    too_long: int = 0
    to_come: int = 0

    @property
    def warnings(self) -> list[str]:
        """What to warn about, one sentence each."""
        texts = {
            f"Gaps of {self.holes_ms / 1000:.0f} s in total were skipped: nothing was recorded in them.": self.holes_ms,
            f"{self.too_long} records were left out: Kafka does not accept records of this size.": self.too_long,
            f"{self.to_come} records have future times, and got the present one.": self.to_come,
        }
        return [sentence for sentence, count in texts.items() if count]


class RecordingReplayer:
    """Puts one recording on Kafka; ``speed`` 1 is the recorded pace, None is as fast as Kafka accepts it."""

    def __init__(
        self,
        recording: Recording,
        kafka: KafkaAccess,
        namespace: str,
        *,
        topics: Collection[Topic] = INPUTS,
        speed: float | None = None,
        from_ms: int | None = None,
        to_ms: int | None = None,
    ) -> None:
        self._recording = recording
        self._bootstrap = kafka.bootstrap
        self._topics = {topic.suffix: topic for topic in topics}
        self._names = {topic.suffix: topic_name(topic, namespace) for topic in topics}
        self._speed, self._from_ms, self._to_ms = speed, from_ms, to_ms
        span_ms = recording.telemetry_span_ms
        if span_ms is None:
            raise StackError(f"{recording.path} holds no telemetry: there is nothing to replay.")
        first_ms = span_ms[0] if from_ms is None else max(span_ms[0], from_ms)
        last_ms = span_ms[1] if to_ms is None else min(span_ms[1], to_ms - 1)
        if first_ms > last_ms:
            raise StackError(f"{recording.path} holds no telemetry from that time, but from {_span_text(*span_ms)}.")
        self.done = Replayed(Counter(), first_ms, last_ms)
        self._failed = ""
        self._producer = open_producer(
            kafka,
            {
                "message.timeout.ms": int(OUTAGE_S_MAX * 1_000),
                "compression.type": "lz4",
                "linger.ms": 20,
                "queue.buffering.max.messages": WAITING_RECORDS_MAX,
                "queue.buffering.max.kbytes": WAITING_KBYTES_MAX,
            },
        )

    def put(self, stop: threading.Event, show: Show, hold_back_ms: int = 0) -> list[RecordedMessage]:
        """Put everything on Kafka, and wait until Kafka has acknowledged it.

        Returns the messages of the last ``hold_back_ms`` instead of putting them. Ends early if ``stop`` is set. Raises
        StackError if Kafka does not accept a record for OUTAGE_S_MAX.
        """
        held: list[RecordedMessage] = []
        keep_from_ms = self.done.last_ms - hold_back_ms if hold_back_ms else None
        pace = _Pace(self._speed, self.done.first_ms)
        shown_s, began_s = 0.0, time.monotonic()
        for number, message in enumerate(self._messages()):
            if stop.is_set():
                break
            if keep_from_ms is not None and message.time_ms > keep_from_ms:
                held.append(message)
                continue
            if message.time_ms >= self.done.first_ms:
                self._wait(pace, message.time_ms, stop)
            self._produce(message)
            if number % SERVE_RECORDS == 0:
                self._serve(0)
            now_s = time.monotonic()
            if now_s - shown_s >= SHOW_S:
                shown_s = now_s
                show(self._progress(message.time_ms, now_s - began_s))
        self.done.holes_ms = pace.holes_ms
        self._flush()
        return held

    def put_held(self, messages: list[RecordedMessage]) -> None:
        """Put messages that were held back, without pauses, and wait until Kafka has acknowledged them."""
        for message in messages:
            self._produce(message)
        self._flush()

    def _messages(self) -> Iterator[RecordedMessage]:
        """Yield the messages to write: of the requested time, but registers from their beginning."""
        for message in self._recording.messages(self._topics, None, self._to_ms):
            is_early = self._from_ms is not None and message.time_ms < self._from_ms
            if not is_early or self._topics[message.topic].compacted:
                yield message

    def _produce(self, message: RecordedMessage) -> None:
        topic = self._topics[message.topic]
        partition = message.partition if message.partition < topic.partitions else -1  # -1: chosen by key.
        deadline_s = time.monotonic() + OUTAGE_S_MAX
        while True:
            try:
                self._producer.produce(
                    self._names[message.topic],
                    key=message.key,
                    value=message.value,
                    partition=partition,
                    timestamp=self._timestamp_of(message),
                    on_delivery=self._on_delivery,
                )
                break
            except BufferError:  # The producer's queue is full: wait for room.
                self._serve(SERVE_S)
                if time.monotonic() > deadline_s:
                    raise self._away("its buffer is full") from None
            except KafkaException as error:
                if error.args[0].code() != KafkaError.MSG_SIZE_TOO_LARGE:
                    raise self._away(error.args[0].str()) from error
                self.done.too_long += 1
                return
        self.done.records[message.topic] += 1

    def _timestamp_of(self, message: RecordedMessage) -> int:
        """Return the recorded time, or now if that is still to come: Kafka refuses it with all records sent along."""
        now_ms = time.time_ns() // 1_000_000
        self.done.to_come += message.time_ms > now_ms
        return min(max(message.time_ms, 1), now_ms)  # 0 would mean now.

    def _wait(self, pace: _Pace, time_ms: int, stop: threading.Event) -> None:
        while not stop.is_set() and (wait_s := pace.wait_s(time_ms)) > 0:
            self._serve(0)
            stop.wait(min(wait_s, SERVE_S))

    def _serve(self, wait_s: float) -> None:
        self._producer.poll(wait_s)
        if self._failed:
            raise self._away(self._failed)

    def _flush(self) -> None:
        self._producer.flush(OUTAGE_S_MAX)
        self._serve(0)
        if len(self._producer):
            raise self._away(f"{len(self._producer)} records were not acknowledged")

    def _on_delivery(self, error: KafkaError | None, _message: object) -> None:
        if error is not None and not self._failed:
            self._failed = error.str()

    def _away(self, reason: str) -> StackError:
        return StackError(
            f"Kafka at {self._bootstrap} did not accept all records of the replay within {OUTAGE_S_MAX:g} s "
            f"({reason}): check that it runs and has space, and replay into another namespace."
        )

    def _progress(self, event_ms: int, spent_s: float) -> ReplayProgress:
        done = self.done
        whole_ms = max(done.last_ms - done.first_ms, 1)
        share = min(max((event_ms - done.first_ms) / whole_ms, 0.0), 1.0)
        left_s = spent_s / share * (1 - share) if share > 0.01 else None
        return ReplayProgress(done.records.total(), max(event_ms, done.first_ms), share, left_s)


class _Pace:
    """When a message with a given time is due; gaps longer than GAP_MS_MAX are skipped."""

    def __init__(self, speed: float | None, first_ms: int) -> None:
        self._speed = speed
        self._begun_s = time.monotonic()
        self._first_ms = self._last_ms = first_ms
        self.holes_ms = 0

    def wait_s(self, time_ms: int) -> float:
        """Return how long a message must still wait, in s; expects messages in the order of their times."""
        gap_ms = time_ms - self._last_ms
        self._last_ms = max(self._last_ms, time_ms)
        if gap_ms > GAP_MS_MAX:
            self.holes_ms += gap_ms
        if self._speed is None:
            return 0.0
        due_s = self._begun_s + (time_ms - self._first_ms - self.holes_ms) / 1000 / self._speed
        return due_s - time.monotonic()


def _record_count(kafka: KafkaAccess, name: str) -> int:
    """Return how many records a topic has ever held; 0 if it does not exist. Raises StackError without Kafka."""
    consumer = open_consumer(kafka, on_error=leave_to_caller)
    try:
        topic = consumer.list_topics(timeout=CALL_S).topics.get(name)
        if topic is None or topic.error is not None:
            return 0
        places = [TopicPartition(name, number) for number in topic.partitions]
        return sum(int(consumer.get_watermark_offsets(place, timeout=CALL_S)[1]) for place in places)
    except KafkaException as error:
        raise StackError(
            f"Kafka at {kafka.bootstrap} did not answer within {CALL_S:g} s ({error.args[0].str()}): start it, or name "
            "a different one with --bootstrap."
        ) from error
    finally:
        consumer.close()


def _span_text(first_ms: int, last_ms: int) -> str:
    return f"{time_text(first_ms)} to {time_text(last_ms)}"
