"""The same state rows as the Spark job's, in plain Python: the reference for the job, also used by experiments on the
virtual clock.

In: TelemetryBatch records as dicts, as fastavro reads them. Out: ``ReferenceWindow``. Only names, keys and the formulas
of ``build_rows`` are shared with the Spark path; every aggregate here is a loop over a dict.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from regraft.schemas.bounds import SUM_MAX
from regraft.schemas.packed_cells import PackedSecond
from regraft.schemas.state import BrokerClock, BrokerCompleteness, PublisherDelivery, StateRow, WindowClosed
from regraft.schemas.units import SECOND_MS
from regraft.streaming.build_rows import (
    ROW_KINDS,
    QueueSpan,
    Window,
    churn_row,
    delivery_row,
    queue_row,
    rtt_row,
)
from regraft.streaming.streaming_settings import QUERY_VERSION, EventBounds

Batch = Mapping[str, Any]
Moment = tuple[int, int, int, int]  # boot, time_ms, sequence, place in the batch: the order of "last"

COUNTERS = ("messages_in", "messages_out", "notifications_out", "bytes_in", "bytes_out", "busy_ms", "wait_ms")
CELL_FIELDS = ("publisher", "block", "mask", "local_deliveries", "bytes", "published")
UNSIGNED = (1 << 64) - 1
ANY_TIME = EventBounds()


@dataclass(frozen=True, slots=True)
class ReferenceWindow:
    """All rows of one window, in the order of the Spark job, and its marker."""

    rows: tuple[StateRow, ...]
    marker: WindowClosed


@dataclass(slots=True)
class _Queue:
    last: Moment
    length_last: int
    length_max: int
    boots: dict[int, tuple[list[int], list[int]]]  # boot -> least and greatest of time_ms and the counters


@dataclass(slots=True)
class _Cells:
    """The figures of one open window."""

    deliveries: dict[tuple[str, str, int, int], list[int]] = field(default_factory=dict)
    queues: dict[tuple[str, str], _Queue] = field(default_factory=dict)
    probes: dict[tuple[str, str], tuple[float, Moment, float]] = field(default_factory=dict)
    changes: dict[str, set[tuple[str, int]]] = field(default_factory=dict)
    batches: dict[tuple[str, int], dict[int, tuple[int, int]]] = field(default_factory=dict)
    delays_ms: dict[str, int] = field(default_factory=dict)
    clocks_off: dict[str, set[tuple[int, int]]] = field(default_factory=dict)


class ReferenceAggregator:
    """Windows of telemetry, closed by a watermark or all at the end; their rows are those of the Spark job.

    ``take`` batches in any order and as often as you like; ``advance`` moves the watermark to the latest time taken
    minus ``grace_ms`` and closes the windows it has passed (the Spark job closes by :mod:`streaming.decide_closing`).
    The time of a batch is its own or Kafka's, whichever is earlier.
    """

    def __init__(self, window_ms: int, grace_ms: int, bounds: EventBounds = ANY_TIME) -> None:
        self._window_ms, self._grace_ms, self._bounds = window_ms, grace_ms, bounds
        self._open: dict[int, _Cells] = {}
        self._time_ms_max = 0
        self._late_rows_unreported = 0
        self.watermark_ms = 0
        self.late_rows = 0

    def take(self, batch: Batch, kafka_ms: int | None = None) -> None:
        """Take one batch; parts of it that belong to closed windows are counted as late and dropped.

        ``kafka_ms`` is when Kafka received it; without it, any time is accepted and no clock is judged.
        """
        bounds = ANY_TIME if kafka_ms is None else self._bounds
        taken_ms = batch["time_ms"] if kafka_ms is None else kafka_ms
        is_off = not bounds.accepts(batch["time_ms"], taken_ms)
        starts = set() if is_off else self._take_deliveries(batch, taken_ms, bounds)
        if not is_off:
            own_ms = self._window_start(batch["time_ms"])
            starts.add(own_ms)
            self._take_own(self._cells(own_ms), batch)
        time_ms = batch["time_ms"]
        if bounds.future_ms_max is not None:
            taken_window_ms = self._window_start(taken_ms)
            starts.add(taken_window_ms)
            _take_delay(self._cells(taken_window_ms), batch, taken_ms - time_ms, is_off)
            time_ms = min(time_ms, taken_ms)
        if not is_off:
            self._time_ms_max = max(self._time_ms_max, time_ms)
        for start_ms in starts:
            if self._is_closed(start_ms):
                self.late_rows += 1
                self._late_rows_unreported += 1
                self._open.pop(start_ms, None)

    def advance(self, event_ms: int | None = None) -> list[ReferenceWindow]:
        """Move the watermark and return the windows it has passed, ascending.

        ``event_ms`` replaces the latest time taken, for a reader that knows how far its slowest partition is.
        """
        latest_ms = self._time_ms_max if event_ms is None else event_ms
        self.watermark_ms = max(self.watermark_ms, latest_ms - self._grace_ms)
        return self._close(start_ms for start_ms in sorted(self._open) if self._is_closed(start_ms))

    def finish(self) -> list[ReferenceWindow]:
        """Return all windows that are still open, ascending."""
        return self._close(sorted(self._open))

    def _take_deliveries(self, batch: Batch, taken_ms: int, bounds: EventBounds) -> set[int]:
        """Take deliveries with times near Kafka's; return the starts of their windows."""
        starts = set()
        seconds_ms = self._window_ms // SECOND_MS
        broker = batch["broker"]
        window_second, cells = -1, {}
        for delivery in _cells_of(batch):
            second = delivery["second"]
            if not bounds.accepts(second * SECOND_MS, taken_ms):
                continue
            if second - second % seconds_ms != window_second:
                window_second = second - second % seconds_ms
                starts.add(window_second * SECOND_MS)
                cells = self._cells(window_second * SECOND_MS).deliveries
            key = (delivery["publisher"], broker, delivery["block"], second)
            cell = cells.get(key)
            if cell is None:
                cells[key] = [
                    delivery["mask"],
                    delivery["published"],
                    delivery["local_deliveries"],
                    delivery["bytes"],
                ]
            else:
                cell[0] |= delivery["mask"]
                cell[1] |= delivery["published"]
                cell[2] = max(cell[2], delivery["local_deliveries"])
                cell[3] = max(cell[3], delivery["bytes"])
        return starts

    def _window_start(self, time_ms: int) -> int:
        return time_ms - time_ms % self._window_ms

    def _is_closed(self, start_ms: int) -> bool:
        return start_ms + self._window_ms <= self.watermark_ms

    def _cells(self, start_ms: int) -> _Cells:
        cells = self._open.get(start_ms)
        if cells is None:
            cells = self._open[start_ms] = _Cells()
        return cells

    def _take_own(self, cells: _Cells, batch: Batch) -> None:
        """Take what the batch reports for its own time."""
        broker, boot, sequence, time_ms = batch["broker"], batch["boot"], batch["sequence"], batch["time_ms"]
        seen = cells.batches.setdefault((broker, boot), {})
        least, greatest = seen.get(sequence, (batch["epoch"], batch["epoch"]))
        seen[sequence] = (min(least, batch["epoch"]), max(greatest, batch["epoch"]))
        for place, sample in enumerate(batch["queues"]):
            _take_sample(cells.queues, (broker, sample["peer"]), sample, (boot, time_ms, sequence, place))
        for place, probe in enumerate(batch["probes"]):
            moment, rtt_ms = (boot, time_ms, sequence, place), probe["rtt_ms"]
            lowest, last, rtt_ms_last = cells.probes.get((broker, probe["peer"]), (rtt_ms, moment, rtt_ms))
            if moment >= last:
                last, rtt_ms_last = moment, rtt_ms
            cells.probes[broker, probe["peer"]] = (min(lowest, rtt_ms), last, rtt_ms_last)
        for change in batch["clients"]:
            cells.changes.setdefault(broker, set()).add((change["client"], change["sequence"]))

    def _close(self, starts: Iterable[int]) -> list[ReferenceWindow]:
        closed = []
        for start_ms in list(starts):
            late_rows, self._late_rows_unreported = self._late_rows_unreported, 0
            window = Window(start_ms, start_ms + self._window_ms)
            closed.append(_window_of(window, self._open.pop(start_ms), late_rows))
        return closed


def _cells_of(batch: Batch) -> Iterator[Mapping[str, Any]]:
    """Yield all delivery cells of a batch, single and packed."""
    yield from batch["deliveries"]
    for packed in batch.get("seconds", ()):
        second = PackedSecond(**packed)
        for cell in second.cells():
            yield {"second": second.second, **dict(zip(CELL_FIELDS, cell, strict=True))}


def _take_delay(cells: _Cells, batch: Batch, delay_ms: int, is_off: bool) -> None:
    broker = batch["broker"]
    cells.delays_ms[broker] = min(cells.delays_ms.get(broker, delay_ms), delay_ms)
    off = cells.clocks_off.setdefault(broker, set())
    if is_off:
        off.add((batch["boot"], batch["sequence"]))


def _take_sample(
    queues: dict[tuple[str, str], _Queue], name: tuple[str, str], sample: Mapping[str, int], moment: Moment
) -> None:
    figures = [moment[1], *(sample[counter] for counter in COUNTERS)]
    queue = queues.get(name)
    if queue is None:
        queue = queues[name] = _Queue(moment, sample["queue_length"], sample["queue_length_max"], {})
    if moment >= queue.last:
        queue.last, queue.length_last = moment, sample["queue_length"]
    queue.length_max = max(queue.length_max, sample["queue_length_max"])
    least, greatest = queue.boots.get(moment[0], (figures, figures))
    queue.boots[moment[0]] = (
        [min(pair) for pair in zip(least, figures, strict=True)],
        [max(pair) for pair in zip(greatest, figures, strict=True)],
    )


def _window_of(window: Window, cells: _Cells, late_rows: int) -> ReferenceWindow:
    masks: dict[tuple[str, str], dict[int, tuple[int, int]]] = {}
    sums: dict[tuple[str, str], list[int]] = {}
    for (publisher, broker, block, _second), (mask, published, local, size) in cells.deliveries.items():
        blocks = masks.setdefault((publisher, broker), {})
        mask_before, published_before = blocks.get(block, (0, 0))
        blocks[block] = (mask_before | mask, published_before | published)
        total = sums.setdefault((publisher, broker), [0, 0])
        total[0] += local
        total[1] += size
    deliveries = [_delivery(window, name, masks[name], sums[name]) for name in sorted(masks)]
    queues = [_queue(window, name, cells.queues[name]) for name in sorted(cells.queues)]
    rtts = [rtt_row(window, *name, cells.probes[name][0], cells.probes[name][2]) for name in sorted(cells.probes)]
    churn = [
        churn_row(window, broker, len(changes), len({client for client, _ in changes}))
        for broker, changes in sorted(cells.changes.items())
    ]
    kinds = (deliveries, queues, rtts, churn)
    marker = WindowClosed(
        window_start_ms=window.start_ms,
        window_end_ms=window.end_ms,
        query_version=QUERY_VERSION,
        row_counts={kind: len(rows) for kind, rows in zip(ROW_KINDS, kinds, strict=True)},
        brokers=tuple(_completeness(*name, cells.batches[name]) for name in sorted(cells.batches)),
        late_rows=late_rows,
        clocks=tuple(
            BrokerClock(broker, delay_ms, len(cells.clocks_off[broker]))
            for broker, delay_ms in sorted(cells.delays_ms.items())
        ),
    )
    return ReferenceWindow(tuple(row for rows in kinds for row in rows), marker)


def _delivery(
    window: Window, name: tuple[str, str], blocks: Mapping[int, tuple[int, int]], sums: list[int]
) -> StateRow:
    publisher, broker = name
    ordered = sorted(blocks.items())
    body = PublisherDelivery(
        publisher=publisher,
        broker=broker,
        notifications=sum(((mask | published) & UNSIGNED).bit_count() for _, (mask, published) in ordered),
        local_deliveries=min(sums[0], SUM_MAX),
        bytes=min(sums[1], SUM_MAX),
        blocks=tuple(block for block, _ in ordered),
        masks=tuple(mask for _, (mask, _) in ordered),
        published=tuple(published for _, (_, published) in ordered),
    )
    return delivery_row(window, body)


def _queue(window: Window, name: tuple[str, str], queue: _Queue) -> StateRow:
    moved = [0] * (len(COUNTERS) + 1)
    for least, greatest in queue.boots.values():
        moved = [total + high - low for total, low, high in zip(moved, least, greatest, strict=True)]
    span_ms, *counters = (min(total, SUM_MAX) for total in moved)
    span = QueueSpan(
        **dict(zip(COUNTERS, counters, strict=True)),
        span_ms=span_ms,
        queue_length_last=queue.length_last,
        queue_length_max=queue.length_max,
    )
    return queue_row(window, *name, span)


def _completeness(broker: str, boot: int, seen: Mapping[int, tuple[int, int]]) -> BrokerCompleteness:
    first, last = min(seen), max(seen)
    return BrokerCompleteness(
        broker=broker,
        boot=boot,
        sequence_min=first,
        sequence_max=last,
        received=len(seen),
        expected=last - first + 1,
        epoch_min=min(epoch for epoch, _ in seen.values()),
        epoch_max=max(epoch for _, epoch in seen.values()),
    )
