"""Show members, deaths and repairs in the live view. Pure.

In: the loop's state. Out: a ShownFleet. Its presentation belongs to the dashboard and to `regraft status`.
"""

from __future__ import annotations

from collections import Counter

from regraft.controller.decide.loop_state import LoopState
from regraft.schemas.member import Member, MemberState
from regraft.schemas.plan import Plan
from regraft.schemas.plan_life import LIFE
from regraft.schemas.shown_fleet import ShownFleet, ShownMember, ShownRepair

REPAIRS_SHOWN_MAX = 20
LATE_MS = 3_600_000


def shown_fleet(state: LoopState, now_ms: int) -> ShownFleet:
    """Return the number of members in each state, those that do not simply serve, and the last repairs."""
    members, present = state.fleet.members, frozenset(state.plan_log.present.brokers)
    repairs = [plan for plan in state.plan_log.plans if plan.brokers_lost and not LIFE[plan.phase].is_aborted]
    return ShownFleet(
        counts=dict(Counter(str(member.state) for member in members.values())),
        members=tuple(
            _shown_member(member, member.broker in present)
            for member in members.values()
            if member.state is not MemberState.IN_SERVICE or _died_lately(member, now_ms)
        ),
        announced=state.announced,
        repairs=tuple(_shown_repair(plan, members) for plan in repairs[-REPAIRS_SHOWN_MAX:]),
        traffic_at_risk_per_s=_traffic_at_risk_per_s(state),
    )


def _shown_member(member: Member, in_overlay: bool) -> ShownMember:
    place = None if member.facts is None else member.facts.position
    return ShownMember(
        broker=member.broker,
        state=str(member.state),
        since_ms=member.since_ms,
        reason=member.reason,
        in_overlay=in_overlay,
        deaths=len(member.deaths_ms),
        returns_ms=member.returns_ms,
        position=None if place is None else (place.x, place.y),
    )


def _died_lately(member: Member, now_ms: int) -> bool:
    return bool(member.deaths_ms) and now_ms - member.deaths_ms[-1] < LATE_MS


def _shown_repair(plan: Plan, members: dict[str, Member]) -> ShownRepair:
    """Return a repair; for a broker that has died again since, it counts from the plan's own beginning."""
    began_ms = plan.history[0].time_ms if plan.history else 0
    deaths = [time_ms for broker in plan.brokers_lost if broker in members for time_ms in members[broker].deaths_ms]
    whole = (change.time_ms for change in plan.history if LIFE[change.phase].is_in_force)
    return ShownRepair(
        plan=plan.plan,
        lost=plan.brokers_lost,
        dead_since_ms=min((time_ms for time_ms in deaths if time_ms <= began_ms), default=began_ms),
        whole_ms=next(whole, 0),
        phase=str(plan.phase),
    )


def _traffic_at_risk_per_s(state: LoopState) -> float | None:
    """Return the traffic through lost brokers of the overlay in force, by their counters of the last window.

    None if one of them was heard in no remembered window.
    """
    lost = {one for one in state.plan_log.present.brokers if not state.fleet.members[one].state.is_serving}
    if not lost:
        return 0.0
    passed_per_s = {one: rate for one, rate in state.passed_per_s.items() if one in lost}
    return sum(passed_per_s.values()) if len(passed_per_s) == len(lost) else None
