"""Read the commands for some brokers from Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from confluent_kafka import KafkaException, TopicPartition

from regraft.infra.kafka.dead_letters import RecordDecoder, addressed
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.prove_reading import CALL_S, ProvedReader
from regraft.infra.kafka.record_writer import RecordWriter
from regraft.schemas.broker_topics import BrokerTopics
from regraft.schemas.command import Command
from regraft.schemas.dead_letter import DeadLetter
from regraft.schemas.topics import COMMANDS

COMMANDS_PER_POLL_MAX = 500
RETRY_S = 0.2


class KafkaUnreachableError(RuntimeError):
    """Kafka or one of our topics was not available in time; the message names which, and what to do."""


def topics_text(names: Sequence[str]) -> str:
    """Return topics as text, and who creates them."""
    return (
        f"topic{'s' * (len(names) != 1)} {', '.join(names)}, which `regraft run` or `regraft topics --create` creates,"
    )


class CommandReader(ProvedReader):
    """Reads commands from the ends of their topics; dead-letters records that do not decode or are not for us."""

    def __init__(self, kafka: KafkaAccess, topics: BrokerTopics, letters: RecordWriter) -> None:
        super().__init__(kafka, {"fetch.wait.max.ms": 50, "fetch.error.backoff.ms": 100})
        self._namespace, self._letters = topics.namespace, letters
        self._names = topics.names(COMMANDS)
        self._decoder = RecordDecoder(self._dead_letter, lambda name, command: topics.error(name, command.broker))

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

    def poll(self) -> list[Command]:
        """Return the commands that have arrived, at most ``COMMANDS_PER_POLL_MAX``, without waiting."""
        commands = []
        for message in self._arrived(COMMANDS_PER_POLL_MAX):
            if (command := self._decoder.decode(message, Command)) is not None:
                commands.append(command)
        return commands

    def prove(self) -> bool:
        """As any reader, but return False also if Kafka does not answer."""
        return self._is_answered() and not self._proof.stalled

    def _end_of(self, name: str, partition: int) -> int:
        _, end = self._consumer.get_watermark_offsets(TopicPartition(name, partition), timeout=CALL_S)
        return int(end)

    def _dead_letter(self, letter: DeadLetter) -> None:
        self._letters.write(*addressed(letter, self._namespace))
