"""Aggregate the telemetry of a recording into windows, on all cores, and extract its clients and plans.

In: a recording and a span of time. Out: files from which ``read_windows_of`` yields the windows. The rows are those of
the Spark job for deliveries, round trips and changes of clients. Queues, which no planner uses, and common interest,
which follows from the deliveries, are left out. No telemetry is late: everything that a broker ever reported about a
window counts. Planning does not belong here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import msgspec

from regraft.infra.process.run_tasks import ReportDone, divide_work
from regraft.producers.recordings.read_recording import Recording
from regraft.recordings.aggregate_span import (
    RecordedPlan,
    RecordedWindow,
    SpanResult,
    SpanTask,
    aggregate_span,
    opened_recording,
)
from regraft.run_records.replay_register import ClientChange
from regraft.streaming.streaming_settings import EventBounds

SPAN_RECORDS = 150_000  # Telemetry records of one task, which needs a few hundred MB for them.
SMALL_BLOCKS = 150  # Less than two seconds of work.
LAG_MS = 30_000  # Kafka's time minus event time, unless a broker was cut off.
LEAD_MS = 5_000


@dataclass(frozen=True)
class AggregatedRecording:
    """The files with the windows, in a folder, one file for each of ``spans`` in order of time.

    ``records`` counts telemetry records, twice if they belong to two spans; ``refused`` counts those not used.
    """

    folder: Path
    spans: int
    windows: int
    records: int
    refused: int
    warnings: tuple[str, ...]


def aggregate_recording(
    recording: Recording,
    folder: Path,
    first_ms: int,
    end_ms: int,
    window_ms: int,
    bounds: EventBounds,
    advance: ReportDone = lambda what, done: None,
) -> AggregatedRecording:
    """Aggregate the windows that start in [``first_ms``, ``end_ms``) and write them to files in ``folder``.

    The result does not depend on how the work is divided: if event time and Kafka's time differ more than the tasks
    allowed for when they selected blocks, all tasks are run again with a larger allowance.
    """
    opened_recording.cache_clear()  # The file may have grown since this process read it.
    lag_ms, lead_ms = LAG_MS, LEAD_MS
    while True:
        tasks = _tasks(recording, folder, first_ms, end_ms, window_ms, bounds, lag_ms, lead_ms)
        results = divide_work(tasks, aggregate_span, SpanResult, advance, "spans", SMALL_BLOCKS)
        seen_lag_ms = max((result.lag_ms for result in results), default=0)
        seen_lead_ms = max((result.lead_ms for result in results), default=0)
        if seen_lag_ms <= lag_ms and seen_lead_ms <= lead_ms:
            break
        lag_ms, lead_ms = max(lag_ms, seen_lag_ms), max(lead_ms, seen_lead_ms)
    return AggregatedRecording(
        folder,
        len(tasks),
        sum(result.windows for result in results),
        sum(result.records for result in results),
        sum(result.refused for result in results),
        tuple(dict.fromkeys(text for result in results for text in result.warnings)),
    )


def work_count(recording: Recording) -> int:
    """Return the amount of work, in blocks."""
    return len(recording.blocks())


def read_windows_of(aggregated: AggregatedRecording) -> Iterator[RecordedWindow]:
    """Yield the windows, oldest first."""
    decoder = msgspec.msgpack.Decoder(RecordedWindow)
    for number in range(aggregated.spans):
        with (aggregated.folder / f"windows-{number}").open("rb") as file:
            while size := file.read(4):
                yield decoder.decode(file.read(int.from_bytes(size, "little")))


def read_changes_of(aggregated: AggregatedRecording) -> Iterator[ClientChange]:
    """Yield the records of the register of clients, in the order of the topic."""
    decoder = msgspec.msgpack.Decoder(list[ClientChange])
    for number in range(aggregated.spans):
        yield from decoder.decode((aggregated.folder / f"clients-{number}").read_bytes())


def read_plans_of(aggregated: AggregatedRecording) -> list[RecordedPlan]:
    """Return all versions of all plans, in the order of the topic."""
    decoder = msgspec.msgpack.Decoder(list[RecordedPlan])
    folder = aggregated.folder
    return [
        plan for number in range(aggregated.spans) for plan in decoder.decode((folder / f"plans-{number}").read_bytes())
    ]


def _tasks(
    recording: Recording,
    folder: Path,
    first_ms: int,
    end_ms: int,
    window_ms: int,
    bounds: EventBounds,
    lag_ms: int,
    lead_ms: int,
) -> list[SpanTask]:
    cuts = _cuts(recording, first_ms, end_ms, window_ms)
    spans = list(pairwise(cuts))
    tasks = []
    for number, (start_ms, stop_ms) in enumerate(spans):
        kept_from_ms = -(1 << 62) if number == 0 else start_ms
        kept_end_ms = 1 << 62 if number == len(spans) - 1 else stop_ms
        tasks.append(
            SpanTask(
                str(recording.path),
                str(folder),
                number,
                start_ms,
                stop_ms,
                kept_from_ms,
                kept_end_ms,
                window_ms,
                lag_ms,
                lead_ms,
                bounds.future_ms_max,
                bounds.past_ms_max,
                sum(kept_from_ms <= block.span.first_ms < kept_end_ms for block in recording.blocks()),
                recording.bounds,
            )
        )
    return tasks


def _cuts(recording: Recording, first_ms: int, end_ms: int, window_ms: int) -> list[int]:
    """Return the window starts at which the work is divided, about SPAN_RECORDS records apart, and the end."""
    cuts, since = [first_ms], 0
    for block in sorted(recording.blocks(), key=lambda block: block.span.first_ms):
        at_ms = block.span.first_ms - block.span.first_ms % window_ms
        if since >= SPAN_RECORDS and cuts[-1] < at_ms < end_ms:
            cuts.append(at_ms)
            since = 0
        if first_ms <= block.span.first_ms < end_ms:
            since += block.span.telemetry
    return [*cuts, end_ms]
