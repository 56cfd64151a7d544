"""Assemble state rows and window markers into closed windows, in whatever order and however often they arrive.

In: StateRow and WindowClosed records. Out: ClosedWindow values in the order of time, each once. Whether a window is
good enough to act on is judged elsewhere; here it only states what it lacks. Every buffer is bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from regraft.controller.settings.controller_settings import AssemblyLimits
from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.windows.gather_deliveries import gather_deliveries
from regraft.schemas.clock_offsets import clock_offsets_ms
from regraft.schemas.state import BrokerCompleteness, StateRow, WindowClosed
from regraft.schemas.texts import name_some

BROKERS_NAMED_MAX = 5  # Brokers named in an error; the others are only counted.


@dataclass
class _PendingWindow:
    end_ms: int
    rows: dict[tuple[str, str], StateRow] = field(default_factory=dict)
    row_count: int = 0  # Rows in ``rows``, counting each one packed in a record.
    unknown: set[tuple[str, str]] = field(default_factory=set)  # Rows of unknown brokers: received, but not used.
    marker: WindowClosed | None = None
    marker_came_ms: int = 0

    def missing_rows(self) -> dict[str, int]:
        """Return by kind how many rows the marker counts that have not arrived."""
        if self.marker is None:
            return {}
        seen = Counter(kind for kind, _ in (*self.rows, *self.unknown))
        return {kind: count - seen[kind] for kind, count in self.marker.row_counts.items() if count > seen[kind]}


class WindowAssembler:
    """Collects rows and markers, and returns each window once, oldest first.

    A window is complete if all brokers awaited when it closes have reported (at first all brokers); others may report,
    too. ``refused`` counts the records that were not used, by reason.
    """

    def __init__(self, brokers: Sequence[str], limits: AssemblyLimits) -> None:
        self._brokers = tuple(sorted(brokers))
        self._known = frozenset(brokers)
        self._awaited = self._known
        self._limits = limits
        self._pending: dict[int, _PendingWindow] = {}
        self._closed_until_ms = -1
        self._batches_until: dict[str, tuple[int, int]] = {}  # broker -> (boot, last batch sequence)
        self._has_earlier_window = False
        self.refused: Counter[str] = Counter()

    def know(self, brokers: Sequence[str], awaited: Collection[str]) -> None:
        """Accept rows of these brokers (sorted) from now on, and await those expected to report."""
        if brokers != self._brokers:
            self._brokers, self._known = tuple(brokers), frozenset(brokers)
        self._awaited = frozenset(awaited)

    def add(self, record: StateRow | WindowClosed, now_ms: int) -> None:
        """Add one record; a row replaces one with the same key, and records of closed windows are refused."""
        if record.window_end_ms <= self._closed_until_ms:
            self.refused["window closed already"] += 1
        elif record.window_end_ms > now_ms + self._limits.future_ms_max:
            self.refused["window in the far future"] += 1
        else:
            window = self._pending.setdefault(record.window_start_ms, _PendingWindow(record.window_end_ms))
            if record.window_end_ms != window.end_ms:
                self.refused["window of a different length than in its first record"] += 1
            elif isinstance(record, StateRow):
                self._add_row(window, record)
            else:
                # The wait for rows starts at the first marker; a repeated marker brings the newest counts.
                window.marker_came_ms = window.marker_came_ms if window.marker else now_ms
                window.marker = record
            self._drop_excess()

    def closed(self, now_ms: int) -> list[ClosedWindow]:
        """Return the windows that close now, oldest first; each has a marker."""
        windows = []
        for start_ms in sorted(self._pending):
            window = self._pending[start_ms]
            if window.marker is None:
                if self._later_marker_waits(start_ms, now_ms):
                    break
                if not self._later_marker(start_ms):
                    continue
                self.refused["window without a marker"] += 1
            else:
                missing = window.missing_rows()
                if missing and now_ms - window.marker_came_ms < self._limits.rows_wait_ms:
                    break
                windows.append(self._close(start_ms, window, window.marker, missing))
            del self._pending[start_ms]
            self._closed_until_ms = max(self._closed_until_ms, window.end_ms)
        return windows

    def _add_row(self, window: _PendingWindow, row: StateRow) -> None:
        key, rows_max = (row.kind, row.entity), self._limits.rows_per_window_max
        unknown_count = self._unknown_rows(row)
        if unknown_count:
            self.refused["row of an unknown broker"] += unknown_count
        if unknown_count and row.packed_deliveries is None:
            if key in window.unknown or len(window.unknown) < rows_max:
                window.unknown.add(key)
            else:
                self.refused["too many rows in a window"] += 1
            return
        # Packed rows of unknown brokers are dropped when the window is gathered.
        before = _row_count(window.rows[key]) if key in window.rows else 0
        row_count = window.row_count - before + _row_count(row)
        if window.row_count < row_count > rows_max:
            self.refused["too many rows in a window"] += 1
        else:
            window.rows[key], window.row_count = row, row_count

    def _unknown_rows(self, row: StateRow) -> int:
        """Return how many rows of the record name unknown brokers."""
        packed = row.packed_deliveries
        if packed is None:
            return int(not self._known.issuperset(_brokers_of(row)))
        columns = packed.columns()
        unknown = [place for place, broker in enumerate(columns.brokers) if broker not in self._known]
        return int(np.isin(columns.broker, unknown).sum()) if unknown else 0

    def _drop_excess(self) -> None:
        while len(self._pending) > self._limits.windows_pending_max:
            oldest = min(self._pending)
            self._closed_until_ms = max(self._closed_until_ms, self._pending.pop(oldest).end_ms)
            self.refused["too many windows pending"] += 1

    def _later_marker(self, start_ms: int) -> bool:
        return any(other > start_ms and window.marker is not None for other, window in self._pending.items())

    def _later_marker_waits(self, start_ms: int, now_ms: int) -> bool:
        """Return True if a later window's marker is too recent to give up waiting for this one's."""
        later = [w.marker_came_ms for other, w in self._pending.items() if other > start_ms and w.marker is not None]
        return bool(later) and now_ms - min(later) < self._limits.rows_wait_ms

    def _close(
        self, start_ms: int, window: _PendingWindow, marker: WindowClosed, missing_rows: Mapping[str, int]
    ) -> ClosedWindow:
        entries = [entry for entry in marker.brokers if entry.broker in self._known]
        if len(entries) < len(marker.brokers):
            self.refused["unknown broker in a marker"] += len(marker.brokers) - len(entries)
        short = self._short_brokers(entries)
        newest = {entry.broker: entry for entry in sorted(entries, key=lambda entry: entry.boot) if entry.received}
        counted = [entry for entry in entries if entry.broker in self._awaited]
        errors = [f"rows missing: {count} of kind {kind}" for kind, count in sorted(missing_rows.items())]
        if short:
            named = name_some([f"{broker} ({why})" for broker, why in short.items()], BROKERS_NAMED_MAX)
            errors.append(f"too few batches of {named}")
        offsets_ms = clock_offsets_ms(clock for clock in marker.clocks if clock.broker in self._known)
        rows = list(window.rows.values())
        deliveries = gather_deliveries(rows, self._brokers, (window.end_ms - start_ms) / 1000)
        return ClosedWindow(
            start_ms=start_ms,
            end_ms=window.end_ms,
            sets=deliveries.sets,
            queues=tuple(row.queue for row in rows if row.queue is not None),
            rtts=tuple(row.rtt for row in rows if row.rtt is not None),
            client_changes=sum(row.churn.changes for row in rows if row.churn is not None),
            epoch_min=min((entry.epoch_min for entry in counted), default=-1),
            epoch_max=max((entry.epoch_max for entry in counted), default=-1),
            short_brokers=tuple(short),
            error="; ".join(errors),
            late_rows=marker.late_rows,
            homes=deliveries.homes,
            homeless=deliveries.homeless,
            local_deliveries=deliveries.local_deliveries,
            parts=deliveries.parts,
            clock_offsets_ms=offsets_ms,
            epochs={broker: entry.epoch_max for broker, entry in newest.items()},
            boots={broker: entry.boot for broker, entry in newest.items()},
        )

    def _short_brokers(self, entries: Sequence[BrokerCompleteness]) -> dict[str, str]:
        """Return the brokers with too few batches, each with how many of how many came.

        Batches lost between two windows show only as a gap in the sequence of one boot, so each window also accounts
        for the gap before it.
        """
        received: Counter[str] = Counter()
        expected: Counter[str] = Counter()
        for entry in sorted(entries, key=lambda entry: (entry.broker, entry.boot)):
            boot, last = self._batches_until.get(entry.broker, (None, -1))
            is_same_boot = boot == entry.boot
            if is_same_boot or self._has_earlier_window:
                gap = entry.sequence_min - (last if is_same_boot else -1) - 1
                expected[entry.broker] += max(gap, 0)
            received[entry.broker] += entry.received
            expected[entry.broker] += entry.expected
            if not is_same_boot or entry.sequence_max > last:
                self._batches_until[entry.broker] = (entry.boot, entry.sequence_max)
        self._has_earlier_window = True
        share_min = self._limits.completeness_share_min
        return {
            broker: f"{received[broker]} of {expected[broker]}" if expected[broker] else "none"
            for broker in sorted(self._awaited)
            if expected[broker] == 0 or received[broker] < share_min * expected[broker]
        }


def _row_count(row: StateRow) -> int:
    return 1 if row.packed_deliveries is None else max(row.packed_deliveries.row_count, 1)


def _brokers_of(row: StateRow) -> tuple[str, ...]:
    """Return the brokers that a row names, both ends of a link; the loop ignores the peers of common interest."""
    body = row.queue or row.rtt
    if body is not None:
        return (body.broker, body.peer) if body.peer else (body.broker,)
    single = row.delivery or row.interest or row.churn
    return () if single is None else (single.broker,)
