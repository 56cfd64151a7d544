"""Render the parts of the live view: one configuration, window, plan, decision or shadow planner each.

In: values of the loop. Out: what is shown of them. Which of them are shown, and since when, belongs to
:mod:`controller.report.render_view`. Long lists are truncated, with their full length beside them.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from regraft.controller.decide.decide_plan import Decision
from regraft.controller.decide.loop_state import LoopState
from regraft.controller.decide.shadow_planners import ShadowPlanner
from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.schemas.clock_offsets import farthest_clocks
from regraft.schemas.live_view import (
    ShadowPlan,
    ShownBroker,
    ShownConfiguration,
    ShownDecision,
    ShownLink,
    ShownNetwork,
    ShownPhase,
    ShownPlan,
    ShownProposal,
    ShownShadow,
    ShownWindow,
)
from regraft.schemas.member import Member, MemberState
from regraft.schemas.plan import Plan, Proposal
from regraft.schemas.plan_life import LIFE
from regraft.schemas.same_fields import like
from regraft.schemas.shown_state import ShownFleet, ShownMember, ShownRepair
from regraft.schemas.state import QueueState

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
    return like(
        ShownMember,
        member,
        state=str(member.state),
        in_overlay=in_overlay,
        deaths=len(member.deaths_ms),
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


REFUSALS_SHOWN_MAX = 20
CLOCKS_SHOWN_MAX = 20
MOVES_SHOWN_MAX = 24  # Clients, and brokers with another ID, of one proposal; on a ring hundreds may move at once.


def shown_configuration(configuration: OverlayConfiguration) -> ShownConfiguration:
    """Return epoch, brokers and links, and what its kind of overlay adds: on a ring the ID of each broker."""
    return ShownConfiguration(
        epoch=configuration.epoch,
        brokers=configuration.brokers,
        links=configuration.links,
        degree_max=configuration.degree_max,
        **configuration.shown_fields(),
    )


def shown_window(window: ClosedWindow) -> ShownWindow:
    """Return what a window holds and what it lacks."""
    interests, ends = window.interests, {(queue.broker, queue.peer) for queue in window.queues}
    return like(
        ShownWindow,
        window,
        notifications=window.sets.notification_count,
        queue_length_max=max((queue.queue_length_max for queue in window.queues), default=0),
        rtt_ms_max=max((rtt.rtt_ms_min for rtt in window.rtts if (rtt.broker, rtt.peer) in ends), default=None),
        users=None if interests is None else interests.user_count,
        users_strayed=len(window.strayed),
        clock_offsets_ms=farthest_clocks(window.clock_offsets_ms, CLOCKS_SHOWN_MAX),
        sample_share=window.sets.share,
    )


def shown_network(window: ClosedWindow, *, clients_stay: bool) -> ShownNetwork:
    """Return what each link and each broker carried in a window, and where it was congested.

    The two directions of a link, as reported by the brokers at its ends, are added up; queue and congestion are the
    larger ones. If ``clients_stay``, the register says which subscribers may move nevertheless.
    """
    rtts_ms = {tuple(sorted((rtt.broker, rtt.peer))): rtt.rtt_ms_last for rtt in window.rtts}
    ends: dict[tuple[str, str], list[QueueState]] = {}
    brokers: dict[str, ShownBroker] = {}
    published, subscribed = Counter(window.homes.values()), window.subscribers_at
    movable = Counter(window.movable.values()) if clients_stay and subscribed is not None else None
    for queue in window.queues:
        if queue.peer:
            a, b = sorted((queue.broker, queue.peer))
            ends.setdefault((a, b), []).append(queue)
            continue
        brokers[queue.broker] = ShownBroker(
            queue.broker,
            queue.notifications_out_per_s,
            queue.busy_share,
            queue.queue_length_last,
            queue.queue_length_max,
            queue.congestion,
            published[queue.broker],
            None if subscribed is None else subscribed.get(queue.broker, 0),
            None if movable is None else movable[queue.broker],
            {} if movable is None else dict(window.staying.get(queue.broker, {})),
        )
    links = tuple(_shown_link(pair, ends[pair], rtts_ms.get(pair)) for pair in sorted(ends))
    return ShownNetwork(window.end_ms, links, tuple(brokers[name] for name in sorted(brokers)))


def _shown_link(pair: tuple[str, str], ends: list[QueueState], rtt_ms: float | None) -> ShownLink:
    return ShownLink(
        *pair,
        sum(end.notifications_out_per_s for end in ends),
        sum(end.bytes_out_per_s for end in ends),
        rtt_ms,
        max(end.queue_length_max for end in ends),
        max(end.congestion for end in ends),
    )


def shown_plan(plan: Plan) -> ShownPlan:
    """Return a plan without its target, which follows from the bootstrap and the changes."""
    return like(
        ShownPlan,
        plan,
        **_changes(plan, plan.has_places),
        proposals=tuple(shown_proposal(one, plan.has_places) for one in plan.proposals),
        history=tuple(ShownPhase(one.phase, one.time_ms, one.reason) for one in plan.history),
        refused=tuple(shown_proposal(one, plan.has_places) for one in plan.refused[:REFUSALS_SHOWN_MAX]),
        digest=plan.approval_digest if LIFE[plan.phase].orders else "",  # There are no orders about the others.
    )


def shown_proposal(proposal: Proposal, has_places: bool) -> ShownProposal:
    """Return a proposal with at most MOVES_SHOWN_MAX of its moves."""
    return like(ShownProposal, proposal, **_changes(proposal, has_places))


def shown_shadow(shadow: ShadowPlanner) -> ShownShadow:
    """Return what a shadow planner has done so far: its overlay, plans and refusals."""
    overlay = shown_configuration(shadow.overlay)
    return like(
        ShownShadow,
        shadow,
        plans=shadow.plans_made,
        plans_taken_back=shadow.plans_rolled_back,
        publishers_moved=shadow.moved["publishers"],
        users_moved=shadow.moved["users"],
        homes=shadow.homes_moved,
        links=overlay.links,
        ring=overlay.ring,
        regions=overlay.regions,
        region_links=overlay.region_links,
        refusals=dict(shadow.refusals),
        last_plans=tuple(like(ShadowPlan, plan, **_changes(plan, plan.has_places)) for plan in shadow.plans),
    )


def shown_decision(decision: Decision, has_places: bool) -> ShownDecision:
    """Return what a decision chose and refused."""
    return like(
        ShownDecision,
        decision,
        plan=None if decision.plan is None else shown_plan(decision.plan),
        refused=tuple(shown_proposal(one, has_places) for one in decision.refused[:REFUSALS_SHOWN_MAX]),
    )


def _changes(changes: Plan | Proposal, has_places: bool) -> dict[str, Any]:
    return {
        "links_removed": changes.links_removed,
        "links_added": changes.links_added,
        "moves": changes.moves[:MOVES_SHOWN_MAX],
        "move_count": len(changes.moves),
        "id_moves": changes.id_moves[:MOVES_SHOWN_MAX],
        "id_move_count": len(changes.id_moves),
        "subscribers_moved": changes.subscribers_moved,
        "has_places": has_places,
    }
