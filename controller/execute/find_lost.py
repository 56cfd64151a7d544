"""Find the lost brokers of an overlay: those whose incarnation in it is over. Pure.

Whether a broker is dead is detected elsewhere.
"""

from __future__ import annotations

from regraft.controller.state.plan_log import PlanLog
from regraft.overlay.inventory.members import FleetView
from regraft.schemas.member import Member, MemberState
from regraft.schemas.plan import Plan


def lost_brokers(plan_log: PlanLog, fleet: FleetView) -> frozenset[str]:
    """Return the brokers of the overlay in force that do not serve: dead, or restarted and not yet rejoined."""
    return frozenset(broker for broker in plan_log.present.brokers if not fleet.members[broker].state.is_serving)


def lost_during(plan: Plan, plan_log: PlanLog, fleet: FleetView) -> frozenset[str]:
    """Return the brokers that a plan under way cannot count on.

    A broker that joins by the plan counts as lost if it has died or restarted since the plan began.
    """
    joined, began_ms = plan_log.change_of(plan).joined, plan.history[0].time_ms if plan.history else 0
    return frozenset(
        broker
        for broker, member in fleet.members.items()
        if not member.state.is_serving
        and not (member.state is MemberState.JOINING and broker in joined and member.since_ms <= began_ms)
    )


def joining_plan(member: Member, plan_log: PlanLog) -> Plan | None:
    """Return the plan in force by which a member joined since it entered its state, or None."""
    for plan in reversed(plan_log.in_force):
        if not plan.history or plan.history[0].time_ms < member.since_ms:
            return None
        if member.broker in plan_log.change_of(plan).joined:
            return plan
    return None
