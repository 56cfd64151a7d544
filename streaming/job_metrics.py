"""Prometheus metrics and health of the streaming job; names start with ``regraft_streaming_``. Durations are in ms.

In: Spark's progress reports and the job's own counts. Out: a registry that another thread scrapes. Acting on a report
belongs to :mod:`streaming.run_job`.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any

from regraft.infra.process.serve_metrics import Health, Pulse
from regraft.infra.process.stage_metrics import StageMetrics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    from regraft.streaming.watch_members import MemberWatcher

TURN_SILENCE_S_MAX = 60.0  # Starting a query takes up to half of this on a busy machine.
FLOOR_BATCHES = 100
HELD_PARTS = ("addBatch", "triggerExecution")  # Spark's names of the phases in which a micro-batch is held.
FURTHEST_BEHIND = "maxOffsetsBehindLatest"  # Spark's name, in the report of a Kafka source.

GAUGES = {
    "batch_floor_ms": f"The shortest of the last {FLOOR_BATCHES} micro-batches: the fixed cost of one.",
    "input_rows_per_s": "Records that arrived per second before the last micro-batch.",
    "processed_rows_per_s": "Records that the last micro-batch read per second.",
    "closing_lag_ms": "Lag of the end of the last closed window behind the newest event time.",
    "window_delay_ms": "Time from the end of the newest window until it was written, by this machine's clock.",
    "settle_ms": "Time that windows wait for late deliveries after all brokers have passed their end.",
    "brokers_awaited": "Brokers that a window waits for until its grace ends.",
    "brokers_given_up": "Brokers that windows do not wait for, because they were late when a grace ended.",
    "backlog_records": "Records of telemetry that were not read after the last micro-batch.",
    "backlog_partition_max": "The same for the partition furthest behind, as Spark reports it.",
    "catching_up": "1 while a backlog is read with the longer grace.",
    "state_rows": "Parts of batches kept for open windows.",
    "state_bytes": "Size of what is kept for open windows, as encoded in Spark's state.",
    "state_store_bytes": "Memory that Spark's state store uses for it, kept versions included.",
    "shard_skew": "State of the largest shard as a multiple of the mean.",
    "shard_ms_max": "Time that the slowest shard took to merge, encode and write the last closed windows.",
    "shard_ms_skew": "The same as a multiple of the mean.",
    "heap_bytes": "Heap of the Java process in use.",
    "heap_live_bytes": "The same right after the last full collection, without garbage; 0 before the first.",
    "letters_only_counted": "Refused records without a dead letter: their sender had too many within a minute.",
}
COUNTERS = {
    "batches": "Completed micro-batches.",
    "records": "Records of telemetry read.",
    "records_lost": "Records of telemetry that Kafka deleted before they were read.",
    "cells": "Delivery cells read.",
    "late_rows": "Rows dropped because their window was closed.",
    "rows_over": "Rows dropped because their broker had used up its share of the window: it sends too much.",
    "boots_cut": "Boots of brokers that markers leave out, beyond the newest ones: no broker restarts as often.",
    "rows_failed": "Rows left out because merging or encoding them failed.",
    "dead_letters": "Records that were refused and kept with the reason.",
    "records_newer": "Refused records written by a newer version of Regraft: upgrade the streaming job.",
    "clocks_off": "Refused batches whose time was too far from Kafka's: a broker's clock is wrong.",
    "cells_off": "Delivery cells skipped because their time was too far from Kafka's: a publisher's clock is wrong.",
    "windows": "Windows written.",
    "windows_rewritten": "Windows written again because their micro-batch ran again, which changes nothing.",
    "rows": "State rows written.",
    "write_waits": "Waits for space in the buffer on the way to Kafka.",
}


class JobMetrics:
    """The Prometheus metrics of the streaming job; one without labels is set, or added to, by its name."""

    def __init__(self) -> None:
        self.stage = StageMetrics("streaming")
        self.registry, counter, gauge = self.stage.registry, self.stage.counter, self.stage.gauge
        self._recent_batch_ms: deque[int] = deque(maxlen=FLOOR_BATCHES)
        self._batch_ms = self.stage.histogram("batch_ms", "Duration of a micro-batch.")
        self._batch_part_ms = gauge(
            "batch_part_ms",
            "Durations of the parts of the last micro-batch, by Spark's name of the part, and the time that it was "
            "held.",
            ["part"],
        )
        self._gauges = {name: gauge(name, text) for name, text in GAUGES.items()}
        self._state_part_ms = gauge(
            "state_part_ms",
            "Time that all tasks together spent updating and committing the state of the last micro-batch.",
            ["part"],
        )
        self._counters = {name: counter(name, text) for name, text in COUNTERS.items()}
        self.query_starts = counter("query_starts", "Starts of the query, by grace.", ["grace"])

    def set(self, **values: float) -> None:
        """Set the gauges of these names."""
        for name, value in values.items():
            self._gauges[name].set(value)

    def add(self, **counts: float) -> None:
        """Add to the counters of these names."""
        for name, count in counts.items():
            self._counters[name].inc(count)

    def show_progress(self, progress: StreamingQueryProgress, held_ms: int) -> None:
        """Record Spark's report on one micro-batch, and how long it was held."""
        self.add(batches=1)
        for part, duration_ms in progress.durationMs.items():
            self._batch_part_ms.labels(part).set(duration_ms - held_ms * (part in HELD_PARTS))
        self._batch_part_ms.labels("held").set(held_ms)
        batch_ms = progress.durationMs.get("triggerExecution", 0) - held_ms
        self._batch_ms.observe(batch_ms)
        self._recent_batch_ms.append(batch_ms)
        arriving_per_s, processed_per_s = progress.inputRowsPerSecond, progress.numInputRows * 1_000 / max(batch_ms, 1)
        self.set(batch_floor_ms=min(self._recent_batch_ms), processed_rows_per_s=processed_per_s)
        self.set(input_rows_per_s=arriving_per_s if math.isfinite(arriving_per_s) else 0.0)
        for source in progress.sources:
            self.set(backlog_partition_max=float(source.metrics.get(FURTHEST_BEHIND, 0)))
        for state in progress.stateOperators:
            self.set(state_store_bytes=state.memoryUsedBytes)
            self._state_part_ms.labels("update").set(state.allUpdatesTimeMs)
            self._state_part_ms.labels("commit").set(state.commitTimeMs)

    def show_heap(self, spark: SparkSession) -> None:
        """Record how full Java's heap is, now and after its last full collection."""
        jvm: Any = spark._jvm
        factory = jvm.java.lang.management.ManagementFactory
        used_bytes, live_bytes = factory.getMemoryMXBean().getHeapMemoryUsage().getUsed(), 0
        for pool in factory.getMemoryPoolMXBeans():
            # The old generation, which holds what survives, by the collector's own name.
            collected = pool.getCollectionUsage() if "Old" in pool.getName() or "Tenured" in pool.getName() else None
            live_bytes += 0 if collected is None else collected.getUsed()
        self.set(heap_bytes=used_bytes, heap_live_bytes=live_bytes)


class JobHealth:
    """The job's health, for /health and /ready; read from other threads.

    Ready once a micro-batch has ended, or there was nothing to process, while added brokers become known; unhealthy if
    the job's thread hangs, or no micro-batch ends for too long.
    """

    members: MemberWatcher | None = None

    def __init__(self, batch_s_max: float, turn_s_max: float = TURN_SILENCE_S_MAX) -> None:
        self.turns = Pulse("the streaming job", turn_s_max)
        self.batches = Pulse("the streaming query", batch_s_max)
        self.has_batch = False

    def __call__(self) -> Health:
        """Return the job's health now."""
        errors = tuple(error for error in (self.turns.error(), self.batches.error()) if error is not None)
        note = "" if self.members is None else self.members.error
        proved = [f"Kafka was last asked for telemetry, and the answer processed, {self.batches.silent_s:.0f} s ago"]
        if self.members is not None and self.members.is_proved:
            proved.append("all records of members have arrived up to the end reported by Kafka")
        is_proved = self.has_batch and not errors and not note
        return Health(self.has_batch and not note, errors, (note,) if note else (), tuple(proved) if is_proved else ())
