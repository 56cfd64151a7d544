"""Follow members and repairs: which brokers are dead, which repair is running, and whether traffic crosses the dead.

In: every record of a member and every version of every plan, and the time. Out: findings. They follow from the newest
records alone, so an engine that rereads all records finds the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from regraft.alerts.findings import NAMES_MAX, Finding, RaisedAlerts
from regraft.alerts.rule_kinds import FleetRule
from regraft.schemas.alert import AlertStatus
from regraft.schemas.member import Member, MemberState
from regraft.schemas.plan import Plan
from regraft.schemas.plan_life import LIFE
from regraft.schemas.texts import name_some

OVERLAY = "overlay"  # The subject of alerts about the overlay as a whole.
MEMBERS_MAX = 100_000  # More brokers than any fleet has; the topic is compacted.


@dataclass(frozen=True)
class _Condition:
    since_ms: int
    value: float
    brokers: tuple[str, ...]
    detail: str


class FleetWatcher:
    """The members that do not serve, the running repair, and the brokers of the overlay in force, by newest records."""

    def __init__(self, rule: FleetRule) -> None:
        self._rule = rule
        self._not_serving: dict[str, Member] = {}
        self._repair: Plan | None = None
        self._overlay: Plan | None = None
        self._changed_ms = 0  # The last change of any of these: what is over ended then.

    def take(self, record: msgspec.Struct, now_ms: int, raised: RaisedAlerts) -> list[Finding]:
        """Process a record; the next tick finds what it changes."""
        if isinstance(record, Member):
            self._not_serving.pop(record.broker, None)
            if not record.state.is_serving and len(self._not_serving) < MEMBERS_MAX:
                self._not_serving[record.broker] = record
            self._changed_ms = max(self._changed_ms, min(record.since_ms, now_ms))
        elif isinstance(record, Plan) and record.history:
            self._take_plan(record)
            self._changed_ms = max(self._changed_ms, min(record.history[-1].time_ms, now_ms))
        return []

    def tick(self, now_ms: int, raised: RaisedAlerts) -> list[Finding]:
        """Return findings for what has held long enough but is not raised yet, and for what no longer holds."""
        present, active = self._present_conditions(), raised.subjects(self._rule.name)
        findings = []
        for subject, why in sorted(present.items()):
            due_ms = why.since_ms + int(self._rule.for_s * 1000)
            if subject not in active and now_ms >= due_ms:
                findings.append(self._finding(subject, AlertStatus.RAISED, due_ms, why))
        for subject in sorted(active - present.keys()):
            ended_ms = max(self._changed_ms, raised.changed_ms(self._rule.name, subject))
            findings.append(self._finding(subject, AlertStatus.CLEARED, ended_ms, _Condition(0, 0.0, (), "")))
        return findings

    def _take_plan(self, plan: Plan) -> None:
        if self._overlay is None or plan.epoch_to >= self._overlay.epoch_to:
            self._overlay = plan if LIFE[plan.phase].is_in_force and plan.brokers_target else self._overlay
        if plan.brokers_lost and LIFE[plan.phase].is_moving and not LIFE[plan.phase].is_in_force:
            self._repair = plan
        elif self._repair is not None and self._repair.plan == plan.plan:
            self._repair = None

    def _present_conditions(self) -> dict[str, _Condition]:
        if self._rule.on == "broker.dead":
            return {
                broker: _Condition(member.since_ms, 1.0, (broker,), member.reason)
                for broker, member in self._not_serving.items()
                if member.state is MemberState.DEAD
            }
        if self._rule.on == "repair.running":
            plan = self._repair
            if plan is None:
                return {}
            detail = f"{plan.phase}, without {name_some(sorted(plan.brokers_lost), NAMES_MAX)}"
            return {plan.plan: _Condition(plan.history[0].time_ms, len(plan.brokers_lost), (), detail)}
        risky = sorted(broker for broker, member in self._not_serving.items() if self._is_crossed(member))
        if not risky:
            return {}
        since_ms = min(self._not_serving[broker].since_ms for broker in risky)
        return {OVERLAY: _Condition(since_ms, len(risky), (), name_some(risky, NAMES_MAX))}

    def _is_crossed(self, member: Member) -> bool:
        """Return True if the overlay in force still has the broker's earlier incarnation."""
        plan = self._overlay
        if plan is None:
            return member.facts is None  # The first overlay consists of the inventory's brokers.
        if member.broker not in plan.brokers_target or member.since_ms > plan.history[0].time_ms:
            return member.broker in plan.brokers_target
        # It adds joining brokers.
        return member.state is not MemberState.JOINING and member.broker not in plan.brokers_lost

    def _finding(self, subject: str, status: AlertStatus, time_ms: int, why: _Condition) -> Finding:
        return Finding(self._rule.name, subject, status, time_ms, why.value, self._rule.limit, why.brokers, why.detail)
