"""Find telemetry that Kafka deleted before the job read it: which offsets of which partitions, from when to when.

Spark continues with what exists (``failOnDataLoss`` is off) and only logs that something is missing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import structlog
from confluent_kafka import Consumer, KafkaException, TopicPartition

from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import leave_to_caller, open_consumer
from regraft.schemas.event import AdaptationEvent, EventKind, Severity
from regraft.schemas.texts import time_text
from regraft.streaming.source_topics import Offsets, Place, slot_text

ASK_TIMEOUT_S = 10.0
PARTITIONS_SHOWN_MAX = 20

log = structlog.get_logger(__name__)


class TopicRecreatedError(RuntimeError):
    """A topic was deleted and recreated while it was read."""


@dataclass(frozen=True, slots=True)
class Loss:
    """The lost records of one partition: offset ``first`` up to, but not including, ``end``.

    ``until_ms`` is when Kafka received the first record that still exists, None if there is none.
    """

    place: Place
    first: int
    end: int
    until_ms: int | None

    @property
    def text(self) -> str:
        """The offsets and their number, for people."""
        return f"offsets {self.first} to {self.end - 1} ({self.end - self.first} records)"


def check_same_topics(start: Offsets, end: Offsets) -> None:
    """Raise TopicRecreatedError if the end of a micro-batch is before its start: the topic was recreated."""
    for place, offset in start.items():
        if end.get(place, offset) < offset:
            raise TopicRecreatedError(f"topic {place[0]} was recreated: the next start reads it from its beginning")


def find_losses(kafka: KafkaAccess, start: Offsets, end: Offsets) -> list[Loss] | None:
    """Return what is lost of the offsets from ``start`` to ``end``, None if Kafka does not answer.

    Takes at most 20 s per partition.
    """
    consumer = open_consumer(kafka, on_error=leave_to_caller)
    try:
        losses = []
        for place, first in sorted(start.items()):
            if place not in end:  # Its agent is gone: the topic is no longer read.
                continue
            low, high = consumer.get_watermark_offsets(TopicPartition(*place), timeout=ASK_TIMEOUT_S)
            if low > first:
                until_ms = _time_ms(consumer, place, low) if low < high else None
                losses.append(Loss(place, first, min(low, end[place]), until_ms))
        return losses
    except KafkaException as error:
        log.warning("losses_unknown", reason=error.args[0].str())
        return None
    finally:
        consumer.close()


def loss_event(topic: str, count: int, losses: Sequence[Loss], since_ms: int) -> AdaptationEvent:
    """Return the event that reports ``count`` lost records; the last one before them was read at ``since_ms``."""
    until_ms = max((loss.until_ms for loss in losses if loss.until_ms is not None), default=None)
    span = f"{_clock(since_ms)} to {_clock(until_ms)}"
    shown = {slot_text(loss.place, topic): loss.text for loss in losses[:PARTITIONS_SHOWN_MAX]}
    where = "; ".join(f"{name} {offsets}" for name, offsets in shown.items())
    more = len(losses) - len(shown)
    where += f"; and {more} more partitions" if more > 0 else ""
    text = (
        f"{count} records of {topic}, from {span}, were deleted before they were read: "
        f"{where or 'at unknown offsets'}."
        " Check whether the streaming job was down for longer than the topic's retention."
    )
    details = {"records": str(count), "since_ms": str(since_ms), "until_ms": str(until_ms or ""), **shown}
    now_ms = time.time_ns() // 1_000_000
    return AdaptationEvent(topic, EventKind.TELEMETRY_LOST, Severity.CRITICAL, now_ms, text, details=details)


def _time_ms(consumer: Consumer, place: Place, offset: int) -> int | None:
    consumer.assign([TopicPartition(*place, offset)])
    messages = consumer.consume(1, timeout=ASK_TIMEOUT_S)
    return messages[0].timestamp()[1] if messages and messages[0].error() is None else None


def _clock(time_ms: int | None) -> str:
    if not time_ms:
        return "an unknown time"
    return time_text(time_ms)
