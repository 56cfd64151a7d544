"""Closed windows and dead letters -> Kafka: every row acknowledged, then the markers, all keys deterministic.

Executors write the rows of their shards, the driver the markers. A micro-batch that runs again writes the same keys
with the same rows, so readers that keep the newest value of a key see no difference. The meaning of rows does not
belong here.

A slow Kafka is waited for as long as it accepts anything: a micro-batch that was abandoned for its size would run again
with the same size, forever.
"""

import time
from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Message as KafkaMessage

from regraft.infra.kafka.dead_letters import addressed
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import close_producer, open_producer
from regraft.schemas.codec import encode
from regraft.schemas.dead_letter import DeadLetter
from regraft.schemas.event import AdaptationEvent
from regraft.schemas.topics import DEAD_LETTERS, EVENTS, STATE, WINDOWS, Topic, topic_name
from regraft.streaming.close_windows import JoinedWindow
from regraft.streaming.encode_rows import Message, encode_marker

QUEUE_MESSAGES_MAX = 200_000
POLL_S = 0.1
FLUSH_S = 0.5  # Between checks of how many messages are left.


class StateWriteError(RuntimeError):
    """Kafka did not accept rows, markers, dead letters or an event in time; nothing after them was written."""


class StallTimeout:
    """The time left for messages that wait; it starts over whenever some of them are sent."""

    def __init__(self, timeout_ms: int, waiting: int) -> None:
        self._timeout_s, self._waiting = timeout_ms / 1_000, waiting
        self._deadline_s = time.monotonic() + self._timeout_s

    def has_expired(self, waiting: int) -> bool:
        """Note how many messages wait now; return True if none was sent for the whole time."""
        now_s = time.monotonic()
        if waiting < self._waiting:
            self._waiting, self._deadline_s = waiting, now_s + self._timeout_s
        return now_s >= self._deadline_s


class StateWriter:
    """An idempotent producer for the topics that the streaming stage writes. Not shared between threads."""

    def __init__(self, kafka: KafkaAccess, namespace: str, timeout_ms: int) -> None:
        self._bootstrap, self._namespace, self._timeout_ms = kafka.bootstrap, namespace, timeout_ms
        self._failure: KafkaError | None = None
        self.waits = 0  # How often it has waited for a full buffer.
        self._producer = open_producer(
            kafka,
            {
                "linger.ms": 5,
                "compression.type": "lz4",
                "batch.size": 1 << 20,
                "queue.buffering.max.messages": QUEUE_MESSAGES_MAX,
                "queue.buffering.max.kbytes": 1 << 18,
                # The last message of a large window waits behind all others, so StallTimeout replaces a time for each.
                "delivery.timeout.ms": 0,
                # A callback for each row would cost as much as the row; only failures are reported.
                "delivery.report.only.error": True,
            },
        )

    def write_rows(self, messages: list[Message]) -> None:
        """Write rows and wait for their acknowledgement.

        Raises StateWriteError if Kafka has accepted none for ``timeout_ms``, or at once if it refuses a row.
        """
        self._send(STATE, messages)
        self._acknowledge(STATE)

    def write_windows(self, windows: Sequence[JoinedWindow]) -> None:
        """Write the markers of windows whose rows are acknowledged; raise StateWriteError like ``write_rows``."""
        self._send(WINDOWS, [encode_marker(window.marker) for window in windows])
        self._acknowledge(WINDOWS)

    def write_dead_letters(self, letters: Sequence[DeadLetter]) -> None:
        """Write dead letters and wait for their acknowledgement; raise StateWriteError like ``write_windows``."""
        keyed = [addressed(letter, self._namespace)[1:] for letter in letters]
        self._send(DEAD_LETTERS, [{"key": key.encode(), "value": encode(letter)} for key, letter in keyed])
        self._acknowledge(DEAD_LETTERS)

    def write_event(self, event: AdaptationEvent) -> None:
        """Write an event and wait for its acknowledgement; raise StateWriteError like ``write_windows``."""
        self._send(EVENTS, [{"key": event.subject.encode(), "value": encode(event)}])
        self._acknowledge(EVENTS)

    def close(self) -> None:
        """Abandon unacknowledged messages and close the connections."""
        close_producer(self._producer, 0.0)

    def _send(self, topic: Topic, messages: list[Message]) -> None:
        """Pass all messages to the client, waiting whenever its queue is full."""
        name = topic_name(topic, self._namespace)
        timeout = StallTimeout(self._timeout_ms, len(messages))
        while messages:
            self._producer.produce_batch(name, messages, on_delivery=self._note)
            self._producer.poll(0)
            messages = [message for message in messages if "_error" in message]
            for message in messages:
                self._check_queue_full(topic, message.pop("_error"))
            if messages:
                if timeout.has_expired(len(messages)):
                    reason = (
                        f"{len(messages)} messages do not fit in the queue, and none was accepted for "
                        f"{self._timeout_ms} ms"
                    )
                    raise self._error(topic, reason)
                self.waits += 1
                self._producer.poll(POLL_S)

    def _check_queue_full(self, topic: Topic, error: object) -> None:
        if not (isinstance(error, KafkaError) and error.code() == KafkaError._QUEUE_FULL):
            raise self._error(topic, f"Kafka refused a message: {error}")

    def _acknowledge(self, topic: Topic) -> None:
        timeout = StallTimeout(self._timeout_ms, len(self._producer))
        while True:
            try:
                waiting = self._producer.flush(FLUSH_S)
            except KafkaException as error:
                raise self._error(topic, str(error)) from error
            if self._failure is not None:
                raise self._error(topic, self._failure.str())
            if not waiting:
                return
            if timeout.has_expired(waiting):
                raise self._error(
                    topic, f"{waiting} messages are waiting, and none was acknowledged for {self._timeout_ms} ms"
                )

    def _note(self, error: KafkaError | None, _: KafkaMessage) -> None:
        self._failure = self._failure or error

    def _error(self, topic: Topic, reason: str) -> StateWriteError:
        name = topic_name(topic, self._namespace)
        return StateWriteError(
            f"could not write {name}: {reason}: check that Kafka at {self._bootstrap} runs and has the topic."
        )
