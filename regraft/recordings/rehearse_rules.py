"""Run rules over a recording, in its own time and without Kafka: what would be raised and cleared, and when.

In: a recording and rules. Out: the changes of alerts, in order, and whether they would have been reported. A recording
without state is first aggregated by the reference implementation in plain Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from regraft.alerts.alert_desk import AlertDesk
from regraft.alerts.alert_engine import AlertEngine
from regraft.alerts.notify_targets import Silencer
from regraft.alerts.read_rules import RuleBook
from regraft.producers.recordings.read_recording import RecordedMessage, Recording
from regraft.schemas.alert import Alert
from regraft.schemas.codec import UndecodableRecordError, decode
from regraft.schemas.dead_letter import DeadLetter
from regraft.schemas.event import AdaptationEvent, Severity
from regraft.schemas.member import Member
from regraft.schemas.order import Order
from regraft.schemas.plan import Plan
from regraft.schemas.state import StateRow, WindowClosed
from regraft.schemas.telemetry import TelemetryBatch
from regraft.schemas.topics import DEAD_LETTERS, EVENTS, MEMBERS, ORDERS, PLANS, STATE, TELEMETRY, WINDOWS
from regraft.streaming.reference_aggregator import ANY_TIME, ReferenceAggregator
from regraft.streaming.streaming_settings import EventBounds

TICK_MS = 1_000
QUEUE_KEY = b"/queue/"
TYPES: dict[str, type[msgspec.Struct]] = {
    STATE.suffix: StateRow,
    WINDOWS.suffix: WindowClosed,
    PLANS.suffix: Plan,
    MEMBERS.suffix: Member,
    EVENTS.suffix: AdaptationEvent,
    ORDERS.suffix: Order,
    DEAD_LETTERS.suffix: DeadLetter,
}
REGISTERS = (ORDERS.suffix, PLANS.suffix, MEMBERS.suffix)  # A recording begins with their records from before it.


@dataclass(frozen=True)
class RehearsedChange:
    """An alert that changed its status; ``at_s`` is in seconds after the start of the first window, to a tenth.

    ``silenced_by`` is the reason why nobody would have been notified then, empty if somebody would.
    """

    at_s: float
    alert: Alert
    silenced_by: str


@dataclass(frozen=True)
class Rehearsal:
    """All changes in order of time, and what was read.

    ``is_aggregated``: the state was aggregated from telemetry. ``undecodable`` counts invalid records.
    """

    changes: tuple[RehearsedChange, ...]
    begin_ms: int
    end_ms: int
    windows: int
    messages: int
    undecodable: int
    is_aggregated: bool


@dataclass(frozen=True)
class RehearsalSettings:
    """Settings of the stages: windows, grace and bounds of telemetry; quiet hours and the severity exempt from them."""

    window_ms: int
    grace_ms: int
    bounds: EventBounds = ANY_TIME
    quiet_hours: str = ""
    quiet_below: Severity = Severity.CRITICAL


def rehearse_rules(
    recording: Recording,
    rules: RuleBook,
    settings: RehearsalSettings,
    report_done: Callable[[int], None] = lambda done: None,
) -> Rehearsal:
    """Return what the rules find in a recording; ``report_done`` is called with the number of messages read."""
    return _Rehearser(recording, rules, settings).run(report_done)


class _Rehearser:
    def __init__(self, recording: Recording, rules: RuleBook, settings: RehearsalSettings) -> None:
        self._recording, self._rules, self._settings = recording, rules, settings
        held = set(recording.info.topics)
        self._is_aggregated = not {STATE.suffix, WINDOWS.suffix} <= held
        self._aggregator = ReferenceAggregator(settings.window_ms, settings.grace_ms, settings.bounds)
        self._engine: AlertEngine | None = None
        self._desk: AlertDesk | None = None
        self._registers: list[tuple[msgspec.Struct, int]] = []
        self._begin_ms = self._now_ms = self._ticked_ms = 0
        self._messages = self._undecodable = 0
        self._changes: list[RehearsedChange] = []

    def run(self, report_done: Callable[[int], None]) -> Rehearsal:
        """Process the whole recording."""
        wanted = set(TYPES) - {STATE.suffix, WINDOWS.suffix} | {TELEMETRY.suffix} if self._is_aggregated else set(TYPES)
        for message in self._recording.messages(wanted):
            self._messages += 1
            if self._messages % 1_000 == 0:
                report_done(self._messages)
            self._take(message)
        if self._engine is not None and self._is_aggregated:
            for window in self._aggregator.finish():
                self._judge((*window.rows, window.marker), self._now_ms)
        return Rehearsal(
            tuple(sorted(self._changes, key=lambda change: change.at_s)),
            self._begin_ms,
            self._now_ms,
            0 if self._engine is None else self._engine.windows_judged,
            self._messages,
            self._undecodable,
            self._is_aggregated,
        )

    def _take(self, message: RecordedMessage) -> None:
        records = list(self._records(message))
        if self._engine is None:
            if message.topic in REGISTERS:
                self._registers += [(record, message.time_ms) for record in records]
                return
            self._begin(message, records)
        self._now_ms = max(self._now_ms, message.time_ms)
        if self._now_ms - self._ticked_ms >= TICK_MS:
            self._ticked_ms = self._now_ms
            self._judge((), self._now_ms)
        self._judge(records, message.time_ms)

    def _begin(self, message: RecordedMessage, records: list[msgspec.Struct]) -> None:
        """Begin at the first message that is not from a register; seconds count from the start of its window."""
        time_ms = self._begin_ms = self._now_ms = self._ticked_ms = message.time_ms
        first = records[0] if records else None
        if isinstance(first, (StateRow, WindowClosed)):
            self._begin_ms = first.window_start_ms
        elif message.topic == TELEMETRY.suffix:
            self._begin_ms = time_ms - time_ms % self._settings.window_ms
        self._engine = AlertEngine(self._rules, time_ms)
        quiet = self._settings
        self._desk = AlertDesk(
            self._engine, Silencer(self._rules.by_name, quiet.quiet_hours, quiet.quiet_below), (), "", ""
        )
        for record, written_ms in self._registers:
            self._engine.take(record, written_ms, time_ms, is_known=True)

    def _records(self, message: RecordedMessage) -> Iterator[msgspec.Struct]:
        """Yield the records that a message leads to: its own, or those of the windows that its telemetry closes."""
        if message.value is None or (message.topic == STATE.suffix and QUEUE_KEY not in message.key):
            return
        try:
            if message.topic != TELEMETRY.suffix:
                yield decode(message.value, TYPES[message.topic])
                return
            batch = decode(message.value, TelemetryBatch)
        except UndecodableRecordError:
            self._undecodable += 1
            return
        # Rules need queues and which brokers report, but not the deliveries, which take most of the time.
        bare = msgspec.structs.replace(batch, deliveries=(), seconds=())
        self._aggregator.take(msgspec.to_builtins(bare), message.time_ms)
        for window in self._aggregator.advance():
            yield from window.rows
            yield window.marker

    def _judge(self, records: list[msgspec.Struct] | tuple[msgspec.Struct, ...], written_ms: int) -> None:
        """Process records, or if there are none advance the clock, and collect the changes."""
        engine, desk = self._engine, self._desk
        assert engine is not None
        assert desk is not None
        changed = [] if records else engine.tick(self._now_ms)
        for record in records:
            changed += engine.take(record, written_ms, self._now_ms)
        if changed or not records:
            desk.notify(self._now_ms)
            desk.stored()
        for alert in changed:
            silenced_by = engine.book.alerts[alert.key].silenced_by
            at_s = round((alert.changed_ms - self._begin_ms) / 1000, 1)
            self._changes.append(RehearsedChange(at_s, alert, silenced_by))
