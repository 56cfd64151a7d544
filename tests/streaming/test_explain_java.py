"""A Java that has ended ends the job with one sentence: what happened, that nothing is lost, and what to do."""

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import PySparkRuntimeError

from regraft.streaming import explain_java
from regraft.streaming.explain_java import java_error, java_explained
from regraft.streaming.job_errors import EXIT_FAILED, EXIT_REFUSED, StreamingJobError, explained
from regraft.streaming.streaming_settings import StreamingSettings

SETTINGS = StreamingSettings("none:1", Path("unused"), records_per_trigger_max=30_000)
SILENT = Py4JNetworkError("Answer from Java side is empty")


@pytest.fixture
def java(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes a process Spark's Java: one with this exit code, or one that keeps running."""
    begun: list[subprocess.Popen[bytes]] = []

    def begin(command: str) -> None:
        begun.append(subprocess.Popen(["sh", "-c", command]))
        monkeypatch.setattr(explain_java.SparkContext, "_gateway", SimpleNamespace(proc=begun[-1]))

    yield begin
    for process in begun:
        process.kill()
        process.wait()


LIMITS = ("spark.driver_memory_mb", "streaming.records_per_trigger_max or streaming.records_per_broker_max")


@pytest.mark.parametrize(
    ("command", "what", "names"),
    [
        ("exit 52", "Java ran out of memory: it had a heap of 512m for up to 30,000 records ", LIMITS),
        ("kill -KILL $$", "Java was killed, by someone or by the kernel for lack of memory ", LIMITS),
        ("kill -ABRT $$", "Java ended by signal 6: ", ("spark/spark.log",)),
        ("exit 3", "Java ended with code 3: ", ("spark/spark.log",)),
    ],
)
def test_an_ended_java_is_named_with_what_to_do(java: Any, command: str, what: str, names: tuple[str, ...]) -> None:
    """Spark's exit code for lack of memory, a kill, a crash, and any other end; a supervisor may start again."""
    java(command)
    explain_java.SparkContext._gateway.proc.wait()
    error = java_error(SILENT, "512m", SETTINGS)
    assert error is not None
    assert error.exit_code == EXIT_FAILED
    assert str(error).startswith(what)
    for named in (*names, "no telemetry is lost, and the job resumes where it was when it starts again"):
        assert named in str(error)


@pytest.mark.parametrize(
    "caused",
    [
        SILENT,
        ConnectionRefusedError(111, "Connection refused"),
        StreamingJobError("checkpoint cannot be written (Connection refused): choose another", EXIT_REFUSED),
    ],
)
def test_what_an_ended_java_causes_is_not_reported_instead(java: Any, caused: Exception) -> None:
    """A refused connection is no wrong address, and no reason to refuse a restart."""
    java("kill -KILL $$")
    explain_java.SparkContext._gateway.proc.wait()
    with pytest.raises(StreamingJobError, match="Java was killed") as raised, java_explained(SETTINGS):
        raise caused
    assert raised.value.exit_code == EXIT_FAILED


def test_a_java_that_never_started_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark then keeps no process whose exit code could be asked."""
    monkeypatch.setattr(explain_java.SparkContext, "_gateway", None)
    never = "Java ended before it had started: no telemetry is lost"
    with pytest.raises(StreamingJobError, match=never), java_explained(SETTINGS):
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})


def test_a_query_without_memory_is_named_while_java_runs() -> None:
    """The cause of the query's end is in the error from which ours was raised."""
    error = explained(ValueError("the last line with an Error"), SETTINGS)
    error.__cause__ = RuntimeError("java.lang.OutOfMemoryError: Java heap space")
    assert "Java ran out of memory" in str(java_error(error, "1g", SETTINGS))


def test_other_errors_are_not_replaced(java: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors stay as they are if Java runs and memory is not the cause."""
    monkeypatch.setattr(explain_java, "END_S_MAX", 0.01)
    java("exec sleep 600")
    assert java_error(SILENT, "1g", SETTINGS) is None
    assert java_error(explained(ValueError("topic t was deleted"), SETTINGS), "1g", SETTINGS) is None
