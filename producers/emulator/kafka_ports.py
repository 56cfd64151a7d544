"""The emulator's ports on Kafka: telemetry, results and clients out, commands in.

While Kafka is away, what goes out waits in librdkafka's bounded buffer and what comes in waits in its topic; both go
on by themselves when it is back. The producers are idempotent, so that waiting neither repeats nor reorders.
"""

from __future__ import annotations

import time

from confluent_kafka import KafkaException, TopicPartition

from infra.dead_letters import RecordDecoder, addressed
from infra.kafka_access import KafkaAccess
from infra.kafka_clients import open_consumer, report_error
from infra.record_writer import RecordWriter
from schemas.client import Client
from schemas.command import Command, CommandResult
from schemas.dead_letter import DeadLetter
from schemas.telemetry import TelemetryBatch
from schemas.topics import CLIENTS, COMMANDS, RESULTS, TELEMETRY, topic_name

COMMANDS_PER_POLL_MAX = 500
CALL_S = 2.0  # Longest wait for one answer of Kafka while starting.
RETRY_S = 0.2


class KafkaUnreachableError(RuntimeError):
    """Kafka or a topic of ours was not there in time; the message says which and what to do."""


class KafkaPorts:
    """All ports of one emulator. Telemetry has a producer of its own, so that its buffer never keeps results out."""

    def __init__(self, kafka: KafkaAccess, namespace: str, *, outage_s_max: float, buffer_records_max: int) -> None:
        limits = {"outage_s_max": outage_s_max, "buffer_records_max": buffer_records_max}
        self.telemetry = RecordWriter(kafka, linger_ms=20, **limits)  # type: ignore[arg-type]
        self.answers = RecordWriter(kafka, linger_ms=2, **limits)  # type: ignore[arg-type]
        self._commands = CommandReader(kafka, namespace, self.answers)
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
        """Stop reading, and give up what is still unsent."""
        self._commands.close()
        self.answers.close()
        self.telemetry.close()


class CommandReader:
    """Reads commands from where the topic ended when it connected; buries what does not decode."""

    def __init__(self, kafka: KafkaAccess, namespace: str, letters: RecordWriter) -> None:
        self._kafka, self._namespace, self._letters = kafka, namespace, letters
        self._topic = topic_name(COMMANDS, namespace)
        self._decoder = RecordDecoder(self._bury)
        self._consumer = open_consumer(kafka, {"fetch.wait.max.ms": 50, "fetch.error.backoff.ms": 100})

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
                        f"{self._topic} at {self._kafka.bootstrap} did not answer within {wait_s_max:g} s "
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
                report_error(self._kafka.client_id, error)
                continue
            command = self._decoder.decode(message, Command)
            if command is not None:
                commands.append(command)
        return commands

    def close(self) -> None:
        """Stop reading."""
        self._consumer.close()

    def _end_of(self, partition: int) -> TopicPartition:
        _, end = self._consumer.get_watermark_offsets(TopicPartition(self._topic, partition), timeout=CALL_S)
        return TopicPartition(self._topic, partition, end)

    def _bury(self, letter: DeadLetter) -> None:
        self._letters.write(*addressed(letter, self._namespace))
