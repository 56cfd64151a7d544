"""Short notation for the windows, events and plans that alerts read, and an engine to feed them to."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from regraft.alerts.alert_engine import AlertEngine
from regraft.alerts.read_rules import RuleBook, parse_rules
from regraft.schemas.alert import Alert
from regraft.schemas.event import AdaptationEvent, EventKind, Severity
from regraft.schemas.plan import ClientMove, PhaseChange, Plan, PlanPhase
from regraft.schemas.state import BrokerClock, BrokerCompleteness, QueueState, StateRow, WindowClosed

WINDOW_MS = 1_000
BEGIN_MS = 1_760_000_000_000
BATCHES = 4
BROKERS = ("b00", "b01", "b02", "b03", "b04")
SEVERITY = {
    EventKind.PLAN_STALLED: Severity.CRITICAL,
    EventKind.PLAN_ABORTED: Severity.WARNING,
    EventKind.GAIN_MISSED: Severity.WARNING,
}


@dataclass(frozen=True)
class StampedRecord:
    """A record with the time at which it was written and read."""

    record: msgspec.Struct
    time_ms: int


def book(text: str) -> RuleBook:
    """Parse a text of rules; a rule without a name is named by its position."""
    return parse_rules(text)


def queue_of(broker: str, peer: str = "", *, length: int = 0, congestion: float = 0.0, busy: float = 0.1) -> QueueState:
    """Return one queue's state in one window."""
    return QueueState(broker, peer, 5.0, 5.0, 5.0, 1.0, 1.0, busy, length, length, congestion, WINDOW_MS)


def window(
    number: int,
    queues: Iterable[QueueState] = (),
    brokers: Sequence[str] = BROKERS,
    *,
    lost: Mapping[str, int] | None = None,
    late_rows: int = 0,
    written_after_ms: int = 100,
    rows_missing: int = 0,
    clocks: Sequence[BrokerClock] = (),
) -> list[StampedRecord]:
    """Return the rows and the marker of a window; ``lost`` gives the number of missing batches by broker."""
    start_ms = BEGIN_MS + number * WINDOW_MS
    end_ms = start_ms + WINDOW_MS
    rows = [
        StateRow(start_ms, end_ms, "queue", f"{queue.broker}|{queue.peer}", queue=queue) for queue in queues
    ]  # fmt: skip
    completeness = tuple(
        BrokerCompleteness(
            broker,
            1,
            number * BATCHES,
            number * BATCHES + BATCHES - 1,
            BATCHES - (lost or {}).get(broker, 0),
            BATCHES,
            0,
            0,
        )
        for broker in brokers
    )
    counts = {"queue": len(rows) + rows_missing}
    marker = WindowClosed(start_ms, end_ms, 1, counts, completeness, late_rows, tuple(clocks))
    return [StampedRecord(row, end_ms + written_after_ms) for row in rows] + [
        StampedRecord(marker, end_ms + written_after_ms)
    ]


def at(number: float) -> int:
    """Return the end of the window with this number."""
    return BEGIN_MS + int((number + 1) * WINDOW_MS)


def event(kind: EventKind, second: float, subject: str = "plan-1", text: str = "why", **details: str) -> StampedRecord:
    """Return an event of the controller, this many seconds after the beginning."""
    time_ms = BEGIN_MS + int(second * 1000)
    severity = SEVERITY.get(kind, Severity.INFO)
    return StampedRecord(AdaptationEvent(subject, kind, severity, time_ms, text, subject, details), time_ms)


def plan(
    number: int,
    phase: PlanPhase,
    second: float,
    *,
    links_removed: tuple[tuple[str, str], ...] = (),
    links_added: tuple[tuple[str, str], ...] = (),
    moves: tuple[ClientMove, ...] = (),
    undoes: str = "",
) -> StampedRecord:
    """Return a version of a plan that enters this phase; its time is when the phase began."""
    time_ms = BEGIN_MS + int(second * 1000)
    phases = (PlanPhase.ACTIVATING, phase) if phase not in (PlanPhase.PREPARING, PlanPhase.ABORTED) else (phase,)
    history = tuple(PhaseChange(each, time_ms, "") for each in dict.fromkeys(phases))
    found = Plan(
        f"plan-{number}", number - 1, number, time_ms, (), links_removed, links_added, (), 10.0, 5.0, phase, history,
        undoes=undoes, moves=moves,
    )  # fmt: skip
    return StampedRecord(found, time_ms)


class Scene:
    """An engine that is fed records one by one; ``changes`` holds the changes so far."""

    def __init__(self, rules: RuleBook, known: Iterable[Alert] = (), calm_windows: int = 0) -> None:
        self.engine = AlertEngine(rules, BEGIN_MS, known, calm_windows)
        self.changes: list[Alert] = []

    def feed(self, *stamped: StampedRecord, is_known: bool = False) -> list[Alert]:
        """Feed records; return the changes that they cause."""
        found: list[Alert] = []
        for each in stamped:
            found += self.engine.take(each.record, each.time_ms, each.time_ms, is_known=is_known)
        self.changes += found
        return found

    def windows(self, queues: Sequence[Iterable[QueueState]], first: int = 0) -> list[str]:
        """Feed windows with these queues; return the changes in words."""
        found: list[Alert] = []
        for number, each in enumerate(queues, first):
            found += self.feed(*window(number, each))
        return words(found)

    def tick(self, second: float) -> list[Alert]:
        """Advance the clock to this many seconds after the beginning."""
        found = self.engine.tick(BEGIN_MS + int(second * 1000))
        self.changes += found
        return found


def words(alerts: Iterable[Alert]) -> list[str]:
    """Return changes as ``second rule subject status``, with the second counted from the beginning."""
    return [f"{(alert.changed_ms - BEGIN_MS) / 1000:g} {alert.rule} {alert.subject} {alert.status}" for alert in alerts]
