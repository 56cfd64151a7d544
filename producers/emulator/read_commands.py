"""Read the commands for some brokers from Kafka, and prove that they arrive.

A consumer that gets nothing looks like one for which there is nothing, so a broker could lose its commands in silence.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from regraft.infra.kafka.dead_letters import RecordDecoder, addressed
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import consume, open_consumer, report_error
from regraft.infra.kafka.prove_reading import Place, ReadingProof
from regraft.infra.kafka.record_writer import RecordWriter
from regraft.schemas.broker_topics import BrokerTopics
from regraft.schemas.command import Command
from regraft.schemas.dead_letter import DeadLetter
from regraft.schemas.topics import COMMANDS

COMMANDS_PER_POLL_MAX = 500
CALL_S = 2.0  # Longest wait for one answer from Kafka.
RETRY_S = 0.2


class KafkaUnreachableError(RuntimeError):
    """Kafka or one of our topics was not available in time; the message names which, and what to do."""


def topics_text(names: Sequence[str]) -> str:
    """Return topics as text, and who creates them."""
    return (
        f"topic{'s' * (len(names) != 1)} {', '.join(names)}, which `regraft run` or `regraft topics --create` creates,"
    )


class CommandReader:
    """Reads commands from the ends of their topics; dead-letters records that do not decode or are not for us."""

    def __init__(self, kafka: KafkaAccess, topics: BrokerTopics, letters: RecordWriter) -> None:
        self._kafka, self._namespace, self._letters = kafka, topics.namespace, letters
        self._names = topics.names(COMMANDS)
        self._decoder = RecordDecoder(self._dead_letter, lambda name, command: topics.error(name, command.broker))
        self._reached: dict[Place, int] = {}  # The next offset of each partition, after transaction markers as well.
        self._consumer = self._open()
        self._proof = ReadingProof(self._consumer, CALL_S)

    def _open(self) -> Consumer:
        return open_consumer(
            self._kafka, {"fetch.wait.max.ms": 50, "fetch.error.backoff.ms": 100, "enable.partition.eof": True}
        )

    def connect(self, wait_s_max: float, on_wait: Callable[[str], None] = lambda _what: None) -> None:
        """Start reading at the present end of every partition; raise KafkaUnreachableError after ``wait_s_max``.

        ``on_wait`` gets what this waits for, repeatedly.
        """
        deadline_s = time.monotonic() + wait_s_max
        while True:
            try:
                self._reached = {
                    (name, number): self._end_of(name, number)
                    for name in self._names
                    for number in range(COMMANDS.partitions)
                }
                break
            except KafkaException as error:
                if time.monotonic() > deadline_s:
                    raise KafkaUnreachableError(
                        f"{', '.join(self._names)} at {self._kafka.bootstrap} did not answer within {wait_s_max:g} s "
                        f"({error.args[0].str()}): check that Kafka runs and that its topics have been created"
                    ) from error
                on_wait(f"{topics_text(self._names)} at {self._kafka.bootstrap} ({error.args[0].str()})")
                time.sleep(RETRY_S)
        self._assign()

    def _assign(self) -> None:
        self._consumer.assign([TopicPartition(*place, offset) for place, offset in self._reached.items()])

    def poll(self) -> list[Command]:
        """Return the commands that have arrived, at most ``COMMANDS_PER_POLL_MAX``, without waiting."""
        commands = []
        for message in consume(self._consumer, COMMANDS_PER_POLL_MAX, self._kafka.client_id):
            place, offset = (message.topic() or "", message.partition() or 0), message.offset() or 0
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                report_error(self._kafka.client_id, error)
                continue
            self._reached[place] = max(offset + (error is None), self._reached.get(place, 0))
            command = None if error is not None else self._decoder.decode(message, Command)
            if command is not None:
                commands.append(command)
        return commands

    def prove(self) -> bool:
        """Ask Kafka where the next partition ends; return False if it does not answer, or its commands do not arrive.

        Takes up to ``CALL_S``, so call it from another thread than the one that polls.
        """
        return self._proof.ask(dict(self._reached)) and not self._proof.stalled

    @property
    def is_stalled(self) -> bool:
        """Return True if commands that Kafka has have not arrived with this consumer for some questions."""
        return self._proof.needs_another_consumer

    def reopen(self) -> None:
        """Read on with another consumer, from where this one got to."""
        self._consumer.close()
        self._consumer = self._open()
        self._proof.read_with(self._consumer)
        self._assign()

    def close(self) -> None:
        """Stop reading."""
        self._consumer.close()

    def _end_of(self, name: str, partition: int) -> int:
        _, end = self._consumer.get_watermark_offsets(TopicPartition(name, partition), timeout=CALL_S)
        return int(end)

    def _dead_letter(self, letter: DeadLetter) -> None:
        self._letters.write(*addressed(letter, self._namespace))
