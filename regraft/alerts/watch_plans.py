"""Follow plans: transitions that stall, and things that plans change back and forth.

In: every version of every plan, the controller's events, and the time. Out: findings.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from regraft.alerts.findings import Finding, RaisedAlerts
from regraft.alerts.rule_kinds import FlappingRule, StalledRule
from regraft.schemas.alert import AlertStatus
from regraft.schemas.event import AdaptationEvent, EventKind
from regraft.schemas.plan import Plan, PlanPhase
from regraft.schemas.plan_life import LIFE, committed_ms

PLANS_MAX = 1_000
THINGS_MAX = 100_000  # Remembered links, clients and ring IDs; those changed longest ago are dropped first.
ABSENT, PRESENT = "absent", "present"


@dataclass(frozen=True)
class _Phase:
    phase: PlanPhase
    since_ms: int


class StalledWatcher:
    """Watches the phase of each plan under way, and its start."""

    def __init__(self, rule: StalledRule) -> None:
        self._rule = rule
        self._phases: dict[str, _Phase] = {}

    def take(self, record: msgspec.Struct, now_ms: int, raised: RaisedAlerts) -> list[Finding]:
        """Process a plan's new phase, or the controller's report that it has stalled."""
        if isinstance(record, Plan):
            return self._take_plan(record, now_ms, raised)
        if not isinstance(record, AdaptationEvent) or record.kind is not EventKind.PLAN_STALLED:
            return []
        phase = self._phases.get(record.subject)
        is_over = phase is not None and (not LIFE[phase.phase].is_moving or record.time_ms < phase.since_ms)
        if is_over or record.subject in raised.subjects(self._rule.name):
            return []
        return [self._finding(record.subject, AlertStatus.RAISED, min(record.time_ms, now_ms), 0.0, record.text)]

    def tick(self, now_ms: int, raised: RaisedAlerts) -> list[Finding]:
        """Return findings for plans whose phase takes too long by now."""
        active = raised.subjects(self._rule.name)
        findings = []
        for plan, known in self._phases.items():
            waited_s = (now_ms - known.since_ms) / 1000
            if plan not in active and LIFE[known.phase].is_moving and waited_s >= self._rule.for_s:
                detail = f"{known.phase} for {waited_s:.0f} s"
                findings.append(self._finding(plan, AlertStatus.RAISED, now_ms, waited_s, detail))
        return findings

    def _take_plan(self, plan: Plan, now_ms: int, raised: RaisedAlerts) -> list[Finding]:
        since_ms = plan.history[-1].time_ms if plan.history else now_ms
        self._phases.pop(plan.plan, None)
        self._phases[plan.plan] = _Phase(plan.phase, since_ms)
        if len(self._phases) > PLANS_MAX:  # Only one plan is executed at a time, so the oldest ended long ago.
            del self._phases[next(iter(self._phases))]
        if plan.plan not in raised.subjects(self._rule.name):
            return []
        if LIFE[plan.phase].is_moving and since_ms <= raised.changed_ms(self._rule.name, plan.plan):
            return []  # The phase in which it stalled, reported again.
        time_ms = max(min(since_ms, now_ms), raised.changed_ms(self._rule.name, plan.plan))
        return [self._finding(plan.plan, AlertStatus.CLEARED, time_ms, 0.0, f"now {plan.phase}")]

    def _finding(self, plan: str, status: AlertStatus, time_ms: int, value: float, detail: str) -> Finding:
        return Finding(self._rule.name, plan, status, time_ms, value, self._rule.limit, (), detail)


@dataclass
class _Thing:
    """The recent history of a link, client or ring ID: the states it left and when, and when it returned to one."""

    left: deque[tuple[int, str]] = field(default_factory=deque)
    flips_ms: deque[int] = field(default_factory=deque)

    def change(self, time_ms: int, before: str, after: str, span_ms: float) -> bool:
        """Add a change; return True if it returns to a state that the thing had within the span."""
        while self.left and self.left[0][0] <= time_ms - span_ms:
            self.left.popleft()
        while self.flips_ms and self.flips_ms[0] <= time_ms - span_ms:
            self.flips_ms.popleft()
        is_flip = any(state == after for _, state in self.left)
        if is_flip:
            self.flips_ms.append(time_ms)
        self.left.append((time_ms, before))
        return is_flip


class FlappingWatcher:
    """Counts how often each thing returns to an earlier state."""

    def __init__(self, rule: FlappingRule) -> None:
        self._rule = rule
        self._things: dict[str, _Thing] = {}
        self._plans: deque[str] = deque(maxlen=PLANS_MAX)

    def take(self, record: msgspec.Struct, now_ms: int, raised: RaisedAlerts) -> list[Finding]:
        """Count the changes of each committed plan once."""
        if not isinstance(record, Plan) or not LIFE[record.phase].is_committed or record.plan in self._plans:
            return []
        self._plans.append(record.plan)
        time_ms, span_ms = min(committed_ms(record) or 0, now_ms), self._rule.span_s * 1000
        active = raised.subjects(self._rule.name)
        findings = []
        for name, before, after in _changes(record):
            thing = self._things.pop(name, None) or _Thing()
            self._things[name] = thing
            is_flip = thing.change(time_ms, before, after, span_ms)
            count = len(thing.flips_ms)
            if is_flip and count >= self._rule.flips and name not in active:
                detail = f"{after} again with {record.plan}"
                findings.append(self._finding(name, AlertStatus.RAISED, time_ms, float(count), detail))
        self._forget(time_ms - self._rule.span_s_memory * 1000)
        return findings

    def tick(self, now_ms: int, raised: RaisedAlerts) -> list[Finding]:
        """Return findings that clear alerts about things that have not flipped for long enough."""
        findings = []
        for name in sorted(raised.subjects(self._rule.name)):
            thing = self._things.get(name)
            last_ms = max([raised.changed_ms(self._rule.name, name), *(thing.flips_ms if thing else ())])
            if now_ms - last_ms >= self._rule.clear_after_s * 1000:
                findings.append(self._finding(name, AlertStatus.CLEARED, now_ms, 0.0, ""))
        return findings

    def _forget(self, before_ms: float) -> None:
        """Drop what was not changed within the span; things are ordered by their last change."""
        for name in list(self._things):
            thing = self._things[name]
            if len(self._things) <= THINGS_MAX and thing.left[-1][0] > before_ms:
                return
            del self._things[name]

    def _finding(self, thing: str, status: AlertStatus, time_ms: int, value: float, detail: str) -> Finding:
        return Finding(self._rule.name, thing, status, time_ms, value, self._rule.limit, (), detail)


def _changes(plan: Plan) -> Iterator[tuple[str, str, str]]:
    """Yield each change of a plan: the thing, its state before and after."""
    for one, other in plan.links_removed:
        yield f"link {one}-{other}", PRESENT, ABSENT
    for one, other in plan.links_added:
        yield f"link {one}-{other}", ABSENT, PRESENT
    for move in plan.moves:
        yield f"client {move.client}", f"at {move.home_from}", f"at {move.home_to}"
    for home in plan.subscribers_moved:
        yield f"subscribers of {home.home_from}", f"at {home.home_from}", f"at {home.home_to}"
    what = "place" if plan.has_places else "ring ID"
    for id_move in plan.id_moves:
        yield f"{what} of {id_move.broker}", str(id_move.id_from), str(id_move.id_to)
