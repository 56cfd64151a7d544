"""Explain what ends the streaming job in one sentence for an operator, with an exit code for a supervisor.

When the job ends is up to :mod:`streaming.run_job`.
"""

import re

from regraft.infra.local.hadoop_path import NoFileSystemError
from regraft.streaming.source_topics import source_topics
from regraft.streaming.streaming_settings import StreamingSettings

EXIT_FAILED, EXIT_REFUSED, EXIT_TOPIC_LOST = 1, 2, 3

DATA_LOST = ("UnknownTopicOrPartition", "KAFKA_DATA_LOSS", "some data may have been missed", "does not host this topic")
REASON_LENGTH_MAX = 500
CAUSES_MAX = 20
# "Caused by: org.x.SomeException: why", ": org.x.SomeException: why" of Py4J, "SomeError: why" of Python.
NAMED_ERROR = re.compile(
    r"(?:Caused by: |: )?(?P<name>(?:[A-Za-z_$][\w$]*\.)*[A-Za-z_$][\w$]*(?:Error|Exception|Exit|Interrupt)[\w$]*)"
    r"(?:: (?P<message>.*\S.*))?$"
)
TERMINATED = re.compile(r"terminated with exception: (?P<message>[^\n]*)")
IN_TASK = re.compile(r"most recent failure: .*?\): (?P<name>[\w.$]+): (?P<message>.*)")
SQL_STATE = re.compile(r"\s*SQLSTATE: \w{5}")
# Errors that only say that another one, which they contain, has happened.
WRAPPERS = (
    "terminated with exception:",
    "[FOREACH_BATCH_USER_FUNCTION_ERROR]",
    "An exception was raised by the Python",
    "An error occurred while calling",
    "Exception thrown in awaitResult",
)
# What Spark says of a file of its checkpoint that is empty, cut or missing.
DAMAGED = ("MALFORMED_LOG_FILE", "CANNOT_LOAD_STATE_STORE", "Incomplete log file", "StreamMetadata")
DISK_FULL = ("No space left on device", "Disk quota exceeded")


class StreamingJobError(RuntimeError):
    """The job cannot start or continue; the message is one sentence for an operator, ``exit_code`` for a supervisor."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def unwritable(error: OSError, settings: StreamingSettings) -> StreamingJobError:
    """Explain in one sentence that the job cannot write its checkpoint directory."""
    if any(sign in str(error) for sign in DISK_FULL):
        return explained(error, settings)
    if isinstance(error, NoFileSystemError):
        return StreamingJobError(
            f"Spark's Java has no file system for {settings.checkpoint_uri} ({error.strerror}): put its jars on the "
            "class path of driver and executors (spark-defaults.conf), or choose another streaming.checkpoint_uri",
            EXIT_REFUSED,
        )
    return StreamingJobError(
        f"{error.filename or settings.checkpoint} cannot be written ({error.strerror}): choose another "
        "checkpoint directory, or give this user write permission",
        EXIT_REFUSED,
    )


def explained(error: Exception, settings: StreamingSettings) -> StreamingJobError:
    """Explain in one sentence what ended the query."""
    text = _whole_text(error)
    if any(sign in text for sign in DATA_LOST):
        named = [topic for topic in source_topics(settings) if topic in text] or [settings.source_topic]
        return StreamingJobError(
            f"topic {max(named, key=len)} was deleted: create it again (`regraft topics --create`), and "
            f"the job starts over with it",
            EXIT_TOPIC_LOST,
        )
    if any(sign in text for sign in DISK_FULL):
        return StreamingJobError(
            f"the disk of {settings.checkpoint} is full: free some space and start again; nothing is lost",
            EXIT_FAILED,
        )
    if any(sign in text for sign in DAMAGED):
        return StreamingJobError(
            f"the checkpoint in {settings.query_directory} is damaged ({root_cause(text)}): move it away, and the job "
            "reads all telemetry that Kafka still has again; nothing of it is lost",
            EXIT_REFUSED,
        )
    written = re.search(r"StateWriteError: ([^\n]*)", text)
    if written:
        return StreamingJobError(written.group(1), EXIT_FAILED)
    return StreamingJobError(f"the streaming query failed: {root_cause(text)}", EXIT_FAILED)


def root_cause(text: str) -> str:
    """Return what an error of Spark was caused by, first of all: the last named error with a message.

    Both Java ("Caused by:") and Python print causes in such an order; frames of stacks name errors, too, but are
    indented. Without any, the first line is the best there is.
    """
    named = [match for line in text.splitlines() if (match := NAMED_ERROR.match(line)) and match["message"]]
    told = [match for match in named if not any(sign in match["message"] for sign in WRAPPERS)]
    if not told:
        terminated = TERMINATED.search(text)
        line = terminated["message"] if terminated else next(iter(text.splitlines()), "")
        return _short(line) or "for an unknown reason"
    name, message = told[-1]["name"].rpartition(".")[2], told[-1]["message"]
    in_task = IN_TASK.search(message)  # The error of a task in the message of its job.
    if in_task:
        name, message = in_task["name"].rpartition(".")[2], in_task["message"]
    return _short(f"{name}: {message}")


def _short(line: str) -> str:
    return SQL_STATE.sub("", line).strip().removesuffix(":").rstrip()[:REASON_LENGTH_MAX]


def _whole_text(error: Exception) -> str:
    """Return the error's text with those of its causes, which PySpark keeps but does not print."""
    texts, cause = [f"{type(error).__name__}: {error}"], getattr(error, "_cause", None)
    while cause is not None and len(texts) < CAUSES_MAX:
        texts.append(f"Caused by: {cause}")
        cause = getattr(cause, "_cause", None)
    return "\n".join(texts)
