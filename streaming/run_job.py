"""Run the query until asked to stop: count late rows, keep dead letters, report progress, catch up evenly.

While a backlog is read, partitions are read unevenly, so the query starts with the catch-up grace and is restarted with
the live grace on the same checkpoint once all partitions are read to their end. If it falls behind by more than one
full micro-batch, it is restarted with the catch-up grace.
"""

import queue
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass

import msgspec
import structlog
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener, StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from regraft.infra.local.secure_spark import rpc_error
from regraft.infra.process.serve_metrics import serve_metrics
from regraft.schemas.status_file import StatusFile
from regraft.streaming.close_shard import KafkaRows
from regraft.streaming.decide_closing import ClosingRule, has_uncommitted_batch, starting_rule
from regraft.streaming.explain_java import java_explained
from regraft.streaming.find_losses import TopicRecreatedError, check_same_topics, find_losses, loss_event
from regraft.streaming.job_errors import EXIT_REFUSED, EXIT_TOPIC_LOST, StreamingJobError, explained, unwritable
from regraft.streaming.job_metrics import JobHealth, JobMetrics
from regraft.streaming.keep_dead_letters import DeadLetterKeeper, offsets_of, read_position
from regraft.streaming.measure_backlog import batch_records_max, records_behind, recreated_topics
from regraft.streaming.open_checkpoint import CheckpointMismatchError, archive_checkpoint, open_checkpoint
from regraft.streaming.pace_batches import BatchHold
from regraft.streaming.progress_listener import ProgressListener, batch_began_ms, observed_counts
from regraft.streaming.size_job import heaps_of, log_size
from regraft.streaming.source_topics import Offsets, known_brokers, source_topics, topics_of
from regraft.streaming.streaming_settings import StreamingSettings
from regraft.streaming.watch_members import MemberWatcher
from regraft.streaming.window_job import ClosedBatch, start_query
from regraft.streaming.write_state import StateWriteError, StateWriter

POLL_S = 0.2
IDLE_POLL_S = 0.005
HEAP_PAUSE_S = 5.0  # Between readings of the heap, which take some ms.

log = structlog.get_logger()


@dataclass(slots=True)
class JobStatus:
    """The job's progress; in ``settings.status_file`` after each micro-batch and when idle, times in ms since 1970.

    ``closed_ms``: windows that end by then are closed. ``state_rows``, ``state_bytes``: the state of open windows.
    ``grace_ms``: that of the running query; also written when another query has started, so that later telemetry is
    known to be read by that one. ``clocks_off``: batches, among the dead letters, ``cells_off``: deliveries that were
    too far from Kafka's time. ``records_newer``: dead letters that a newer Regraft wrote. ``records_lost``: records
    that Kafka deleted before they were read. ``records_behind``: records not read after the last micro-batch.
    ``rows_over``: rows beyond their broker's share of a window, ``boots_cut``: boots that markers leave out,
    ``rows_failed``: rows whose merging or encoding failed. ``members_error``: why added brokers may be unknown.
    ``windows_rewritten``: how many of ``windows`` were written again because their micro-batch ran again.
    """

    batch_id: int = -1
    batch_time_ms: int = 0
    catching_up: bool = True
    grace_ms: int = 0
    records: int = 0
    cells: int = 0
    records_per_s: float = 0.0
    closed_ms: int = 0
    late_rows: int = 0
    dead_letters: int = 0
    windows: int = 0
    rows: int = 0
    window_end_ms_last: int = 0
    state_bytes: int = 0
    state_rows: int = 0
    batch_ms: int = 0
    records_behind: int = 0
    windows_rewritten: int = 0
    clocks_off: int = 0
    cells_off: int = 0
    records_lost: int = 0
    records_newer: int = 0
    rows_over: int = 0
    boots_cut: int = 0
    rows_failed: int = 0
    members_error: str = ""


def run_job(spark: SparkSession, settings: StreamingSettings, stop: threading.Event) -> JobStatus:
    """Run until ``stop`` is set, then finish the current micro-batch; return the last status.

    After a crash at any point, a restart suffices: the last micro-batch writes the same keys with the same rows. The
    caller checks first whose clock sets timestamps. Raises StreamingJobError; MetricsPortError if its port is in use.
    """
    if errors := settings.errors():
        raise StreamingJobError("; ".join(errors), EXIT_REFUSED)
    with java_explained(settings, spark):
        return _run(spark, settings, stop)


def _run(spark: SparkSession, settings: StreamingSettings, stop: threading.Event) -> JobStatus:
    conf = spark.sparkContext.getConf()
    if open_rpc := rpc_error(conf.get("spark.master") or "", conf.get, settings.security):
        raise StreamingJobError(open_rpc, EXIT_REFUSED)
    try:
        settings = open_checkpoint(settings)
    except CheckpointMismatchError as error:
        raise StreamingJobError(str(error), EXIT_REFUSED) from error
    except OSError as error:
        raise unwritable(error, settings) from error
    metrics, health = JobMetrics(), JobHealth(settings.silence_ms_max / 1_000)
    log_size(settings, len(known_brokers(settings)), batch_records_max(settings), heaps_of(spark))
    with ExitStack() as held:
        if settings.metrics_port is not None:
            held.enter_context(serve_metrics(metrics.registry, settings.metrics_host, settings.metrics_port, health))
        members = health.members = held.enter_context(closing(MemberWatcher(settings)))
        if not (settings.members_file.exists() and has_uncommitted_batch(settings)):  # Else once that has run again.
            members.read_all()
        _check_topics(settings)
        writer = held.enter_context(closing(StateWriter(settings.kafka, settings.namespace, settings.write_timeout_ms)))
        job = _Job(spark, settings, members, writer, metrics, health)
        spark.streams.addListener(job.listener)
        held.callback(_remove_listener, spark, job.listener)
        try:
            while not stop.is_set():
                job.run_query(stop)
        except TopicRecreatedError as error:
            archive_checkpoint(settings)
            raise StreamingJobError(str(error), EXIT_TOPIC_LOST) from error
        return job.status


def _remove_listener(spark: SparkSession, listener: StreamingQueryListener) -> None:
    with suppress(Py4JError, OSError):  # Once Java has ended, there is no listener to remove.
        spark.streams.removeListener(listener)


class _Job:
    """One run of the job: the current query, and counts across its restarts."""

    def __init__(
        self,
        spark: SparkSession,
        settings: StreamingSettings,
        members: MemberWatcher,
        writer: StateWriter,
        metrics: JobMetrics,
        health: JobHealth,
    ) -> None:
        self._spark, self._settings, self._members, self._writer = spark, settings, members, writer
        self._metrics, self._health, self._heap_at_s = metrics, health, 0.0
        self._write_status = StatusFile(settings.status_file).write if settings.status_file else lambda _: None
        self._letters = DeadLetterKeeper(spark, settings, writer.write_dead_letters)
        self._writing = threading.Lock()
        self._stopping = self._is_repeating = False
        self._closed: tuple[int, int, ClosedBatch] | None = None
        self._hold = BatchHold(settings.window_ms, settings.pause_ms_max)
        self.listener = ProgressListener(health)
        behind = records_behind(settings.kafka, source_topics(settings), self._letters.next_offsets)
        # A backlog that fits into one micro-batch is read at once, so no partition can run ahead of another.
        self._batch_records_max = batch_records_max(settings)
        self.status = JobStatus(catching_up=behind is None or behind > self._batch_records_max)

    def run_query(self, stop: threading.Event) -> None:
        """Run the query until asked to stop, until the other grace is due, or until the known brokers change."""
        settings = self._settings
        self._batch_records_max = batch_records_max(settings)
        self._stopping, self.listener.run_id = False, ""
        self._hold = BatchHold(settings.window_ms, settings.pause_ms_max)
        catching_up = self.status.catching_up
        grace_ms = settings.catch_up_grace_ms if catching_up else settings.grace_ms
        # While catching up, only an inventory shows which brokers are in a partition that is not read yet.
        due = ClosingRule(grace_ms, settings.inventory_path is not None or not catching_up)
        try:
            self._is_repeating = has_uncommitted_batch(settings)
            rule, runs_once = starting_rule(settings, due)
            rows = KafkaRows(settings.kafka, settings.namespace, settings.write_timeout_ms)
            how = {**msgspec.structs.asdict(rule), "runs_once": runs_once}
            query = start_query(self._spark, settings, self._take_batch, rows, **how)
        except (PySparkException, Py4JError) as error:
            raise explained(error, settings) from error
        except OSError as error:
            raise unwritable(error, settings) from error
        self.listener.run_id = str(query.runId)
        self._metrics.query_starts.labels("catch_up" if catching_up else "live").inc()
        log.info("streaming_query_started", grace_ms=rule.grace_ms, catching_up=catching_up, repeats_a_batch=runs_once)
        self.status.grace_ms = rule.grace_ms
        if self.status.batch_id >= 0:  # No status is shown before a batch, or the news that there is none.
            self._write_status(asdict(self.status))
        try:
            while query.isActive and not stop.is_set() and (runs_once or self.status.catching_up == catching_up):
                self._take_reports(POLL_S)
                # A micro-batch that runs again must not know brokers that it did not know before.
                if not self._is_repeating and self._members.poll() and not runs_once:
                    break
            self._end(query)
        finally:
            query.stop()
        self._take_reports(0)

    def _take_batch(self, batch: ClosedBatch) -> None:
        """Write the markers of the windows that a micro-batch closed, and count what its shards report."""
        with self._writing:
            if self._stopping:
                raise RuntimeError("the job is stopping: this micro-batch runs again at the next start")
            waits, rows_ms = self._writer.waits, int(time.time() * 1_000)
            if batch.windows:
                self._writer.write_windows(batch.windows)
                self._closed = rows_ms, int(time.time() * 1_000), batch
            self._count(batch, self._writer.waits - waits)
            self._count_dropped(batch)
        if batch.reports:
            may_wait = not (batch.windows or self.status.catching_up)  # A closed window must be committed at once.
            self._hold.hold(batch.number, self.status.closed_ms, batch.reports[0].settle_ms, may_wait=may_wait)

    def _count(self, batch: ClosedBatch, waits: int) -> None:
        windows, reports, status = batch.windows, batch.reports, self.status
        if not reports:  # No records, or none that are telemetry.
            return
        rows = sum(count for window in windows for count in window.marker.row_counts.values())
        rewritten = sum(window.window.end_ms <= status.window_end_ms_last for window in windows)
        late = sum(report.late_rows for report in reports)
        if late:
            log.warning("late_telemetry_dropped", rows=late)
        self._add(rows=rows, windows=len(windows), windows_rewritten=rewritten, late_rows=late)
        status.window_end_ms_last = windows[-1].window.end_ms if windows else status.window_end_ms_last
        status.closed_ms = max(report.closed_ms for report in reports)
        status.state_rows = sum(report.open_rows for report in reports)
        status.state_bytes = sum(report.state_bytes for report in reports)
        self._metrics.set(
            closing_lag_ms=max(report.latest_ms - report.closed_ms for report in reports),
            # All shards report the same about this and about the brokers awaited.
            settle_ms=reports[0].settle_ms,
            brokers_awaited=reports[0].brokers_awaited,
            brokers_given_up=reports[0].brokers_given_up,
            state_rows=status.state_rows,
            state_bytes=status.state_bytes,
            shard_skew=_skew([report.state_bytes for report in reports]),
        )
        if windows:  # Otherwise shards have little to do.
            took_ms = [report.took_ms for report in reports]
            self._metrics.set(shard_ms_max=max(took_ms), shard_ms_skew=_skew(took_ms))
            self._metrics.set(window_delay_ms=time.time() * 1_000 - windows[-1].window.end_ms)
        self._metrics.add(write_waits=waits + sum(report.write_waits for report in reports))

    def _add(self, **counts: int) -> None:
        """Add to the counts of these names, in the status and in the metrics."""
        for name, count in counts.items():
            setattr(self.status, name, getattr(self.status, name) + count)
        self._metrics.add(**counts)

    def _count_dropped(self, batch: ClosedBatch) -> None:
        """Count what a sender of too much, or of what cannot be used, has caused to be left out."""
        over, failed = (sum(getattr(report, name) for report in batch.reports) for name in ("rows_over", "rows_failed"))
        boots = sum(window.boots_cut for window in batch.windows)
        if over or boots or failed:
            log.warning("telemetry_dropped", beyond_share=over, boots_not_stated=boots, failed=failed)
        self._add(rows_over=over, rows_failed=failed, boots_cut=boots)

    def _end(self, query: StreamingQuery) -> None:
        """Let the current micro-batch end, and stop the query; raise StreamingJobError if it has failed."""
        self._hold.release()
        self._take_reports(0)
        deadline_s = time.monotonic() + self._settings.write_timeout_ms / 1_000
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline_s:
            if not self.listener.reports.empty():  # It has ended, and the next one has done nothing yet.
                break
            time.sleep(IDLE_POLL_S)
        failure = query.exception()
        if failure is not None:
            raise explained(failure, self._settings) from failure
        with self._writing:  # From here on nothing is written: it runs again at the next start.
            self._stopping = True
        query.stop()

    def _take_reports(self, wait_s: float) -> None:
        """Process all queued reports, waiting at most ``wait_s`` for the first."""
        self._health.turns.beat()
        try:
            self._take(self.listener.reports.get(timeout=wait_s) if wait_s else self.listener.reports.get_nowait())
            while True:
                self._take(self.listener.reports.get_nowait())
        except queue.Empty:
            if self.listener.take_idle():  # A restart on a topic where all is read has no micro-batch.
                self._write_status(asdict(self.status))

    def _take(self, progress: StreamingQueryProgress) -> None:
        status, self._is_repeating = self.status, False
        status.batch_id, status.batch_time_ms = progress.batchId, batch_began_ms(progress)
        status.members_error = self._members.error
        self._log_closed(status.batch_time_ms)
        observed = observed_counts(progress)
        self._add(**{name: observed.get(name, 0) for name in ("records", "cells", "clocks_off", "cells_off")})
        self._add(records_newer=observed.get("newer", 0))
        held_ms = self._hold.held_ms(progress.batchId)
        status.batch_ms = progress.durationMs.get("triggerExecution", 0) - held_ms
        status.records_per_s = progress.numInputRows * 1_000 / max(status.batch_ms, 1)
        source = progress.sources[0]
        end, latest = offsets_of(str(source.endOffset)), offsets_of(str(source.latestOffset))
        if end is not None:
            start = offsets_of(str(source.startOffset))
            try:
                self._report_losses(start or {}, end, observed.get("records", 0))
                kept = self._letters.keep(start, end, observed.get("dead", 0), status.batch_time_ms)
                self._add(dead_letters=kept)
                self._metrics.set(letters_only_counted=self._letters.only_counted)
            except (PySparkException, Py4JError, StateWriteError, OSError) as error:
                raise explained(error, self._settings) from error
            self._choose_grace(end, latest or end)
        self._show(progress, held_ms)
        self._write_status(asdict(status))

    def _log_closed(self, began_ms: int) -> None:
        """Log when the windows of the micro-batch that began at ``began_ms`` were closed."""
        if self._closed is None:
            return
        (rows_ms, markers_ms, batch), self._closed = self._closed, None
        fields = {"window_ends_ms": [each.window.end_ms for each in batch.windows[-10:]], "began_ms": began_ms}
        log.info(
            "windows_closed", **fields, rows_ms=rows_ms, markers_ms=markers_ms, settle_ms=batch.reports[0].settle_ms
        )

    def _report_losses(self, start: Offsets, end: Offsets, records: int) -> None:
        """Report lost records of the micro-batch's range; gaps that senders' transactions leave do not count."""
        check_same_topics(start, end)
        missing = sum(end.get(place, offset) - offset for place, offset in start.items()) - records
        if missing <= 0:
            return
        losses = find_losses(self._settings.kafka, start, end)
        if losses == []:
            return
        count = missing if losses is None else min(missing, sum(loss.end - loss.first for loss in losses))
        event = loss_event(self._settings.source_topic, count, losses or [], self._letters.read_ms)
        log.error("telemetry_lost", **event.details)
        self._add(records_lost=count)
        self._writer.write_event(event)

    def _show(self, progress: StreamingQueryProgress, held_ms: int) -> None:
        """Update the metrics from a report."""
        metrics, self._health.has_batch = self._metrics, True
        metrics.show_progress(progress, held_ms)
        metrics.set(backlog_records=self.status.records_behind, catching_up=self.status.catching_up)
        if self._settings.metrics_port is not None and time.monotonic() - self._heap_at_s > HEAP_PAUSE_S:
            self._heap_at_s = time.monotonic()
            metrics.show_heap(self._spark)

    def _choose_grace(self, end: Offsets, latest: Offsets) -> None:
        behind = sum(max(latest[place] - end.get(place, 0), 0) for place in latest)
        self.status.records_behind = behind
        if behind == 0:
            self.status.catching_up = False
        elif behind > self._batch_records_max:
            self.status.catching_up = True


def _skew(sizes: Sequence[float]) -> float:
    """Return the ratio of the largest to the mean."""
    return max(sizes) * len(sizes) / (sum(sizes) or 1)


def _check_topics(settings: StreamingSettings) -> None:
    """Start over if a topic ends before the next offset to read: it was recreated under the same name.

    New topics are read from their beginning, removed ones no longer; the checkpoint stays.
    """
    next_offsets, topics = read_position(settings).next_offsets or {}, source_topics(settings)
    if recreated := recreated_topics(settings.kafka, topics, next_offsets):
        archived = archive_checkpoint(settings)
        read_until = {f"{topic}-{partition}": offset for (topic, partition), offset in next_offsets.items()}
        log.error("telemetry_topic_recreated", topics=recreated, read_until=read_until, checkpoint=archived)
        return
    before = topics_of(next_offsets)
    added, removed = sorted(set(topics) - set(before)), sorted(set(before) - set(topics))
    if before and (added or removed):
        log.warning("telemetry_topics_changed", added=added, removed=removed)
