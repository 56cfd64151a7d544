"""Explain in one sentence that Spark's Java ran out of memory, was killed or exited, and what to do.

In: the errors that this caused, and the exit code of the process. Whether to start again is up to a supervisor.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from regraft.streaming.job_errors import EXIT_FAILED, StreamingJobError
from regraft.streaming.measure_backlog import batch_records_max
from regraft.streaming.size_job import heap_of
from regraft.streaming.streaming_settings import StreamingSettings

OUT_OF_MEMORY = ("OutOfMemoryError", "GC overhead limit exceeded")
NEVER_STARTED = "JAVA_GATEWAY_EXITED"
EXIT_OUT_OF_MEMORY = 52  # Spark's exit code if a thread runs out of memory.
EXIT_KILLED = -9  # By the kernel if the machine runs out of memory, or by someone.
END_S_MAX = 5.0  # Java stops answering some time before it ends.
BATCH_LIMITS = "streaming.records_per_trigger_max or streaming.records_per_broker_max"
RESUMES = "no telemetry is lost, and the job resumes where it was when it starts again"


@contextmanager
def java_explained(settings: StreamingSettings, spark: SparkSession | None = None) -> Iterator[None]:
    """Raise StreamingJobError about the end of Java, if it has ended, instead of any error that this has caused."""
    heap = ""
    try:
        heap = "" if spark is None else heap_of(spark)
        yield
    except (StreamingJobError, PySparkException, Py4JError, OSError) as error:
        if ended := java_error(error, heap, settings):
            raise ended from error
        raise


def java_error(error: BaseException, heap: str, settings: StreamingSettings) -> StreamingJobError | None:
    """Return an error of one sentence if Java ran out of memory or has ended; None if it still runs."""
    texts = str(error), str(error.__cause__ or "")
    is_out_of_memory = any(sign in text for sign in OUT_OF_MEMORY for text in texts)
    # An error with another code has its own cause, and Java need not be about to end.
    is_own = isinstance(error, StreamingJobError) and error.exit_code != EXIT_FAILED
    code = None if is_out_of_memory else _exit_code(0.0 if is_own else END_S_MAX)
    if is_out_of_memory or code == EXIT_OUT_OF_MEMORY:
        sentence = (
            f"Java ran out of memory: {f'it had a heap of {heap}' if heap else 'its heap was too small'} for up to "
            f"{batch_records_max(settings):,} records in a micro-batch; raise spark.driver_memory_mb, or lower "
            f"{BATCH_LIMITS}: {RESUMES}"
        )
    elif code == EXIT_KILLED:
        sentence = (
            f"Java was killed, by someone or by the kernel for lack of memory (its log shows which): {RESUMES}; if it "
            f"was the kernel, add memory to the machine, or lower spark.driver_memory_mb, {BATCH_LIMITS}"
        )
    elif code is not None or NEVER_STARTED in texts[0]:
        how = "before it had started" if code is None else f"with code {code}" if code >= 0 else f"by signal {-code}"
        sentence = f"Java ended {how}: {RESUMES}; lines above, or spark/spark.log in the run directory, may say why"
    else:
        return None
    return StreamingJobError(sentence, EXIT_FAILED)


def _exit_code(wait_s: float) -> int | None:
    """Return Java's exit code; None while it runs, or if spark-submit has started it."""
    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    try:
        return process.wait(wait_s)
    except subprocess.TimeoutExpired:
        return None
