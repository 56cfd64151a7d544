"""The emulator's ports on Kafka: telemetry, results and clients out, commands in.

While Kafka is away, what goes out waits in librdkafka's bounded buffer and what comes in waits in its topic; both go
on by themselves when it is back. The producers are idempotent, so that waiting neither repeats nor reorders.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import msgspec
import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from schemas.client import Client
from schemas.codec import UndecodableRecordError, decode, encode
from schemas.command import Command, CommandResult
from schemas.dead_letter import DeadLetter
from schemas.telemetry import TelemetryBatch
from schemas.topics import CLIENTS, COMMANDS, DEAD_LETTERS, RESULTS, TELEMETRY, topic_name

log = structlog.get_logger(__name__)

COMMANDS_PER_POLL_MAX = 500
BUFFER_KBYTES_MAX = 256 * 1024
RECONNECT_MS_MAX = 1_000  # After an outage nobody should wait longer than Kafka itself needs.
CALL_S = 2.0  # Longest wait for one answer of Kafka while starting.
RETRY_S = 0.2
LOG_PAUSE_S = 10.0  # While Kafka is away it is said once in so long.
LOG_LEVEL = 2  # librdkafka itself would tell of every refused connection.


class KafkaUnreachableError(RuntimeError):
    """Kafka or a topic of ours was not there in time; the message says which and what to do."""


class RareWarning:
    """Logs librdkafka's errors, at most one each ``LOG_PAUSE_S``."""

    def __init__(self, event: str) -> None:
        self._event = event
        self._silent_until_s = 0.0

    def __call__(self, error: KafkaError) -> None:
        """Log the error unless one was logged just before."""
        if time.monotonic() >= self._silent_until_s:
            self._silent_until_s = time.monotonic() + LOG_PAUSE_S
            log.warning(self._event, reason=error.str())


class RecordWriter:
    """One idempotent producer with a bounded buffer.

    ``written`` counts by topic what Kafka has acknowledged, ``lost`` what could not be delivered within
    ``outage_s_max`` or found the buffer full; ``waiting_count`` is what neither has happened to yet.
    """

    def __init__(self, bootstrap: str, *, outage_s_max: float, buffer_records_max: int, linger_ms: float) -> None:
        self._say_away = RareWarning("records cannot be written now")
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "error_cb": self._say_away,
                "enable.idempotence": True,  # With acks=all; retries go on until message.timeout.ms.
                "message.timeout.ms": int(outage_s_max * 1_000),
                "compression.type": "lz4",
                "linger.ms": linger_ms,
                "queue.buffering.max.messages": buffer_records_max,
                "queue.buffering.max.kbytes": BUFFER_KBYTES_MAX,
                "reconnect.backoff.max.ms": RECONNECT_MS_MAX,
                "topic.metadata.refresh.interval.ms": 10_000,
                "log_level": LOG_LEVEL,
            }
        )
        self.lost: Counter[str] = Counter()
        self.written: Counter[str] = Counter()
        self.waiting_count = 0

    def write(self, topic: str, key: str, record: msgspec.Struct | None) -> None:
        """Put a record, or a tombstone, into the buffer."""
        value = None if record is None else encode(record)
        try:
            self._producer.produce(topic, key=key.encode(), value=value, on_delivery=self._on_delivery)
            self.waiting_count += 1
        except BufferError:
            self._count_loss(topic, "the buffer is full")
        except KafkaException as error:
            self._count_loss(topic, str(error))

    def serve(self) -> None:
        """Take in acknowledgements; call it often."""
        self._producer.poll(0)

    def flush(self, wait_s_max: float) -> int:
        """Wait for all acknowledgements, at most so long; return how many records are still without."""
        return int(self._producer.flush(wait_s_max))

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        topic = message.topic() or ""
        self.waiting_count -= 1
        if error is None:
            self.written[topic] += 1
        else:
            self._count_loss(topic, error.str())

    def _count_loss(self, topic: str, reason: str) -> None:
        if not self.lost[topic]:
            log.error("records lost", topic=topic, reason=reason)
        self.lost[topic] += 1


class KafkaPorts:
    """All ports of one emulator. Telemetry has a producer of its own, so that its buffer never keeps results out."""

    def __init__(
        self,
        bootstrap: str,
        namespace: str,
        *,
        outage_s_max: float,
        buffer_records_max: int,
        now_ms: Callable[[], int],
    ) -> None:
        limits = {"outage_s_max": outage_s_max, "buffer_records_max": buffer_records_max}
        self.telemetry = RecordWriter(bootstrap, linger_ms=20, **limits)  # type: ignore[arg-type]
        self.answers = RecordWriter(bootstrap, linger_ms=2, **limits)  # type: ignore[arg-type]
        self._commands = CommandReader(bootstrap, namespace, self.answers, now_ms)
        self._topics = {topic.suffix: topic_name(topic, namespace) for topic in (TELEMETRY, RESULTS, CLIENTS, COMMANDS)}

    def connect(self, wait_s_max: float) -> None:
        """Find the end of the commands topic, from where commands are obeyed.

        Raises KafkaUnreachableError when that takes longer than ``wait_s_max``.
        """
        self._commands.connect(wait_s_max)

    def send_batch(self, batch: TelemetryBatch) -> None:
        """Send a batch, keyed by its broker."""
        self.telemetry.write(self._topics[TELEMETRY.suffix], batch.broker, batch)

    def send_result(self, result: CommandResult) -> None:
        """Send a result, keyed by its broker."""
        self.answers.write(self._topics[RESULTS.suffix], result.broker, result)

    def put_client(self, client: Client) -> None:
        """Write the client into the compacted register."""
        self.answers.write(self._topics[CLIENTS.suffix], client.client, client)

    def remove_client(self, client: str) -> None:
        """Write a tombstone into the compacted register."""
        self.answers.write(self._topics[CLIENTS.suffix], client, None)

    def poll(self) -> list[Command]:
        """Return the commands that have come, and take in acknowledgements."""
        self.telemetry.serve()
        self.answers.serve()
        return self._commands.poll()

    def flush(self, wait_s_max: float) -> int:
        """Wait for what is still to be sent, at most so long; return how many records are still unsent."""
        deadline_s = time.monotonic() + wait_s_max
        unsent = self.answers.flush(wait_s_max)
        return unsent + self.telemetry.flush(max(deadline_s - time.monotonic(), 0.0))

    def close(self) -> None:
        """Stop reading."""
        self._commands.close()


class CommandReader:
    """Reads commands from where the topic ended when it connected; buries what does not decode."""

    def __init__(self, bootstrap: str, namespace: str, letters: RecordWriter, now_ms: Callable[[], int]) -> None:
        self._topic = topic_name(COMMANDS, namespace)
        self._letters_topic = topic_name(DEAD_LETTERS, namespace)
        self._bootstrap = bootstrap
        self._letters = letters
        self._now_ms = now_ms
        self._say_away = RareWarning("commands cannot be read now")
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"{namespace}-emulator",  # Required by the client; nothing is committed.
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",  # Commands are idempotent: rather again than never.
                "fetch.wait.max.ms": 50,
                "fetch.error.backoff.ms": 100,
                "reconnect.backoff.max.ms": RECONNECT_MS_MAX,
                "error_cb": self._say_away,
                "log_level": LOG_LEVEL,
            }
        )

    def connect(self, wait_s_max: float) -> None:
        """Start reading at the present end of every partition; raise KafkaUnreachableError after ``wait_s_max``."""
        deadline_s = time.monotonic() + wait_s_max
        while True:
            try:
                ends = [self._end_of(partition) for partition in range(COMMANDS.partitions)]
                break
            except KafkaException as error:
                if time.monotonic() > deadline_s:
                    raise KafkaUnreachableError(
                        f"{self._topic} at {self._bootstrap} did not answer within {wait_s_max:g} s "
                        f"({error.args[0].str()}): check that Kafka runs and that its topics have been created"
                    ) from error
                time.sleep(RETRY_S)
        self._consumer.assign(ends)

    def poll(self) -> list[Command]:
        """Return what has come since, at most ``COMMANDS_PER_POLL_MAX``, without waiting."""
        commands = []
        for message in self._consumer.consume(COMMANDS_PER_POLL_MAX, timeout=0):
            error = message.error()
            if error is not None:
                self._say_away(error)
                continue
            try:
                commands.append(decode(message.value(), Command))
            except UndecodableRecordError as reason:
                self._bury(message, str(reason))
        return commands

    def close(self) -> None:
        """Stop reading."""
        self._consumer.close()

    def _end_of(self, partition: int) -> TopicPartition:
        _, end = self._consumer.get_watermark_offsets(TopicPartition(self._topic, partition), timeout=CALL_S)
        return TopicPartition(self._topic, partition, end)

    def _bury(self, message: Message, reason: str) -> None:
        log.warning("command does not decode", offset=message.offset(), reason=reason)
        letter = DeadLetter(
            self._topic, message.partition() or 0, message.offset() or 0, reason, message.value() or b"", self._now_ms()
        )
        self._letters.write(self._letters_topic, self._topic, letter)
