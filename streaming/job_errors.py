"""Explain what ends the streaming job in one sentence for a person, with an exit code for a supervisor.

In: errors of Spark, Kafka or the file system. Out: StreamingJobError. When the job ends is up to
:mod:`streaming.run_job`.
"""

import re

from regraft.infra.hadoop_path import NoFileSystemError
from regraft.streaming.source_topics import source_topics
from regraft.streaming.streaming_settings import StreamingSettings

EXIT_FAILED, EXIT_REFUSED, EXIT_TOPIC_LOST = 1, 2, 3

DATA_LOST = ("UnknownTopicOrPartition", "KAFKA_DATA_LOSS", "some data may have been missed", "does not host this topic")
DISK_FULL = ("No space left on device", "Disk quota exceeded")


class StreamingJobError(RuntimeError):
    """The job cannot start or continue; the message is one sentence for a person, ``exit_code`` is for a supervisor."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def unwritable(error: OSError, settings: StreamingSettings) -> StreamingJobError:
    """Explain in one sentence that the job cannot write its checkpoint directory."""
    if any(sign in str(error) for sign in DISK_FULL):
        return explained(str(error), settings)
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


def explained(text: str, settings: StreamingSettings) -> StreamingJobError:
    """Explain in one sentence what ended the query."""
    if any(sign in text for sign in DATA_LOST):
        named = [topic for topic in source_topics(settings) if topic in text] or [settings.source_topic]
        return StreamingJobError(
            f"topic {max(named, key=len)} was deleted: create it again (`regraft topics --create`), and "
            f"the job starts over with it",
            EXIT_TOPIC_LOST,
        )
    if any(sign in text for sign in DISK_FULL):
        return StreamingJobError(
            f"the disk of {settings.checkpoint} is full: free some space and start again, nothing is lost",
            EXIT_FAILED,
        )
    written = re.search(r"StateWriteError: ([^\n]*)", text)
    if written:
        return StreamingJobError(written.group(1), EXIT_FAILED)
    reason = next(
        (line.strip() for line in reversed(text.splitlines()) if "Error" in line or "Exception" in line), text
    )
    return StreamingJobError(f"the streaming query ended: {reason[:500]}", EXIT_FAILED)
