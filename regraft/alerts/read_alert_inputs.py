"""Read the inputs of rules, from where the last alert stage stopped, and some before that to restore rules' memory.

In: the topics of state, windows, plans, members, events, orders, audit and dead letters. Out: decoded records, each
with whether an earlier stage has judged it, and the positions to store with the outcome. Judging does not belong here.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import msgspec
import structlog
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_INVALID,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from regraft.alerts.answered_orders import KINDS, AnsweredOrders
from regraft.infra.kafka.dead_letters import RecordDecoder, dead_letter
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import open_consumer
from regraft.infra.kafka.prove_reading import ReadingProof
from regraft.infra.orders.judge_orders import open_judge
from regraft.infra.orders.order_keys import OrderSettings
from regraft.infra.process.handle_each import is_logged
from regraft.infra.process.stack_error import StackError
from regraft.schemas.audit import AuditEntry
from regraft.schemas.dead_letter import DeadLetter
from regraft.schemas.event import AdaptationEvent
from regraft.schemas.member import Member
from regraft.schemas.order import Order
from regraft.schemas.plan import Plan
from regraft.schemas.state import StateRow, WindowClosed
from regraft.schemas.topics import (
    ALERTS,
    AUDIT,
    DEAD_LETTERS,
    EVENTS,
    MEMBERS,
    ORDERS,
    PLANS,
    STATE,
    WINDOWS,
    Topic,
    topic_name,
)

log = structlog.get_logger(__name__)

CALL_S = 1.0
RETRY_S = 1.0
RECORDS_PER_POLL_MAX = 5000
QUEUE_KEY = b"/queue/"  # In the key of every state row that a rule uses.
INPUTS: Mapping[Topic, type[msgspec.Struct]] = {
    STATE: StateRow,
    WINDOWS: WindowClosed,
    PLANS: Plan,
    MEMBERS: Member,
    EVENTS: AdaptationEvent,
    ORDERS: Order,
    AUDIT: AuditEntry,
    DEAD_LETTERS: DeadLetter,
}
READ_WHOLE = (ORDERS, AUDIT, PLANS, MEMBERS)  # A record in force may have been written long ago.


class InputGoneError(StackError):
    """A topic was deleted, and with it the positions; a new process finds the recreated topic."""


class TrustedKeysChangedError(RuntimeError):
    """The trusted keys have changed, so orders must be read again: start over with a new reader."""


@dataclass(frozen=True)
class InputRecord:
    """A decoded record, when it was written, whether an earlier stage has judged it, and the message that held it."""

    record: msgspec.Struct
    written_ms: int
    is_known: bool
    message: Message


@dataclass(frozen=True)
class Lookback:
    """How much is read again, in wall time: before the last position, and at most before now (``resume_ms_max``)."""

    windows_ms: int
    state_ms: int
    events_ms: int
    resume_ms_max: int


class InputReader:
    """One consumer of all inputs. While Kafka is unavailable, it returns nothing, and it resumes on its own.

    ``remembered`` is what the last stage stored with its positions, empty at the first start.
    """

    def __init__(self, kafka: KafkaAccess, namespace: str, lookback: Lookback, orders: OrderSettings) -> None:
        self._namespace, self._lookback = namespace, lookback
        self._types = {topic_name(topic, namespace): record for topic, record in INPUTS.items()}
        self._windows_topic, self._audit_topic = topic_name(WINDOWS, namespace), topic_name(AUDIT, namespace)
        self._consumer = open_consumer(
            kafka,
            {"enable.partition.eof": True, "queued.max.messages.kbytes": 32_768, "fetch.wait.max.ms": 50},
            group=topic_name(ALERTS, namespace),
        )
        self._decoder = RecordDecoder(self._keep_dead_letter)
        self._judge, self._keys = open_judge(orders, namespace)
        self._keys_version = self._keys.version
        self._orders = AnsweredOrders[InputRecord]()
        self._is_assigned = False
        self._retry_at_s = 0.0
        self._unread: set[tuple[str, int]] = set()
        self._judged_below: dict[tuple[str, int], int] = {}
        self._next: dict[tuple[str, int], int] = {}
        self._read_ms: dict[tuple[str, int], int] = {}
        self._markers: dict[int, tuple[int, int]] = {}
        self._ends: Counter[tuple[str, int]] = Counter()  # Where the client has met the end of a partition.
        self._proof = ReadingProof(self._consumer, CALL_S)
        self.letters: list[DeadLetter] = []
        self.parked: Counter[str] = Counter()
        self.errors = 0
        self.orders_refused = 0
        self.remembered: dict[str, int] = {}

    @property
    def undecodable(self) -> Counter[str]:
        """The number of records that did not decode, by topic."""
        return self._decoder.undecodable

    @property
    def only_counted(self) -> Counter[str]:
        """The number of those without a dead letter, because their sender had too many, by topic."""
        return self._decoder.share.only_counted

    @property
    def has_caught_up(self) -> bool:
        """Return True if everything that existed at the start has been read."""
        return self._is_assigned and not self._unread

    @property
    def group(self) -> object:
        """Return the consumer group's metadata, with which the store writes positions."""
        return self._consumer.consumer_group_metadata()

    def begin(self, now_ms: int) -> bool:
        """Find the topics and the positions to start from; return False while Kafka or a topic is unavailable."""
        if self._is_assigned:
            return True
        if time.monotonic() < self._retry_at_s:
            return False
        self._retry_at_s = time.monotonic() + RETRY_S
        try:
            self._assign(now_ms)
        except KafkaException as error:
            self._report(str(error))
            return False
        self._is_assigned = True
        return True

    def poll(self) -> list[InputRecord]:
        """Return a bounded number of new records, without waiting.

        An order follows once the controller has accepted it. Raises TrustedKeysChangedError if other keys are trusted
        now, AnswerChangedError if an order was refused after all, InputGoneError if a topic was deleted.
        """
        self._keys.refresh()
        if self._keys.version != self._keys_version:
            raise TrustedKeysChangedError(
                self._keys.error or f"trusted keys are {', '.join(sorted(self._keys.by_name))}"
            )
        try:
            messages = self._consumer.consume(RECORDS_PER_POLL_MAX, timeout=0)
        except KafkaException as error:
            self._report(str(error))
            return []
        records = [self._taken(message) for message in messages]
        # An earlier answer must not count before a later one is known.
        is_answered = all(topic != self._audit_topic for topic, _ in self._unread)
        return [one for one in records if one is not None] + (self._orders.released() if is_answered else [])

    def prove(self) -> bool:
        """Ask Kafka, of one partition after another, where it ends; return False if it does not answer."""
        return self._proof.ask({place: max(offset, self._ends[place]) for place, offset in self._next.items()})

    @property
    def stalled(self) -> set[str]:
        """The topics whose records do not arrive although Kafka has them."""
        return self._proof.stalled

    def positions(self, waiting_starts_ms: Collection[int], remembered: Mapping[str, int]) -> list[TopicPartition]:
        """Return the positions up to which each topic was read, before the windows that are not judged yet."""
        held: dict[int, int] = {}
        for start_ms in list(self._markers):
            if start_ms in waiting_starts_ms:
                partition, offset = self._markers[start_ms]
                held[partition] = min(offset, held.get(partition, offset))
            else:
                del self._markers[start_ms]
        positions = []
        for (topic, partition), offset in sorted(self._next.items()):
            note = {"time_ms": self._read_ms[topic, partition]}
            if topic == self._windows_topic:
                offset = min(offset, held.get(partition, offset))
                note |= remembered
            positions.append(TopicPartition(topic, partition, offset, json.dumps(note)))
        return positions

    def park(self, entry: InputRecord, error: Exception) -> None:
        """Count a record that no rule could judge, by topic, and keep it as a dead letter, so that it is met only once.

        One about a dead letter is only counted: it would be the next one.
        """
        topic, value = entry.message.topic() or "", entry.message.value() or b""
        place = (topic, entry.message.partition() or 0, entry.message.offset() or 0)
        self.parked[topic] += 1
        log.error("record_parked", topic=topic, partition=place[1], offset=place[2], exc_info=error)
        if self._types[topic] is not DeadLetter and not entry.is_known:
            reason = f"the alert stage failed on it: {type(error).__name__}: {error}"
            letter = dead_letter(*place, reason, value, entry.written_ms)
            if self._decoder.share.admits(letter, entry.message.key()):
                self.letters.append(letter)

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _taken(self, message: Message) -> InputRecord | None:
        place = (message.topic() or "", message.partition() or 0)
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                self._unread.discard(place)
                self._ends[place] = max(message.offset() or 0, self._ends[place])
            else:
                self._report(error.str())
                if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise InputGoneError(
                        f"Topic {place[0]} was deleted while the alert stage was reading it: restart the stage."
                    )
            return None
        offset, written_ms, value = message.offset() or 0, message.timestamp()[1], message.value()
        self._next[place] = max(offset + 1, self._next[place])  # Records reread for rules' memory were judged before.
        self._read_ms[place] = max(written_ms, self._read_ms.get(place, 0))
        if value is None or (self._types[place[0]] is StateRow and QUEUE_KEY not in (message.key() or QUEUE_KEY)):
            return None
        record = self._decoder.decode(message, self._types[place[0]])
        if record is None:
            return None
        if isinstance(record, AuditEntry):
            self._orders.take(record)
            return None
        if isinstance(record, Order):
            self._hold(record, written_ms, message)
            return None
        if isinstance(record, WindowClosed):
            self._markers.setdefault(record.window_start_ms, (place[1], offset))
        return InputRecord(record, written_ms, offset < self._judged_below[place], message)

    def _hold(self, order: Order, written_ms: int, message: Message) -> None:
        """Hold an order that is authentic until the controller has answered it."""
        if self._judge.given(message, order).refusal:
            self.orders_refused += 1  # The controller reports it.
        elif order.kind in KINDS:
            is_known = False  # It changes no alert by itself.
            self._orders.hold((message.offset() or 0, written_ms), InputRecord(order, written_ms, is_known, message))

    def _keep_dead_letter(self, letter: DeadLetter) -> None:
        if letter.topic == topic_name(EVENTS, self._namespace):  # The other topics have readers that report them.
            self.letters.append(letter)

    def _assign(self, now_ms: int) -> None:
        parts = [part for topic in INPUTS for part in self._partitions(topic_name(topic, self._namespace))]
        stored = {(part.topic, part.partition): part for part in self._consumer.committed(parts, timeout=CALL_S)}
        starts = [self._start(part, stored[part.topic, part.partition], now_ms) for part in parts]
        self._consumer.assign(starts)
        self._unread = {(part.topic, part.partition) for part in parts}

    def _start(self, part: TopicPartition, stored: TopicPartition, now_ms: int) -> TopicPartition:
        """Return where to start reading a partition, and note below which offset its records were judged.

        At the first start that is the end: earlier records are not reported.
        """
        place = (part.topic, part.partition)
        low, high = self._consumer.get_watermark_offsets(part, timeout=CALL_S)
        base_ms, judged = now_ms, high
        if stored.offset != OFFSET_INVALID and stored.offset <= high:
            note = _note_of(stored)
            base_ms, judged = note.pop("time_ms", now_ms), stored.offset
            if part.topic == self._windows_topic:
                self.remembered = note
        elif stored.offset != OFFSET_INVALID:
            log.warning("alerts_position_ignored", topic=part.topic, position=stored.offset, end=high)
        self._judged_below[place] = self._next[place] = judged
        self._read_ms[place] = base_ms
        topic = next(topic for topic in INPUTS if topic_name(topic, self._namespace) == part.topic)
        if topic in READ_WHOLE or low == high:
            return TopicPartition(*place, OFFSET_BEGINNING if topic in READ_WHOLE else high)
        since_ms = self._since_ms(topic, base_ms, now_ms)
        (position,) = self._consumer.offsets_for_times([TopicPartition(*place, since_ms)], timeout=CALL_S)
        offset = high if position.offset < 0 else position.offset
        if topic not in (STATE, WINDOWS):
            offset = min(offset, judged)
        return TopicPartition(*place, max(offset, low))

    def _since_ms(self, topic: Topic, base_ms: int, now_ms: int) -> int:
        back = self._lookback
        if topic in (STATE, WINDOWS):
            base_ms = max(base_ms, now_ms - back.resume_ms_max)
            return max(base_ms - (back.state_ms if topic is STATE else back.windows_ms), 0)
        return max(base_ms - back.events_ms, 0)

    def _partitions(self, topic: str) -> list[TopicPartition]:
        partitions = self._consumer.list_topics(topic, timeout=CALL_S).topics[topic]
        if partitions.error is not None:
            raise KafkaException(partitions.error)
        return [TopicPartition(topic, number) for number in sorted(partitions.partitions)]

    def _report(self, reason: str) -> None:
        self.errors += 1
        if is_logged(self.errors):
            log.warning("alerts_read_failed", reason=reason, count=self.errors)


def _note_of(stored: TopicPartition) -> dict[str, int]:
    """Return what was stored with a position; empty if the position was set by other means."""
    try:
        note = json.loads(stored.metadata or "{}")
    except json.JSONDecodeError:
        return {}
    return (
        {str(name): value for name, value in note.items() if isinstance(value, int)} if isinstance(note, dict) else {}
    )
