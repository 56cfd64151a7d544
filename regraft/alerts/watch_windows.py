"""Judge windows one by one: levels, growth, silence. Memory is bounded by how far rules look back.

In: windows in order, and the raised alerts. Out: findings. A watcher that has seen the last windows of its rule's span
finds the same as one that has seen all windows, so a restarted alert stage rereads these and continues.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Protocol

from regraft.alerts.findings import NAMES_MAX, Finding, RaisedAlerts, Reading
from regraft.alerts.gather_windows import SeenWindow
from regraft.alerts.rule_kinds import GrowthRule, LevelRule, QueueScope, Rule, SilentRule
from regraft.schemas.alert import AlertStatus
from regraft.schemas.clock_offsets import clock_offsets_ms, offset_text
from regraft.schemas.state import QueueState
from regraft.schemas.texts import name_some

ALL_WINDOWS = "windows"  # The subject of alerts about windows in general.
GONE = "It is no longer reported."
LINK_SIGN = ">"
BROKERS_MAX = 10_000  # The most brokers whose silence is watched.


class WindowWatcher(Protocol):
    """Judges each window for one rule."""

    def watch(self, window: SeenWindow, raised: RaisedAlerts) -> list[Finding]:
        """Process a window; return the findings."""


class _Streaks:
    """Counts for how many windows in a row each subject asked to raise, or to clear, its alert, up to what matters."""

    def __init__(self, rule: Rule, for_windows: int, clear_for_windows: int) -> None:
        self._rule = rule
        self._for_windows, self._clear_for_windows = for_windows, clear_for_windows
        self._counts: dict[str, tuple[int, int]] = {}

    def take(self, readings: Mapping[str, Reading], window: SeenWindow, raised: RaisedAlerts) -> list[Finding]:
        """Process the readings of a window; a subject without one is gone, unless rows of the window are missing."""
        active = raised.subjects(self._rule.name)
        absent = (self._counts.keys() | active) - readings.keys()
        counts = {subject: self._counts.get(subject, (0, 0)) for subject in absent} if window.rows_missing else {}
        ended = () if window.rows_missing else absent & active
        findings = []
        for subject in sorted({*readings, *ended}):
            reading = readings.get(subject, Reading(0.0, is_above=False, is_below=True, detail=GONE))
            above, below = self._counts.get(subject, (0, 0))
            above = min(above + 1, self._for_windows) if reading.is_above else 0
            below = min(below + 1, self._clear_for_windows) if reading.is_below else 0
            counts[subject] = above, below
            if subject in active and below >= self._clear_for_windows:
                findings.append(_finding(self._rule, subject, AlertStatus.CLEARED, window.end_ms, reading))
            elif subject not in active and above >= self._for_windows:
                findings.append(_finding(self._rule, subject, AlertStatus.RAISED, window.end_ms, reading))
        self._counts = counts
        return findings


class LevelWatcher:
    """Compares a value of each window with two bounds."""

    def __init__(self, rule: LevelRule) -> None:
        self._rule = rule
        self._streaks = _Streaks(rule, rule.for_windows, rule.clear_for_windows)

    def watch(self, window: SeenWindow, raised: RaisedAlerts) -> list[Finding]:
        """Compare the window's values with the bounds."""
        figures = QUEUE_FIGURES.get(self._rule.on)
        if figures is not None:
            levels = {
                queue_name(queue): self._reading(figures(queue), _ends(queue))
                for queue in _queues(window, self._rule.of)
            }
        elif self._rule.on == "window.incomplete":
            levels = {ALL_WINDOWS: self._incomplete(window)}
        elif self._rule.on == "broker.clock":
            levels = self._clocks(window)
        elif self._rule.on == "window.late":
            levels = {ALL_WINDOWS: self._reading(max(window.written_ms - window.end_ms, 0) / 1000)}
        else:
            levels = {ALL_WINDOWS: self._reading(float(window.late_rows))}
        return self._streaks.take(levels, window, raised)

    def _reading(self, value: float, brokers: tuple[str, ...] = (), detail: str = "") -> Reading:
        return Reading(value, value > self._rule.above, value <= self._rule.clear_below, brokers, detail)

    def _clocks(self, window: SeenWindow) -> dict[str, Reading]:
        offsets_ms = clock_offsets_ms(window.clocks)
        readings = {}
        for clock in window.clocks:
            offset_ms = offsets_ms[clock.broker]
            refused = f", {clock.refused} of its batches were refused because of it" if clock.refused else ""
            detail = f"{offset_text(offset_ms)}{refused}"
            readings[clock.broker] = self._reading(abs(offset_ms) / 1_000, (clock.broker,), detail)
        return readings

    def _incomplete(self, window: SeenWindow) -> Reading:
        missing: dict[str, float] = {}
        for entry in window.brokers:
            share = 1 - entry.received / entry.expected if entry.expected else 0.0
            missing[entry.broker] = max(missing.get(entry.broker, 0.0), share)
        short = sorted(broker for broker, share in missing.items() if share > self._rule.clear_below)
        detail = name_some(short, NAMES_MAX)
        if window.rows_missing:
            detail = f"{detail}, {window.rows_missing} rows are missing".removeprefix(", ")
        worst = max(missing.values(), default=0.0)
        if window.rows_missing:
            promised = window.rows_missing + len(window.queues)
            worst = max(worst, window.rows_missing / promised)
        return self._reading(worst, tuple(short), detail)


class GrowthWatcher:
    """Watches for queues that grow from window to window and end up much longer."""

    def __init__(self, rule: GrowthRule) -> None:
        self._rule = rule
        self._streaks = _Streaks(rule, 1, rule.clear_for_windows)
        self._lengths: dict[str, deque[int]] = {}

    def watch(self, window: SeenWindow, raised: RaisedAlerts) -> list[Finding]:
        """Compare the window's queue lengths with the earlier ones."""
        queues = {queue_name(queue): queue for queue in _queues(window, self._rule.of)}
        kept = self._lengths if window.rows_missing else {}
        self._lengths = {
            **kept,
            **{name: self._lengths.get(name, deque(maxlen=self._rule.for_windows + 1)) for name in queues},
        }
        readings = {name: self._reading(queue, self._lengths[name]) for name, queue in queues.items()}
        return self._streaks.take(readings, window, raised)

    def _reading(self, queue: QueueState, lengths: deque[int]) -> Reading:
        length = queue.queue_length_last
        shrinks = not lengths or length <= lengths[-1]
        lengths.append(length)
        listed = list(lengths)
        is_full = len(listed) == self._rule.for_windows + 1
        rises = all(later > earlier for earlier, later in pairwise(listed))
        is_longer = length > listed[0] and length >= self._rule.factor * max(listed[0], 1)
        is_above = is_full and rises and is_longer and length >= self._rule.length_min
        detail = f"{listed[0]} to {length} messages in {len(listed) - 1} windows"
        return Reading(float(length), is_above, shrinks or length < self._rule.length_min, _ends(queue), detail)


class SilentWatcher:
    """Watches for brokers that reported once but no longer do."""

    def __init__(self, rule: SilentRule) -> None:
        self._rule = rule
        self._streaks = _Streaks(rule, rule.for_windows, rule.clear_for_windows)
        self._seen_ms: dict[str, int] = {}
        self._missed: dict[str, int] = {}

    @property
    def known(self) -> frozenset[str]:
        """Return the brokers that are expected to report."""
        return frozenset(self._seen_ms)

    def watch(self, window: SeenWindow, raised: RaisedAlerts) -> list[Finding]:
        """Judge which brokers the window lacks."""
        for broker in sorted(window.broker_names):
            if broker in self._seen_ms or len(self._seen_ms) < BROKERS_MAX:
                self._seen_ms[broker] = window.end_ms
        for broker in raised.subjects(self._rule.name) - self._seen_ms.keys():
            self._seen_ms[broker] = raised.changed_ms(self._rule.name, broker)
        self._forget(window.end_ms, raised)
        readings = {}
        for broker in self._seen_ms:
            is_here = broker in window.broker_names
            self._missed[broker] = 0 if is_here else self._missed.get(broker, 0) + 1
            readings[broker] = Reading(float(self._missed[broker]), not is_here, is_here, (broker,))
        forgotten = raised.subjects(self._rule.name) - readings.keys()
        findings = [each for each in self._streaks.take(readings, window, raised) if each.subject not in forgotten]
        gone = Reading(0.0, is_above=False, is_below=True, detail="It is considered gone for good.")
        left = [_finding(self._rule, broker, AlertStatus.CLEARED, window.end_ms, gone) for broker in sorted(forgotten)]
        return findings + left

    def _forget(self, now_ms: int, raised: RaisedAlerts) -> None:
        active, long_ms = raised.subjects(self._rule.name), self._rule.forget_after_s * 1000
        since_ms = {
            broker: max(seen_ms, raised.changed_ms(self._rule.name, broker) if broker in active else 0)
            for broker, seen_ms in self._seen_ms.items()
        }
        left = [broker for broker, last_ms in since_ms.items() if now_ms - last_ms > long_ms]
        for broker in left:
            del self._seen_ms[broker]
            self._missed.pop(broker, None)


QUEUE_FIGURES: Mapping[str, Callable[[QueueState], float]] = {
    "queue.congestion": lambda queue: queue.congestion,
    "queue.length": lambda queue: float(queue.queue_length_last),
    "queue.busy": lambda queue: queue.busy_share,
}


def queue_name(queue: QueueState) -> str:
    """Return a queue's name as a subject: the broker, or for a link the broker and its peer."""
    return f"{queue.broker}{LINK_SIGN}{queue.peer}" if queue.peer else queue.broker


def _ends(queue: QueueState) -> tuple[str, ...]:
    return (queue.broker, queue.peer) if queue.peer else (queue.broker,)


def _queues(window: SeenWindow, of: QueueScope) -> Iterator[QueueState]:
    for queue in window.queues:
        if of == "both" or (of == "links") == bool(queue.peer):
            yield queue


def _finding(rule: Rule, subject: str, status: AlertStatus, time_ms: int, reading: Reading) -> Finding:
    return Finding(rule.name, subject, status, time_ms, reading.value, rule.limit, reading.brokers, reading.detail)
