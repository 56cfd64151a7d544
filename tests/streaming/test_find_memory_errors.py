"""A Java that runs out of memory ends the job with one sentence about its heap and what to change."""

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

from regraft.streaming import size_job
from regraft.streaming.job_errors import EXIT_FAILED, explained
from regraft.streaming.size_job import memory_error
from regraft.streaming.streaming_settings import StreamingSettings

SETTINGS = StreamingSettings("none:1", Path("unused"), records_per_trigger_max=30_000)
SILENT = Py4JNetworkError("Answer from Java side is empty")


@pytest.fixture
def java(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes a process Spark's Java: one with this exit code, or one that keeps running."""
    begun: list[subprocess.Popen[bytes]] = []

    def begin(command: str) -> None:
        begun.append(subprocess.Popen(["sh", "-c", command]))
        monkeypatch.setattr(size_job.SparkContext, "_gateway", SimpleNamespace(proc=begun[-1]))

    yield begin
    for process in begun:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("command", "what"),
    [
        ("exit 52", "Java ran out of memory: "),
        ("kill -KILL $$", "Java was killed, probably because the machine ran out of memory: "),
        ("exit 3", "Java exited with code 3: "),
    ],
)
def test_an_ended_java_is_named_with_heap_and_settings(java: Any, command: str, what: str) -> None:
    """Spark's exit code for lack of memory, a kill, and any other end."""
    java(command)
    error = memory_error(SILENT, "512m", SETTINGS)
    assert error is not None
    assert error.exit_code == EXIT_FAILED
    assert str(error).startswith(what)
    for named in (
        "a heap of 512m for up to 30,000 records",
        "spark.driver_memory_mb",
        "streaming.records_per_trigger_max or streaming.records_per_broker_max",
    ):
        assert named in str(error)


def test_a_query_without_memory_is_named_while_java_runs() -> None:
    """The cause of the query's end is in the error from which ours was raised."""
    error = explained(ValueError("the last line with an Error"), SETTINGS)
    error.__cause__ = RuntimeError("java.lang.OutOfMemoryError: Java heap space")
    assert "Java ran out of memory" in str(memory_error(error, "1g", SETTINGS))


def test_other_errors_are_not_replaced(java: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors stay as they are if Java runs and memory is not the cause."""
    monkeypatch.setattr(size_job, "END_S_MAX", 0.01)
    java("sleep 60")
    assert memory_error(SILENT, "1g", SETTINGS) is None
    assert memory_error(explained(ValueError("topic t was deleted"), SETTINGS), "1g", SETTINGS) is None
