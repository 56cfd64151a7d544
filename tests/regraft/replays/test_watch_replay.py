"""Waiting for the Spark job of a replay: what it waits for, and what it reports if that does not come."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

import regraft.replays.watch_replay
from regraft.infra.process.stack_error import StackError
from regraft.producers.recordings.read_recording import open_recording
from regraft.replays.read_inputs import recorded_settings
from regraft.replays.watch_replay import StreamedReplay, last_closable_ms
from regraft.schemas.state import WindowClosed
from tests.regraft.make_small_recording import SMALL, reference_rows

STATUS = {
    "catching_up": False,
    "grace_ms": 1_000,
    "records": 10,
    "windows": 2,
    "window_end_ms_last": 8_000,
    "late_rows": 3,
}


class Job:
    """A Spark job in its supervisor; it has ended with ``code``, or runs if that is None."""

    def __init__(self, code: int | None = None) -> None:
        self.code = code

    def wait_end(self, name: str, timeout_s: float) -> int | None:
        return self.code


def watch(folder: Path, job: Job, status: dict[str, Any] | None) -> StreamedReplay:
    if status is not None:
        (folder / "streaming.json").write_text(json.dumps(status))
    return StreamedReplay(job, folder, threading.Event())  # type: ignore[arg-type]


def test_the_last_window_that_can_close_is_the_references_last() -> None:
    """Its end plus the grace is before the latest event time; a part of the time has fewer windows."""
    recording = open_recording(SMALL)
    settings = recorded_settings(recording, {}, None)[0]
    ends = [one.window_end_ms for one in reference_rows(recording, settings) if isinstance(one, WindowClosed)]
    assert last_closable_ms(recording, settings.streaming, None) == ends[-1]
    assert last_closable_ms(recording, settings.streaming, ends[-1]) == ends[-2]


def test_it_waits_until_everything_is_read_and_closed(tmp_path: Path) -> None:
    """It does not wait for a job that has read and closed what is wanted; progress is shown."""
    shown: list[tuple[str, int]] = []
    streamed = watch(tmp_path, Job(), STATUS)
    streamed.wait_read({"telemetry": 10}, 1_000, lambda what, done: shown.append((what, done)), 1_000)
    streamed.wait_closed(8_000, lambda what, done: None, 1_000)
    assert shown == [("2 windows", 7_000)]
    assert streamed.late_rows == 3


def test_a_job_that_ends_or_makes_no_progress_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each case has a sentence with the log; Ctrl-C ends the wait."""
    with pytest.raises(StackError, match=r"exited and did not close the last window: see .*streaming\.log"):
        watch(tmp_path, Job(1), STATUS).wait_closed(12_000, lambda what, done: None, 0)
    monkeypatch.setattr(regraft.replays.watch_replay, "STALL_S_MAX", 0.05)
    with pytest.raises(StackError, match=r"did not read what was replayed: nothing has changed for 0\.05 s"):
        watch(tmp_path, Job(), STATUS | {"records": 9}).wait_read({"telemetry": 10}, 1_000, lambda what, done: None, 0)
    with pytest.raises(StackError, match="did not read what was replayed"):  # The backlog's query still runs.
        watch(tmp_path, Job(), STATUS).wait_read({"telemetry": 10}, 500, lambda what, done: None, 0)
    stopped = watch(tmp_path, Job(), None)
    stopped._stop.set()
    with pytest.raises(KeyboardInterrupt):
        stopped.wait_closed(12_000, lambda what, done: None, 0)
