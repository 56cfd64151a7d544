"""Points at which the job's processes can be killed: sinks that kill at a point, once for each time it is armed.

Spark pickles sinks to its Python workers, so they are in a separate module. Files hold what is armed because workers
and driver are different processes; the process that removes a file first claims it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark import SparkContext

from regraft.streaming.close_shard import KafkaRows
from regraft.streaming.close_windows import JoinedWindow
from regraft.streaming.encode_rows import Message
from regraft.streaming.write_state import StateWriter

WORKER_BEFORE, WORKER_BETWEEN, WORKER_AFTER = "worker before rows", "worker between rows", "worker before its report"
DRIVER_BEFORE, DRIVER_AFTER = "driver before markers", "driver after markers"
JAVA_BEFORE = "java before markers"
KAFKA_ROWS, KAFKA_MARKER = "kafka while rows", "kafka while marker"
IN_FLIGHT_S = 0.2  # A Kafka suspended for this long holds requests that it has not processed when it is killed.


@dataclass(frozen=True)
class Armed:
    """The armed errors; ``directory`` has a file for each, with Kafka's process id."""

    directory: Path

    def arm(self, point: str, kafka_pid: int | None = None) -> None:
        draft = self.directory / f".{point}"
        draft.write_text(str(kafka_pid))
        draft.rename(self.directory / point)

    def is_armed(self, point: str) -> bool:
        return bool(point) and (self.directory / point).exists()

    def claim(self, point: str) -> str:
        """Return what the error was armed with to one caller per arming, and "" to all others."""
        claimed = self.directory / f".{os.getpid()}"
        try:
            (self.directory / point).rename(claimed)
        except FileNotFoundError:
            return ""
        return claimed.read_text()

    def kill_kafka(self, kafka_pid: str) -> None:
        """Let Kafka hold requests from now on, and kill it a moment later."""
        pid = int(kafka_pid)
        os.kill(pid, signal.SIGSTOP)
        threading.Timer(IN_FLIGHT_S, os.kill, (pid, signal.SIGKILL)).start()


@dataclass(frozen=True)
class KillingRows(KafkaRows):
    """Writes rows as the job does, but kills the worker or Kafka at armed points."""

    armed: Armed

    def write(self, messages: list[Message]) -> int:
        armed, some = self.armed, len(messages) // 2
        if armed.claim(WORKER_BEFORE):
            os.kill(os.getpid(), signal.SIGKILL)
        if armed.claim(WORKER_BETWEEN):
            super().write(messages[:some])
            os.kill(os.getpid(), signal.SIGKILL)
        if kafka_pid := armed.claim(KAFKA_ROWS):
            super().write([dict(message) for message in messages[:some]])
            armed.kill_kafka(kafka_pid)
        waits = super().write(messages)
        if armed.claim(WORKER_AFTER):
            os.kill(os.getpid(), signal.SIGKILL)
        return waits


def killing_markers(armed: Armed) -> Callable[[StateWriter, Sequence[JoinedWindow]], None]:
    """Return a writer of markers that works as the job's, but kills the driver or Kafka at armed points."""
    write_windows = StateWriter.write_windows

    def write_markers(writer: StateWriter, windows: Sequence[JoinedWindow]) -> None:
        if armed.claim(DRIVER_BEFORE):
            os.killpg(os.getpgid(0), signal.SIGKILL)  # With its Java and its workers, as if the machine ended.
        if kafka_pid := armed.claim(KAFKA_MARKER):
            armed.kill_kafka(kafka_pid)
        if armed.claim(JAVA_BEFORE):
            SparkContext._gateway.proc.kill()  # type: ignore[union-attr]
        write_windows(writer, windows)
        if armed.claim(DRIVER_AFTER):
            os.kill(os.getpid(), signal.SIGKILL)

    return write_markers


def kill_where_armed(monkeypatch: pytest.MonkeyPatch, armed: Armed) -> None:
    """Let jobs that begin from now on write by KillingRows and ``killing_markers``."""

    def rows_of(*given: object) -> KillingRows:
        return KillingRows(*given, armed)  # type: ignore[arg-type]

    monkeypatch.setattr("regraft.streaming.run_job.KafkaRows", rows_of)
    monkeypatch.setattr(StateWriter, "write_windows", killing_markers(armed))
