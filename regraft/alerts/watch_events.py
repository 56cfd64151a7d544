"""Count what happens: aborted and undone plans, missed gains, full plans, failed planners, forged orders, dead letters.

In: records of events, plans and dead letters, each once, and the time. Out: findings. A record judged by an earlier
alert stage is only remembered, so that counts survive a restart.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from regraft.alerts.findings import Finding, RaisedAlerts
from regraft.alerts.rule_kinds import COUNTED_MAX, CountRule
from regraft.schemas.alert import AlertStatus
from regraft.schemas.dead_letter import DeadLetter
from regraft.schemas.event import ENDED, FORGED, AdaptationEvent, EventKind
from regraft.schemas.member import Member, MemberState
from regraft.schemas.plan import Plan, Verdict
from regraft.schemas.plan_life import LIFE, committed_ms
from regraft.schemas.registry import NEWER
from regraft.schemas.texts import window_name
from regraft.schemas.topics import ALERTS

ALL_PLANS = "plans"  # The subject of alerts about plans in general.
ALL_ORDERS = "orders"
SUBJECTS_MAX = 1_000
DETAIL_CHARACTERS_MAX = 600  # With the advice, which events have at their ends.


@dataclass(frozen=True)
class Occurrence:
    """One occurrence: its subject, time and description. ``key`` is the same if it is reported again."""

    subject: str
    time_ms: int
    detail: str
    key: str = ""


@dataclass
class _Tally:
    """The occurrences within the span, each with its time and key, sorted."""

    found: list[tuple[int, str]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    detail: str = ""
    last_ms: int = 0

    def add(self, time_ms: int, key: str, span_ms: float) -> bool:
        """Add an occurrence; drop those too many or before the newest one's span, and return False for such a one.

        Times come in any order: that of a dead letter is its record's, which the record's sender may have chosen.
        """
        self.last_ms = max(self.last_ms, time_ms)
        if time_ms <= self.last_ms - span_ms:
            return False
        insort(self.found, (time_ms, key))
        self.keys.add(key)
        over = bisect_right(self.found, self.last_ms - span_ms, key=lambda each: each[0])
        over = max(over, len(self.found) - COUNTED_MAX)
        self.keys.difference_update(key for _, key in self.found[:over])
        del self.found[:over]
        return True


class CountWatcher:
    """Counts how many times something happened within a span, for each subject."""

    def __init__(self, rule: CountRule) -> None:
        self._rule = rule
        self._occurrence = OCCURRENCES[rule.on]
        self._end = ENDS.get(rule.on, _never)
        self._tallies: dict[str, _Tally] = {}

    def take(self, record: msgspec.Struct, now_ms: int, raised: RaisedAlerts) -> list[Finding]:
        """Count a record; one from the future counts as now."""
        ended = self._end(record)
        if ended is not None:
            return self._clear(ended, now_ms, raised)
        occurrence = self._occurrence(record)
        if occurrence is None:
            return []
        time_ms = min(occurrence.time_ms, now_ms)
        tally = self._tally(occurrence.subject, time_ms)
        if tally is None or (occurrence.key and occurrence.key in tally.keys):
            return []
        if not tally.add(time_ms, occurrence.key, self._rule.span_s * 1000):
            return []
        tally.detail = occurrence.detail[:DETAIL_CHARACTERS_MAX]
        count = len(tally.found)
        if count < self._rule.count or occurrence.subject in raised.subjects(self._rule.name):
            return []
        return [self._finding(occurrence.subject, AlertStatus.RAISED, time_ms, float(count), tally.detail)]

    def tick(self, now_ms: int, raised: RaisedAlerts) -> list[Finding]:
        """Return findings that clear alerts about what has not happened for long enough."""
        silence_ms = self._rule.clear_after_s * 1000
        active = raised.subjects(self._rule.name)
        findings = []
        for subject in sorted(active):
            tally = self._tallies.get(subject)
            last_ms = max(raised.changed_ms(self._rule.name, subject), tally.last_ms if tally else 0)
            if now_ms - last_ms >= silence_ms:
                findings.append(self._finding(subject, AlertStatus.CLEARED, now_ms, 0.0, ""))
        span_ms = max(silence_ms, self._rule.span_s * 1000)
        old = [name for name, tally in self._tallies.items() if now_ms - tally.last_ms > span_ms]
        for subject in old:
            del self._tallies[subject]
        return findings

    def _clear(self, end: Occurrence, now_ms: int, raised: RaisedAlerts) -> list[Finding]:
        """Clear the raised alert about a subject, unless the end was before that; an end from the future is now."""
        name, subject = self._rule.name, end.subject
        if subject not in raised.subjects(name) or end.time_ms < raised.changed_ms(name, subject):
            return []
        self._tallies.pop(subject, None)
        time_ms = max(min(end.time_ms, now_ms), raised.changed_ms(name, subject))
        return [self._finding(subject, AlertStatus.CLEARED, time_ms, 0.0, end.detail)]

    def _tally(self, subject: str, time_ms: int) -> _Tally | None:
        """Return the subject's tally, or None if there are too many others and it would be the oldest."""
        if subject not in self._tallies and len(self._tallies) >= SUBJECTS_MAX:
            oldest = min(self._tallies, key=lambda name: self._tallies[name].last_ms)
            if self._tallies[oldest].last_ms > time_ms:
                return None
            del self._tallies[oldest]
        return self._tallies.setdefault(subject, _Tally())

    def _finding(self, subject: str, status: AlertStatus, time_ms: int, value: float, detail: str) -> Finding:
        return Finding(self._rule.name, subject, status, time_ms, value, self._rule.limit, (), detail)


def _reported_by(
    kind: EventKind, *, by_subject: bool = True, is_over: bool | None = None
) -> Callable[[msgspec.Struct], Occurrence | None]:
    """Return a filter for events of a kind; with ``is_over``, for those of a lasting condition, or of its end."""

    def occurrence(record: msgspec.Struct) -> Occurrence | None:
        if not isinstance(record, AdaptationEvent) or record.kind is not kind:
            return None
        if is_over is not None and (ENDED in record.details) != is_over:
            return None
        return Occurrence(record.subject if by_subject else ALL_PLANS, record.time_ms, record.text)

    return occurrence


def _stopped_asking(record: msgspec.Struct) -> Occurrence | None:
    """A broker that became a member, or no longer announces itself."""
    if isinstance(record, Member) and record.state is not MemberState.LEFT:
        return Occurrence(record.broker, record.since_ms, record.reason)
    return _reported_by(EventKind.JOIN_REQUESTED, is_over=True)(record)


def _never(_: msgspec.Struct) -> None:
    return None


def _forged(record: msgspec.Struct) -> Occurrence | None:
    """A forged order; orders refused for other reasons do not count."""
    if not isinstance(record, AdaptationEvent) or FORGED not in record.details:
        return None
    return Occurrence(ALL_ORDERS, record.time_ms, record.text)


def _rolled_back(record: msgspec.Struct) -> Occurrence | None:
    """A committed plan that rolls back another; its later phases repeat this and are counted once."""
    if not isinstance(record, Plan) or not record.undoes or not LIFE[record.phase].is_committed:
        return None
    time_ms = committed_ms(record) or 0
    return Occurrence(ALL_PLANS, time_ms, f"{record.undoes} by {record.plan}", record.plan)


def _limited(record: msgspec.Struct) -> Occurrence | None:
    """Proposals left over because the plan is full, reported by an event or by the plan itself."""
    verdict = Verdict.CHANGES_PER_PLAN
    if isinstance(record, AdaptationEvent):
        count = record.details.get(verdict, "0")
        if record.kind is not EventKind.PROPOSAL_REFUSED or count == "0":
            return None
        return Occurrence(ALL_PLANS, record.time_ms, f"{count} proposals, {record.subject}", record.subject)
    if not isinstance(record, Plan) or not record.history:
        return None
    refused = sum(proposal.verdict is verdict for proposal in record.refused)
    window = window_name(record.window_end_ms)
    return (
        Occurrence(ALL_PLANS, record.history[0].time_ms, f"{refused} proposals, {window}", window) if refused else None
    )


def _dead_lettered(record: msgspec.Struct) -> Occurrence | None:
    """A dead letter, except undelivered messages about alerts, each of which would cause the next."""
    if not isinstance(record, DeadLetter) or record.topic.endswith(f".{ALERTS.suffix}") or NEWER in record.reason:
        return None
    return Occurrence(record.topic, record.time_ms, record.reason)


def _newer(record: msgspec.Struct) -> Occurrence | None:
    """A dead letter written by a newer Regraft than the one that refused it."""
    if not isinstance(record, DeadLetter) or NEWER not in record.reason:
        return None
    return Occurrence(record.topic, record.time_ms, record.reason)


OCCURRENCES: Mapping[str, Callable[[msgspec.Struct], Occurrence | None]] = {
    "plan.aborted": _reported_by(EventKind.PLAN_ABORTED, by_subject=False),
    "plan.taken_back": _rolled_back,
    "plan.limit": _limited,
    "epoch.mismatch": _reported_by(EventKind.EPOCH_MISMATCH),
    "deaths.doubted": _reported_by(EventKind.DEATHS_IMPLAUSIBLE),
    "gain.missed": _reported_by(EventKind.GAIN_MISSED, by_subject=False),
    "model.drift": _reported_by(EventKind.MODEL_DRIFT),
    "join.asked": _reported_by(EventKind.JOIN_REQUESTED, is_over=False),
    "share.lowered": _reported_by(EventKind.SHARE_CHANGED, is_over=False),
    "broker.overloaded": _reported_by(EventKind.BROKER_OVERLOADED, is_over=False),
    "planner.failed": _reported_by(EventKind.PLANNER_FAILED),
    "order.forged": _forged,
    "service.restarted": _reported_by(EventKind.SERVICE_RESTARTED),
    "telemetry.lost": _reported_by(EventKind.TELEMETRY_LOST),
    "dead_letters": _dead_lettered,
    "records.newer": _newer,
}
# What clears an alert at once; all others are cleared after enough time without an occurrence.
ENDS: Mapping[str, Callable[[msgspec.Struct], Occurrence | None]] = {
    "join.asked": _stopped_asking,
    "share.lowered": _reported_by(EventKind.SHARE_CHANGED, is_over=True),
    "broker.overloaded": _reported_by(EventKind.BROKER_OVERLOADED, is_over=True),
}
