"""A scripted overlay on a real Kafka: windows as the streaming stage writes them, brokers that answer commands."""

import threading
import time

from confluent_kafka import Producer

from regraft.controller.ports.topic_readers import TopicReader
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.overlay.inventory.inventory import Inventory
from regraft.schemas.codec import encode
from regraft.schemas.command import Command, CommandPhase, CommandResult
from regraft.schemas.dead_letter import DeadLetter
from regraft.schemas.plan_life import answers_to
from regraft.schemas.topics import COMMANDS, RESULTS, STATE, WINDOWS, topic_name
from tests.controller.scripted_windows import WINDOW_MS, marker_of, rows_of

FLUSH_S_MAX = 60.0
PACE_S = 0.1  # Wall time between two windows of a second each: tests do not wait in real time.


class KafkaOverlay:
    """Writes windows in which the first and the last broker want the same, and answers the controller's commands."""

    def __init__(self, bootstrap: str, namespace: str, inventory: Inventory) -> None:
        self._names = {topic: topic_name(topic, namespace) for topic in (STATE, WINDOWS, RESULTS)}
        self._brokers = inventory.brokers
        self._commands = TopicReader(KafkaAccess(bootstrap), {topic_name(COMMANDS, namespace): Command}, 0, self._bury)
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
        self._first_ms = time.time_ns() // 1_000_000 // WINDOW_MS * WINDOW_MS
        self._start_ms = self._first_ms
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.letters: list[DeadLetter] = []
        self.epoch = 0

    def __enter__(self) -> "KafkaOverlay":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(FLUSH_S_MAX)
        self._commands.close()

    def _bury(self, letter: DeadLetter) -> None:
        self.letters.append(letter)

    def _run(self) -> None:
        while not self._stop.wait(PACE_S):
            self._write_window()
            self._obey()
            self._producer.flush(FLUSH_S_MAX)

    def _write_window(self) -> None:
        rows = rows_of(self._brokers, self._start_ms, [{self._brokers[0], self._brokers[-1]}] * 40)
        for row in rows:
            self._producer.produce(self._names[STATE], encode(row))
        marker = marker_of(self._brokers, self._start_ms, rows, self.epoch, first_window_ms=self._first_ms)
        self._producer.produce(self._names[WINDOWS], encode(marker))
        self._start_ms += WINDOW_MS

    def _obey(self) -> None:
        for command in self._commands.poll():
            if command.phase is CommandPhase.ACTIVATE:
                self.epoch = command.epoch_to
            for outcome in answers_to(command.phase):
                answer = CommandResult(
                    command.plan, command.phase, command.broker, command.epoch_to, outcome, "", 3, self._start_ms,
                    term=command.term, digest=command.digest,
                )  # fmt: skip
                self._producer.produce(self._names[RESULTS], encode(answer))
