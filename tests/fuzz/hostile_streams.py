"""Streams of records that lie about times, keys, counts and names: no reader stops, stalls or grows, nothing is lost.

In: a seed and a count. Out: how many records were used and how many counted as refused. Records that do not decode, of
all topics, belong to :mod:`tests.fuzz.parts_under_fuzz`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import msgspec
from confluent_kafka import Message

from regraft.alerts.alert_engine import BROKERS_KEPT_MAX, CLEARED_KEPT_MAX, RAISED_MAX, AlertEngine
from regraft.alerts.answered_orders import AnswerChangedError
from regraft.alerts.read_alert_inputs import INPUTS, InputReader, Lookback
from regraft.alerts.read_rules import load_rules
from regraft.infra.kafka.dead_letters import SENDERS_PER_TOPIC_MAX, SHARE_LETTERS_MAX, RecordDecoder
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import SENT_BYTES_MAX
from regraft.infra.orders.order_keys import OrderSettings
from regraft.producers.recordings.read_recording import open_recording
from regraft.producers.recordings.recording_files import RecordingError
from regraft.producers.recordings.write_recording import RecordingLimits, RecordingWriter
from regraft.schemas.alert import Alert
from regraft.schemas.audit import AuditOutcome, GivenOrder
from regraft.schemas.bounds import NAME_LENGTH_MAX, TIME_MS_MAX
from regraft.schemas.codec import decode, encode
from regraft.schemas.dead_letter import DeadLetter
from regraft.schemas.order import Order
from regraft.schemas.split_batch import BATCH_BYTES_MAX, split_batch
from regraft.schemas.state import BrokerCompleteness
from regraft.schemas.telemetry import ClientChange, Delivery, LinkProbe, QueueSample, TelemetryBatch
from regraft.schemas.topics import ORDERS, TELEMETRY, Topic, topic_name
from regraft.streaming.close_shard import ShardCloser
from regraft.streaming.encode_rows import Message as Written
from regraft.streaming.open_windows import ShardState
from regraft.streaming.window_job import joined
from tests.fuzz.mutate_values import NUMBERS, TEXTS, spoiled
from tests.fuzz.valid_records import valid_records, valid_values
from tests.infra.kafka_message import KafkaMessage
from tests.producers.recorded_messages import RECORD_TYPES_BY_SUFFIX, START_MS, recorded_run
from tests.streaming.judged_rows import rows_of
from tests.streaming.random_telemetry import BEGIN_MS, WINDOW_MS, random_telemetry

TIMES_MS = (-1, 0, 1, START_MS, START_MS - 86_400_000, START_MS + 1, START_MS + 86_400_000, TIME_MS_MAX, 2**63 - 1)
KEYS: tuple[bytes | None, ...] = (None, b"", b"b00", b"\xff\xfe", b"k" * 70_000, b"1/queue/b00", b"b00\nb01")
BATCHES_PER_SHARD = 20_000
GRACE_MS = 10**6 * WINDOW_MS
FIRST_PART_BYTES = 5_000  # For queues and probes, whose number is that of neighbours.
NAMESPACE = "fuzz"


def hostile_message(rng: random.Random, name: str, content: bytes | None, offset: int) -> KafkaMessage:
    """Return a message whose time and key are its sender's choice."""
    key = rng.choice(KEYS) if rng.random() < 0.5 else rng.randbytes(8)
    return KafkaMessage(name, content, offset, key, rng.choice(TIMES_MS))


class Rows:
    """Where a shard writes its rows; Kafka would accept each."""

    def write(self, messages: list[Written]) -> int:
        assert all(len(message["value"]) <= SENT_BYTES_MAX for message in messages)
        return 0


def feed_alert_times(rng: random.Random, count: int) -> Counter[str]:
    """Feed the alert stage records with any times, keys and invented subjects: it keeps a bounded number of alerts."""
    reader = InputReader(KafkaAccess("127.0.0.1:9"), NAMESPACE, Lookback(0, 0, 0, 0), OrderSettings())
    engine, found = AlertEngine(load_rules(), START_MS), Counter[str]()
    names = {topic: topic_name(topic, NAMESPACE) for topic in INPUTS}
    for name in names.values():
        reader._next[name, 0] = reader._judged_below[name, 0] = 0
    for place in range(count):
        topic, now_ms = rng.choice(list(INPUTS)), START_MS + place * 50
        value = encode(_hostile(rng, topic)) if rng.random() < 0.8 else rng.choice(valid_values()[topic])
        entry = reader._taken(cast(Message, hostile_message(rng, names[topic], value, place)))
        found["used" if entry is not None else "refused"] += 1
        changed = [] if entry is None else engine.take(entry.record, entry.written_ms, now_ms, is_known=entry.is_known)
        if place % 100 == 0:
            changed += engine.tick(now_ms)
            engine.forget()
        for alert in changed:
            assert len(encode(alert)) < SENT_BYTES_MAX
            assert decode(encode(alert), Alert) == alert
            assert len(alert.brokers) <= BROKERS_KEPT_MAX
    assert len(engine.book.alerts) <= CLEARED_KEPT_MAX + RAISED_MAX * len(engine.rules.rules) + 100
    assert found.total() == count
    reader.close()
    return found


def feed_shards(rng: random.Random, count: int) -> Counter[str]:
    """Feed a shard of the job invented boots, brokers, times and peers; every honest batch counts in its window."""
    found: Counter[str] = Counter()
    for start in range(0, count, BATCHES_PER_SHARD):
        good = random_telemetry(rng)
        hostile = [_hostile_batch(rng) for _ in range(min(BATCHES_PER_SHARD, count - start))]
        mixed = [*good, *hostile]
        rng.shuffle(mixed)
        (alone, _), (together, refused) = _closed(good), _closed(mixed)
        names = {batch.broker for batch in good}
        assert [entry for entry in together if entry.broker in names] == alone
        found += Counter(used=len(hostile) - refused, refused=refused)
    return found


def _closed(batches: Sequence[TelemetryBatch]) -> tuple[list[BrokerCompleteness], int]:
    """Return what markers state of brokers in three micro-batches, and how many rows were refused."""
    closer = ShardCloser((0,), WINDOW_MS, GRACE_MS, waits_for_all=False, sink=Rows())
    end = TelemetryBatch("end", 1, 0, BEGIN_MS + 10 * GRACE_MS, 0)
    state, entries, refused, half = ShardState(), [], 0, -(-len(batches) // 2)
    for part in (batches[:half], batches[half:], [end]):
        report, packed = closer.take(0, state, rows_of(part))
        state = ShardState.unpacked(packed)
        windows = joined(0, [report], WINDOW_MS).windows
        assert all(len(encode(window.marker)) <= SENT_BYTES_MAX for window in windows)
        assert report.rows_failed == 0
        entries += [entry for window in windows for entry in window.marker.brokers if entry.broker != "end"]
        refused += report.late_rows + report.rows_over
    return entries, refused


def feed_letters(rng: random.Random, count: int) -> Counter[str]:
    """Refuse records with any keys and times: all are counted, letters stay within the share and can be stored."""
    letters: list[DeadLetter] = []
    decoder = RecordDecoder(letters.append)
    used, name = 0, topic_name(TELEMETRY, NAMESPACE)
    for place, (_, value) in enumerate(spoiled(TELEMETRY, rng, count)):
        record = decoder.decode(cast(Message, hostile_message(rng, name, value, place)), TelemetryBatch)
        used += record is not None
    refused = decoder.undecodable.total()
    assert used + refused == count
    assert len(letters) + decoder.share.only_counted.total() == refused
    assert len(letters) <= SENDERS_PER_TOPIC_MAX * SHARE_LETTERS_MAX
    for letter in rng.sample(letters, min(len(letters), 1_000)):
        assert decode(encode(letter), DeadLetter) == letter
        assert len(encode(letter)) <= SENT_BYTES_MAX
    return Counter(used=used, refused=refused)


def feed_batches(rng: random.Random, count: int) -> Counter[str]:
    """Split batches with any number of long names: each part is accepted by Kafka and by the job."""
    found: Counter[str] = Counter()
    for _ in range(count):
        batch = _hostile_batch(rng)
        if rng.random() < 0.01:
            names = [f"{number}{rng.choice(TEXTS[6:])}"[:NAME_LENGTH_MAX] for number in range(4_000)]
            cells = tuple(Delivery(name, 1, BEGIN_MS // 1_000, 1, 1, 1) for name in names)
            batch = msgspec.structs.replace(batch, deliveries=cells)
        bytes_max = rng.choice((2_000, 20_000, BATCH_BYTES_MAX))
        parts = split_batch(batch, bytes_max)
        assert [cell for part in parts for cell in part.deliveries] == list(batch.deliveries)
        assert [change for part in parts for change in part.clients] == list(batch.clients)
        for part in parts[:2]:
            assert decode(encode(part.packed()), TelemetryBatch) == part.packed()
            assert len(encode(part.packed())) <= bytes_max + FIRST_PART_BYTES
        found["used"] += 1
    return found


def feed_recordings(rng: random.Random, count: int, folder: Path) -> Counter[str]:
    """Record messages with any times, keys and values, and read them back; then the same from spoiled files."""
    path, found = folder / "hostile.avro", Counter[str]()
    topics = [topic for topic in valid_values() if topic.suffix in RECORD_TYPES_BY_SUFFIX]
    for start in range(0, count, 500):
        writer = RecordingWriter(path, recorded_run(), RECORD_TYPES_BY_SUFFIX, RecordingLimits(), START_MS)
        expected = min(500, count - start)
        for place in range(expected):
            topic = rng.choice(topics)
            value = None if rng.random() < 0.05 else next(spoiled(topic, rng, 1))[1]
            message = hostile_message(rng, topic.suffix, value, place)
            partition, time_ms = rng.choice((0, 3, 2**31 - 1)), message.timestamp()[1]
            writer.write(topic.suffix, time_ms, partition, place, message.key() or b"", value, place / 100)
            writer.tick(place / 100)
        writer.close()
        assert len(list(open_recording(path).messages())) == expected
        found += Counter(used=expected - writer.counts.unread.total(), refused=writer.counts.unread.total())
        whole = path.read_bytes()
        for _ in range(5):
            cut = bytearray(whole)
            for _ in range(rng.choice((1, 5, 50))):
                cut[rng.randrange(len(cut))] = rng.randrange(256)
            path.write_bytes(cut[: rng.choice((len(cut), rng.randrange(len(cut))))])
            try:
                assert len(list(open_recording(path).messages())) <= expected
            except RecordingError:
                continue
        path.unlink()
    return found


def feed_order_keys(rng: random.Random, count: int) -> Counter[str]:
    """Judge orders under any key, time and offset: each is followed or counted as refused."""
    unsigned = OrderSettings(allow_unsigned=True)
    reader = InputReader(KafkaAccess("127.0.0.1:9"), NAMESPACE, Lookback(0, 0, 0, 0), unsigned)
    name, found = topic_name(ORDERS, NAMESPACE), Counter[str]()
    reader._next[name, 0] = reader._judged_below[name, 0] = 0
    for place in range(count):
        order = cast(Order, _hostile(rng, ORDERS))
        value = encode(order) if rng.random() < 0.7 else next(spoiled(ORDERS, rng, 1))[1]
        message = hostile_message(rng, name, value, place)
        if rng.random() < 0.5:
            message.own_key, message.time_ms = order.key.encode(), order.time_ms
        assert reader._taken(cast(Message, message)) is None  # Nothing is followed before the controller answers.
        answers = [AuditOutcome.ACCEPTED, *([AuditOutcome.REFUSED] if rng.random() < 0.1 else [])]
        for outcome in rng.sample(answers, len(answers)):
            given = GivenOrder(order, message.time_ms, rng.choice((place, place, place, place - 1)))
            with suppress(AnswerChangedError):  # Of the order before this one, if it has the same time.
                reader._orders.take(given.entry(outcome, "", START_MS))
        followed = reader._orders.released()
        assert all(isinstance(entry.record, Order) and len(answers) == 1 for entry in followed)
        assert [entry.message.offset() for entry in followed] in ([], [place])
        found["used" if followed else "refused"] += 1
    assert found.total() == count
    reader.close()
    return found


def _hostile(rng: random.Random, topic: Topic) -> msgspec.Struct:
    """Return a record of the topic with other times and names, within what decoding accepts."""
    record = rng.choice(valid_records()[topic])
    for name in record.__struct_fields__:
        if rng.random() < 0.3 and (choice := _choice(rng, name, getattr(record, name))) is not None:
            with suppress(ValueError):  # Not within the record's bounds.
                changed = msgspec.structs.replace(record, **{name: choice})
                encode(changed)
                record = changed
    return record


def _choice(rng: random.Random, name: str, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice((*TIMES_MS, *NUMBERS, value + rng.randrange(-(10**7), 10**7)))
    if isinstance(value, str) and type(value) is str:
        return rng.choice((*TEXTS, f"invented-{rng.randrange(10**6)}", "x" * NAME_LENGTH_MAX))
    return None


def _hostile_batch(rng: random.Random) -> TelemetryBatch:
    """Return a batch with an invented boot or broker, at any time near or far, that the codec accepts."""
    broker = rng.choice(("flood", f"invented-{rng.randrange(10**6)}", "x" * NAME_LENGTH_MAX))
    time_ms = BEGIN_MS + rng.choice((0, rng.randrange(3 * WINDOW_MS), -(10**9)))
    names: Sequence[str] = [f"p{rng.randrange(1_000)}" for _ in range(rng.choice((0, 0, 1, 5)))]
    big = rng.choice((0, 1, 2**53, 2**58))
    return TelemetryBatch(
        broker, rng.choice((1, rng.randrange(10**12), TIME_MS_MAX)), rng.choice((0, 5, 2**61)), time_ms,
        rng.choice((0, 1, 2**53)),
        tuple(Delivery(name, rng.choice((0, 2**55)), time_ms // 1_000, -1, big, big, -1) for name in names),
        tuple(QueueSample(peer, big, 0, big, 0, big, big, 5, 5, big) for peer in names[:2]),
        tuple(LinkProbe(peer, rng.choice((0.0, 3.6e6))) for peer in names[:1]),
        tuple(ClientChange(name, big // 2, "connected") for name in names),
    )  # fmt: skip
