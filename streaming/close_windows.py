"""Merged figures of whole windows -> state rows and the WindowClosed marker. Pure: same input, same rows, same order.

In: ``merge_parts.MergedWindows``. Out: one ``WindowRows`` for each window, ascending. Writing them does not belong
here; delivery rows, by far the most, stay columns until somebody asks for records (``encode_rows`` does not).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from regraft.overlay.delivery_sets import DeliverySets
from regraft.schemas.state import BrokerClock, BrokerCompleteness, PublisherDelivery, StateRow, WindowClosed
from regraft.streaming.build_rows import (
    ROW_KINDS,
    QueueSpan,
    Window,
    churn_row,
    delivery_row,
    interest_row,
    queue_row,
    rtt_row,
)
from regraft.streaming.merge_parts import QUEUE_COUNTERS, MergedDeliveries, MergedWindows, distinct, window_slice
from regraft.streaming.streaming_settings import QUERY_VERSION, SECOND_MS


@dataclass(frozen=True, eq=False, slots=True)
class WindowRows:
    """All rows of one window, in the order they are written, and the marker that follows them.

    Row order: interest, delivery, queue, rtt, churn; within a kind by name.
    """

    window: Window
    interest: tuple[StateRow, ...]
    deliveries: MergedDeliveries
    others: tuple[StateRow, ...]
    marker: WindowClosed

    def delivery_rows(self) -> Iterator[StateRow]:
        """Yield the delivery rows as records."""
        columns = self.deliveries
        rows = columns.of_window(self.window.start_ms)
        for row in range(rows.start, rows.stop):
            cells = slice(int(columns.starts[row]), int(columns.starts[row + 1]))
            yield delivery_row(
                self.window,
                PublisherDelivery(
                    publisher=columns.publishers[columns.publisher[row]],
                    broker=columns.brokers[columns.broker[row]],
                    notifications=int(columns.notifications[row]),
                    local_deliveries=int(columns.local_deliveries[row]),
                    bytes=int(columns.bytes[row]),
                    blocks=tuple(columns.blocks[cells].tolist()),
                    masks=tuple(columns.masks[cells].tolist()),
                    published=tuple(columns.published[cells].tolist()),
                ),
            )

    def rows(self) -> list[StateRow]:
        """Return all rows as records, in order."""
        return [*self.interest, *self.delivery_rows(), *self.others]


def close_windows(merged: MergedWindows, window_ms: int, late_rows: int = 0) -> list[WindowRows]:
    """Return rows and marker of each window; ``late_rows`` is told by the first marker, once."""
    closed: list[WindowRows] = []
    for position, start_ms in enumerate(merged.window_starts_ms.tolist()):
        window = Window(start_ms, start_ms + window_ms)
        interest = tuple(_interest_rows(merged.deliveries, window))
        queues = tuple(_queue_rows(merged, window))
        rtts = tuple(_rtt_rows(merged, window))
        churn = tuple(_churn_rows(merged, window))
        deliveries = merged.deliveries.of_window(start_ms)
        counts = (len(interest), deliveries.stop - deliveries.start, len(queues), len(rtts), len(churn))
        marker = WindowClosed(
            window_start_ms=window.start_ms,
            window_end_ms=window.end_ms,
            query_version=QUERY_VERSION,
            row_counts=dict(zip(ROW_KINDS, counts, strict=True)),
            brokers=tuple(_completeness(merged, window)),
            late_rows=late_rows if position == 0 else 0,
            clocks=tuple(_clocks(merged, window)),
        )
        closed.append(WindowRows(window, interest, merged.deliveries, (*queues, *rtts, *churn), marker))
    return closed


def delivery_sets(deliveries: MergedDeliveries, window: Window) -> DeliverySets:
    """Return V(n) of one window over the brokers that published or delivered something in it."""
    rows = deliveries.of_window(window.start_ms)
    cells = slice(int(deliveries.starts[rows.start]), int(deliveries.starts[rows.stop]))
    lengths = np.diff(deliveries.starts[rows.start : rows.stop + 1])
    blocks, masks = deliveries.blocks[cells], deliveries.masks[cells] | deliveries.published[cells]
    publisher = np.repeat(deliveries.publisher[rows], lengths)
    [broker_codes], broker = distinct([np.repeat(deliveries.broker[rows], lengths)])
    [publisher_codes, column_blocks], column = distinct([publisher, blocks])
    names = zip(publisher_codes.tolist(), column_blocks.tolist(), strict=True)
    columns = tuple((deliveries.publishers[code], block) for code, block in names)
    words = np.zeros((broker_codes.size, len(columns)), dtype=np.uint64)
    words[broker, column] = masks.view(np.uint64)
    brokers = tuple(deliveries.brokers[code] for code in broker_codes.tolist())
    return DeliverySets(brokers, columns, words, (window.end_ms - window.start_ms) / SECOND_MS)


def _interest_rows(deliveries: MergedDeliveries, window: Window) -> Iterator[StateRow]:
    sets = delivery_sets(deliveries, window)
    common = sets.interest()
    names = np.array(sets.brokers, dtype=object)
    for position, broker in enumerate(sets.brokers):
        counts = common[position].copy()
        own = int(counts[position])
        counts[position] = 0
        peers = np.flatnonzero(counts)
        yield interest_row(window, broker, own, tuple(names[peers].tolist()), tuple(counts[peers].tolist()))


def _queue_rows(merged: MergedWindows, window: Window) -> Iterator[StateRow]:
    queues = merged.queues
    rows = window_slice(queues.window_start_ms, window.start_ms)
    for row in range(rows.start, rows.stop):
        span = QueueSpan(
            **{name: int(column[row]) for name, column in zip(QUEUE_COUNTERS, queues.counters, strict=True)},
            span_ms=int(queues.span_ms[row]),
            queue_length_last=int(queues.queue_length_last[row]),
            queue_length_max=int(queues.queue_length_max[row]),
        )
        yield queue_row(window, queues.brokers[queues.broker[row]], queues.peers[queues.peer[row]], span)


def _rtt_rows(merged: MergedWindows, window: Window) -> Iterator[StateRow]:
    probes = merged.probes
    rows = window_slice(probes.window_start_ms, window.start_ms)
    for row in range(rows.start, rows.stop):
        broker, peer = probes.brokers[probes.broker[row]], probes.peers[probes.peer[row]]
        yield rtt_row(window, broker, peer, float(probes.rtt_ms_min[row]), float(probes.rtt_ms_last[row]))


def _churn_rows(merged: MergedWindows, window: Window) -> Iterator[StateRow]:
    changes = merged.changes
    rows = window_slice(changes.window_start_ms, window.start_ms)
    for row in range(rows.start, rows.stop):
        broker = changes.brokers[changes.broker[row]]
        yield churn_row(window, broker, int(changes.changes[row]), int(changes.clients[row]))


def _completeness(merged: MergedWindows, window: Window) -> Iterator[BrokerCompleteness]:
    batches = merged.batches
    rows = window_slice(batches.window_start_ms, window.start_ms)
    for row in range(rows.start, rows.stop):
        first, last = int(batches.sequence_min[row]), int(batches.sequence_max[row])
        yield BrokerCompleteness(
            broker=batches.brokers[batches.broker[row]],
            boot=int(batches.boot[row]),
            sequence_min=first,
            sequence_max=last,
            received=int(batches.received[row]),
            expected=last - first + 1,
            epoch_min=int(batches.epoch_min[row]),
            epoch_max=int(batches.epoch_max[row]),
        )


def _clocks(merged: MergedWindows, window: Window) -> Iterator[BrokerClock]:
    clocks = merged.clocks
    rows = window_slice(clocks.window_start_ms, window.start_ms)
    for row in range(rows.start, rows.stop):
        name = clocks.brokers[clocks.broker[row]]
        yield BrokerClock(name, int(clocks.delay_ms_min[row]), int(clocks.refused[row]))
