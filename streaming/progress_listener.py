"""Pass Spark's progress reports on micro-batches to the thread that runs the job.

Acting on a report belongs to :mod:`streaming.run_job`.
"""

import json
import queue
import threading
from datetime import datetime
from typing import Any

from pyspark import SparkContext
from pyspark.sql.streaming.listener import (
    JStreamingQueryListener,
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from regraft.streaming.job_metrics import JobHealth
from regraft.streaming.window_job import OBSERVATION

REPORTS_WAITING_MAX = 1_000


class _JsonProgress(JStreamingQueryListener):
    """Asks Java for a progress report as one text.

    PySpark asks for each of its fields and their parts: a fifth of the CPU of a job with short micro-batches.
    """

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        """Pass the report on as PySpark would."""
        self.pylistener.onQueryProgress(QueryProgressEvent(progress_of(event.progress().json())))


def progress_of(text: str) -> StreamingQueryProgress:
    """Return the report in Spark's JSON, which leaves out rates that are not finite: here they are 0."""
    told = json.loads(text)
    for part in (told, *told["sources"]):
        for name in ("inputRowsPerSecond", "processedRowsPerSecond"):
            part.setdefault(name, 0.0)
    return StreamingQueryProgress.fromJson(told)


class ProgressListener(StreamingQueryListener):
    """Queues the progress reports of one query for the thread that runs the job."""

    def __init__(self, health: JobHealth) -> None:
        self._health = health
        self._in_java: Any = None
        self.run_id = ""
        self._is_idle = threading.Event()
        self.reports: queue.Queue[StreamingQueryProgress] = queue.Queue(REPORTS_WAITING_MAX)

    @property
    def _jlistener(self) -> Any:
        """What PySpark registers, and removes again, in Java; else it makes one of its own kind."""
        if self._in_java is None:
            java: Any = SparkContext._jvm
            wrapped = java.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper
            self._in_java = wrapped(_JsonProgress(self))
        return self._in_java

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 (Spark's name)
        """Do nothing: the job itself starts its queries."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Queue the report of a micro-batch, unless it is another query's."""
        self._health.batches.beat()
        if str(event.progress.runId) != self.run_id and self.run_id:
            return
        if self.reports.full():  # DeadLetterKeeper sees the gap in the offsets and reads again.
            self.reports.get_nowait()
        self.reports.put_nowait(event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Note that the query is alive although there was no data, and so has processed everything."""
        self._health.batches.beat()
        if self.run_id in ("", str(event.runId)):
            self._health.has_batch = True
            self._is_idle.set()

    def take_idle(self) -> bool:
        """Return whether the query has found no data since this was last asked."""
        is_idle = self._is_idle.is_set()
        self._is_idle.clear()
        return is_idle

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Do nothing: the job sees its query end."""


def observed_counts(progress: StreamingQueryProgress) -> dict[str, int]:
    """Return the observed counts of a micro-batch's records; empty if it had none."""
    row: Any = progress.observedMetrics.get(OBSERVATION)
    return {} if row is None else {name: int(value or 0) for name, value in row.asDict().items()}


def batch_began_ms(progress: StreamingQueryProgress) -> int:
    """Return when the micro-batch began, in ms since 1970."""
    return int(datetime.fromisoformat(progress.timestamp).timestamp() * 1_000)
