"""Wait for the Spark job of a replay: until it has read everything, and until the last window has closed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from regraft.infra.local.supervise import Supervisor
from regraft.infra.process.show_progress import Advance
from regraft.infra.process.stack_error import StackError
from regraft.producers.recordings.read_recording import Recording
from regraft.schemas.topics import TELEMETRY
from regraft.stages.loop_services import STREAMING
from regraft.streaming.streaming_settings import StreamingSettings

POLL_S = 0.1
STALL_S_MAX = 90.0  # Spark's first micro-batch may take a third of it.


def last_closable_ms(recording: Recording, settings: StreamingSettings, to_ms: int | None) -> int:
    """Return the end of the last window that the recording's telemetry can close; the one after it stays open.

    A window closes when event time has passed its end by the grace.
    """
    span_ms = recording.telemetry_span_ms
    latest_ms = 0
    if span_ms is not None:
        end_ms = span_ms[1] + 1 if to_ms is None else min(span_ms[1] + 1, to_ms)
        # A batch is in transit for less than a window, so the latest event time is among the latest messages.
        latest_ms = max(
            (batch["time_ms"] for batch in recording.batches(end_ms - settings.window_ms, end_ms)), default=0
        )
    return (latest_ms - settings.grace_ms) // settings.window_ms * settings.window_ms


class StreamedReplay:
    """Watches one Spark job by its status file."""

    def __init__(self, supervisor: Supervisor, run_directory: Path, stop: threading.Event) -> None:
        self._supervisor = supervisor
        self._file = run_directory / f"{STREAMING}.json"
        self._log_file = run_directory / "logs" / f"{STREAMING}.log"
        self._stop = stop
        self._status: dict[str, Any] = {}

    @property
    def late_rows(self) -> int:
        """How many rows arrived too late for their windows."""
        return int(self._status.get("late_rows", 0))

    def wait_read(self, put: Mapping[str, int], grace_ms: int, advance: Advance, first_ms: int) -> None:
        """Wait until the job has read all replayed telemetry, and runs its query with the usual grace."""
        wanted = put.get(TELEMETRY.suffix, 0)

        def is_read(status: Mapping[str, Any]) -> bool:
            is_live = not status["catching_up"] and status["grace_ms"] == grace_ms
            return is_live and status["records"] >= wanted

        self._wait(is_read, "read what was replayed", advance, first_ms)

    def wait_closed(self, window_end_ms: int, advance: Advance, first_ms: int) -> None:
        """Wait until the last window that can close has closed."""
        self._wait(
            lambda status: status["window_end_ms_last"] >= window_end_ms, "close the last window", advance, first_ms
        )

    def _wait(self, until: Callable[[Mapping[str, Any]], bool], what: str, advance: Advance, first_ms: int) -> None:
        changed_s, seen = time.monotonic(), ""
        while True:
            text = self._file.read_text(encoding="utf-8") if self._file.exists() else ""
            if text and text != seen:
                seen, changed_s = text, time.monotonic()
                self._status = json.loads(text)
                end_ms = self._status["window_end_ms_last"]
                advance(f"{self._status['windows']} windows", max(end_ms - first_ms, 0))
            if self._status and until(self._status):
                return
            if self._stop.is_set():
                raise KeyboardInterrupt
            if self._supervisor.wait_end(STREAMING, POLL_S) is not None:
                raise StackError(f"The Spark job exited and did not {what}: see {self._log_file}.")
            if time.monotonic() - changed_s > STALL_S_MAX:
                raise StackError(
                    f"The Spark job did not {what}: nothing has changed for {STALL_S_MAX:g} s, see {self._log_file}."
                )
