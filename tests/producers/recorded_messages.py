"""Messages as Kafka has them, and recordings of them, for the tests of recordings."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from regraft.producers.emulator.place_overlay import place_overlay
from regraft.producers.recordings.record_topics import RECORD_TYPES
from regraft.producers.recordings.write_recording import RecordedRun, RecordingLimits, RecordingWriter
from regraft.schemas.codec import encode
from regraft.schemas.telemetry import Delivery, QueueSample, TelemetryBatch

START_MS = 1_760_000_000_000
BROKERS = ("b0", "b1", "b2", "b3")
RECORD_TYPES_BY_SUFFIX = {topic.suffix: record_type for topic, record_type in RECORD_TYPES.items()}


@dataclass(frozen=True)
class Sent:
    """One message on its way into a recording."""

    topic: str
    time_ms: int
    partition: int
    offset: int
    key: bytes
    value: bytes | None


def recorded_run(namespace: str = "live") -> RecordedRun:
    inventory = place_overlay(len(BROKERS), 3, random.Random(1))
    settings = {"run": {"seed": 3}, "controller": {"planner": "swap_links_cost"}}
    return RecordedRun(namespace, tuple(RECORD_TYPES_BY_SUFFIX), settings, inventory.to_json(), "0.1.0", "none")


def batch_of(number: int) -> TelemetryBatch:
    """Return one broker's batch; the number determines all its contents."""
    broker = BROKERS[number % len(BROKERS)]
    time_ms = START_MS + number * 100
    second = time_ms // 1000
    deliveries = tuple(Delivery(f"p{one}", number, second, 1 << one, one, 90 * one) for one in range(number % 7))
    queues = (QueueSample("", number, number, 0, 70, 70, 1, 0, 2),)
    return TelemetryBatch(broker, START_MS, number // len(BROKERS), time_ms, 0, deliveries, queues)


def telemetry(numbers: Iterable[int]) -> list[Sent]:
    """Return batches as messages, each 5 ms after its time."""
    found = []
    for number in numbers:
        batch = batch_of(number)
        place = BROKERS.index(batch.broker)
        found.append(Sent("telemetry", batch.time_ms + 5, place, batch.sequence, batch.broker.encode(), encode(batch)))
    return found


def sent(record: msgspec.Struct, topic: str, key: str, time_ms: int = START_MS, offset: int = 0) -> Sent:
    """Return a record as a message."""
    return Sent(topic, time_ms, 0, offset, key.encode(), encode(record))


def write(
    out: Path,
    messages: Iterable[Sent],
    *,
    per_block: int = 10,
    limits: RecordingLimits | None = None,
    topics: tuple[str, ...] = tuple(RECORD_TYPES_BY_SUFFIX),
) -> RecordingWriter:
    """Write a recording with this many messages in each block; the clock is that of the messages."""
    run = replace(recorded_run(), topics=topics)
    writer = RecordingWriter(out, run, RECORD_TYPES_BY_SUFFIX, limits or RecordingLimits(), START_MS)
    now_s = 0.0
    for number, one in enumerate(messages, start=1):
        writer.write(one.topic, one.time_ms, one.partition, one.offset, one.key, one.value, now_s)
        if number % per_block == 0:
            now_s += 1.0
            writer.tick(now_s)
    writer.close()
    return writer
