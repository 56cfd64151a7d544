"""Merged figures of whole windows -> state rows and the WindowClosed marker. Pure: same input, same rows, same order.

In: ``merge_parts.MergedWindows``, of all brokers or of one shard's. Out: a ``ShardWindow`` for each window, ascending;
``join_window`` makes the marker from those of all shards. Writing does not belong here. Delivery rows, by far the most,
stay columns until a caller asks for records (``encode_rows`` does not).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msgspec import Struct

from regraft.schemas.state import BrokerClock, BrokerCompleteness, PublisherDelivery, StateRow, WindowClosed
from regraft.streaming.bound_marker import bounded_marker, newest_boots
from regraft.streaming.build_rows import (
    ROW_KINDS,
    QueueSpan,
    Window,
    churn_row,
    delivery_row,
    queue_row,
    rtt_row,
)
from regraft.streaming.merge_parts import QUEUE_COUNTERS, MergedDeliveries, MergedWindows, window_slice
from regraft.streaming.streaming_settings import QUERY_VERSION

BOOTS_MAX = 16  # Of one broker in a window: no broker restarts as often, but a sender may claim any number of boots.


class ShardSummary(Struct, frozen=True):
    """A shard's report on its rows of one window: how many there are of each kind, and its part of the marker.

    ``boots_cut`` is the number of boots beyond BOOTS_MAX, the older ones, that are left out of ``brokers``.
    """

    window_start_ms: int
    row_counts: dict[str, int]
    brokers: tuple[BrokerCompleteness, ...]
    clocks: tuple[BrokerClock, ...]
    boots_cut: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class ShardWindow:
    """The rows of one window in one shard: deliveries as columns, then queue, rtt and churn by name."""

    window: Window
    deliveries: MergedDeliveries
    others: tuple[StateRow, ...]
    summary: ShardSummary


@dataclass(frozen=True, slots=True)
class JoinedWindow:
    """What needs all shards of one window: the marker that follows all rows, and how many boots it leaves out."""

    window: Window
    marker: WindowClosed
    boots_cut: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class WindowRows:
    """All rows of one window, in the order in which they are written, and the marker that follows them.

    Row order: delivery, queue, rtt, churn; within a kind by name.
    """

    shard: ShardWindow
    joined: JoinedWindow

    @property
    def window(self) -> Window:
        """Its span of time."""
        return self.shard.window

    @property
    def marker(self) -> WindowClosed:
        """The marker that follows all rows."""
        return self.joined.marker

    def delivery_rows(self) -> Iterator[StateRow]:
        """Yield the delivery rows as records."""
        columns = self.shard.deliveries
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
        return [*self.delivery_rows(), *self.shard.others]


def close_windows(merged: MergedWindows, window_ms: int, late_rows: int = 0) -> list[WindowRows]:
    """Return rows and marker of each window of all brokers; only the first marker reports ``late_rows``."""
    closed: list[WindowRows] = []
    for shard in shard_windows(merged, window_ms):
        joined = join_window([shard.summary], window_ms, 0 if closed else late_rows)
        closed.append(WindowRows(shard, joined))
    return closed


def shard_windows(merged: MergedWindows, window_ms: int) -> list[ShardWindow]:
    """Return one shard's rows of each window, ascending."""
    closed: list[ShardWindow] = []
    for start_ms in merged.window_starts_ms.tolist():
        window = Window(start_ms, start_ms + window_ms)
        queues, rtts, churn = (tuple(rows(merged, window)) for rows in (_queue_rows, _rtt_rows, _churn_rows))
        deliveries = merged.deliveries.of_window(start_ms)
        counts = (deliveries.stop - deliveries.start, len(queues), len(rtts), len(churn))
        every = tuple(_completeness(merged, window))
        brokers = newest_boots(every, BOOTS_MAX)
        summary = ShardSummary(
            start_ms,
            dict(zip(ROW_KINDS, counts, strict=True)),
            brokers,
            tuple(_clocks(merged, window)),
            len(every) - len(brokers),
        )
        closed.append(ShardWindow(window, merged.deliveries, (*queues, *rtts, *churn), summary))
    return closed


def join_window(shards: Sequence[ShardSummary], window_ms: int, late_rows: int = 0) -> JoinedWindow:
    """Return the marker of a window from the reports of all shards with rows in it, no longer than Kafka accepts."""
    window = Window(shards[0].window_start_ms, shards[0].window_start_ms + window_ms)
    kinds = dict.fromkeys(kind for shard in shards for kind in shard.row_counts)
    counts = {kind: sum(shard.row_counts.get(kind, 0) for shard in shards) for kind in kinds}
    marker = WindowClosed(
        window_start_ms=window.start_ms,
        window_end_ms=window.end_ms,
        query_version=QUERY_VERSION,
        row_counts=counts,
        brokers=tuple(
            sorted((one for shard in shards for one in shard.brokers), key=lambda one: (one.broker, one.boot))
        ),
        late_rows=late_rows,
        clocks=tuple(sorted((one for shard in shards for one in shard.clocks), key=lambda one: one.broker)),
    )
    fitting = bounded_marker(marker)
    cut = sum(shard.boots_cut for shard in shards) + len(marker.brokers) - len(fitting.brokers)
    return JoinedWindow(window, fitting, cut)


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
