"""Follow members and repairs: which brokers are dead, which repair runs, and what still crosses the dead.

In: every record of a member and every version of every plan, and the time. Out: findings. What stands follows from the
newest records alone, so an engine that reads them all again finds the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from regraft.alerts.findings import Finding, RaisedAlerts, name_some
from regraft.alerts.rule_kinds import FleetRule
from regraft.schemas.alert import AlertStatus
from regraft.schemas.member import Member, MemberState
from regraft.schemas.plan import Plan
from regraft.schemas.plan_life import LIFE

OVERLAY = "overlay"  # The subject where it is about all of it.
MEMBERS_MAX = 100_000  # The topic is compacted: more brokers than any fleet has had.


@dataclass(frozen=True)
class _Standing:
    since_ms: int
    value: float
    brokers: tuple[str, ...]
    detail: str


class FleetWatcher:
    """Who does not serve by the newest records, the repair that runs, and the brokers of the overlay in force."""

    def __init__(self, rule: FleetRule) -> None:
        self._rule = rule
        self._idle: dict[str, Member] = {}
        self._repair: Plan | None = None
        self._overlay: Plan | None = None
        self._changed_ms = 0  # When any of it changed last: what ends, ended then.

    def take(self, record: msgspec.Struct, now_ms: int, raised: RaisedAlerts) -> list[Finding]:
        """Take a record; what changes by it is found by the next tick."""
        if isinstance(record, Member):
            self._idle.pop(record.broker, None)
            if not record.state.is_serving and len(self._idle) < MEMBERS_MAX:
                self._idle[record.broker] = record
            self._changed_ms = max(self._changed_ms, min(record.since_ms, now_ms))
        elif isinstance(record, Plan) and record.history:
            self._take_plan(record)
            self._changed_ms = max(self._changed_ms, min(record.history[-1].time_ms, now_ms))
        return []

    def tick(self, now_ms: int, raised: RaisedAlerts) -> list[Finding]:
        """Return what has held long enough and is not reported yet, and what no longer holds."""
        standing, reported = self._standing(), raised.subjects(self._rule.name)
        found = []
        for subject, why in sorted(standing.items()):
            due_ms = why.since_ms + int(self._rule.for_s * 1000)
            if subject not in reported and now_ms >= due_ms:
                found.append(self._finding(subject, AlertStatus.RAISED, due_ms, why))
        for subject in sorted(reported - standing.keys()):
            ended_ms = max(self._changed_ms, raised.changed_ms(self._rule.name, subject))
            found.append(self._finding(subject, AlertStatus.CLEARED, ended_ms, _Standing(0, 0.0, (), "")))
        return found

    def _take_plan(self, plan: Plan) -> None:
        if self._overlay is None or plan.epoch_to >= self._overlay.epoch_to:
            self._overlay = plan if LIFE[plan.phase].is_in_force and plan.brokers_target else self._overlay
        if plan.brokers_lost and LIFE[plan.phase].is_moving and not LIFE[plan.phase].is_in_force:
            self._repair = plan
        elif self._repair is not None and self._repair.plan == plan.plan:
            self._repair = None

    def _standing(self) -> dict[str, _Standing]:
        if self._rule.on == "broker.dead":
            return {
                broker: _Standing(member.since_ms, 1.0, (broker,), member.reason)
                for broker, member in self._idle.items()
                if member.state is MemberState.DEAD
            }
        if self._rule.on == "repair.running":
            plan = self._repair
            if plan is None:
                return {}
            detail = f"{plan.phase}, without {name_some(sorted(plan.brokers_lost))}"
            return {plan.plan: _Standing(plan.history[0].time_ms, len(plan.brokers_lost), (), detail)}
        risky = sorted(broker for broker, member in self._idle.items() if self._is_crossed(member))
        if not risky:
            return {}
        since_ms = min(self._idle[broker].since_ms for broker in risky)
        return {OVERLAY: _Standing(since_ms, len(risky), (), name_some(risky))}

    def _is_crossed(self, idle: Member) -> bool:
        """Return True if the overlay in force has the broker in a life that is over."""
        plan = self._overlay
        if plan is None:
            return idle.facts is None  # The first overlay has the brokers of the inventory.
        if idle.broker not in plan.brokers_target or idle.since_ms > plan.history[0].time_ms:
            return idle.broker in plan.brokers_target
        return idle.state is not MemberState.JOINING and idle.broker not in plan.brokers_lost  # By it the joining join.

    def _finding(self, subject: str, status: AlertStatus, time_ms: int, why: _Standing) -> Finding:
        return Finding(self._rule.name, subject, status, time_ms, why.value, self._rule.limit, why.brokers, why.detail)
