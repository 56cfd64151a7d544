"""Detect whether Java ended, or failed, for lack of memory, and report it in one sentence.

In: the error raised while the query ran, and the Java process. Out: StreamingJobError, or nothing if Java is healthy.
"""

from __future__ import annotations

import subprocess

from pyspark import SparkContext
from pyspark.sql import SparkSession

from regraft.streaming.job_errors import EXIT_FAILED, StreamingJobError
from regraft.streaming.measure_backlog import batch_records_max
from regraft.streaming.streaming_settings import StreamingSettings

OUT_OF_MEMORY = ("OutOfMemoryError", "GC overhead limit exceeded")
EXIT_OUT_OF_MEMORY = 52  # Spark's exit code if a thread runs out of memory.
EXIT_KILLED = -9  # By the kernel if the machine runs out of memory, or by a person.
END_S_MAX = 5.0  # Java stops answering some time before it ends.


def heap_of(spark: SparkSession) -> str:
    """Return the configured heap of Spark's driver, like 1024m."""
    return spark.sparkContext.getConf().get("spark.driver.memory", "1g") or "1g"


def heaps_of(spark: SparkSession) -> dict[str, str]:
    """Return the configured heap of the driver and, on a cluster, of each executor."""
    executor = spark.sparkContext.getConf().get("spark.executor.memory")
    return {"driver_memory": heap_of(spark)} | ({"executor_memory": executor} if executor else {})


def memory_fault(error: BaseException, heap: str, settings: StreamingSettings) -> StreamingJobError | None:
    """Return an error of one sentence if Java ran out of memory or has ended; None if it still runs."""
    texts = str(error), str(error.__cause__ or "")
    if any(sign in text for sign in OUT_OF_MEMORY for text in texts):
        return _sentence("ran out of memory", heap, settings)
    code = _exit_code()
    if code is None:
        return None
    why = {
        EXIT_OUT_OF_MEMORY: "ran out of memory",
        EXIT_KILLED: "was killed, probably because the machine ran out of memory",
    }
    return _sentence(why.get(code, f"ended with exit code {code}"), heap, settings)


def _sentence(what: str, heap: str, settings: StreamingSettings) -> StreamingJobError:
    return StreamingJobError(
        f"Java {what}: it had a heap of {heap} for up to {batch_records_max(settings):,} records in a micro-batch; "
        "raise spark.driver_memory_mb, or lower streaming.records_per_trigger_max or streaming.records_per_broker_max, "
        "and start again: the job resumes where it was",
        EXIT_FAILED,
    )


def _exit_code() -> int | None:
    """Return Java's exit code; None while it runs, or if spark-submit has started it."""
    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    try:
        return process.wait(END_S_MAX)
    except subprocess.TimeoutExpired:
        return None
