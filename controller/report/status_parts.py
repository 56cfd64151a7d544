"""The parts of the status document: one configuration, window, plan, decision or shadow planner each, JSON-ready.

In: values of the loop. Out: plain dicts. Which of them are shown, and since when, belongs to
:mod:`controller.report.show_status`. What may be long is cut, with its whole length beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from controller.control_ports import Document
from controller.decide.decide_plan import Decision
from controller.decide.shadow_planners import ShadowPlanner
from controller.state.closed_window import ClosedWindow
from overlay.overlay_configuration import OverlayConfiguration
from schemas.plan import Plan, Proposal

REFUSALS_SHOWN_MAX = 20
_NOTHING_CARRIED = {
    "notifications_per_s": 0.0,
    "bytes_per_s": 0.0,
    "rtt_ms": None,
    "queue_length_max": 0,
    "congestion": 0.0,
}
MOVES_SHOWN_MAX = 24  # Clients, and brokers with another ID, of one proposal; on a ring hundreds may move at once.


def configuration_summary(configuration: OverlayConfiguration) -> Document:
    """Return epoch, brokers and links, and what its kind of overlay shows beside: on a ring the ID of each broker."""
    return {
        "epoch": configuration.epoch,
        "brokers": list(configuration.brokers),
        "links": [list(pair) for pair in configuration.links],
        "degree_max": configuration.degree_max,
        **configuration.shown_fields(),
    }


def window_summary(window: ClosedWindow) -> Document:
    """Return what a window holds and what it lacks."""
    interests = window.interests
    return {
        "start_ms": window.start_ms,
        "end_ms": window.end_ms,
        "notifications": window.sets.notification_count,
        "epoch_min": window.epoch_min,
        "epoch_max": window.epoch_max,
        "is_complete": window.is_complete,
        "fault": window.fault,
        "short_brokers": list(window.short_brokers),
        "client_changes": window.client_changes,
        "late_rows": window.late_rows,
        "queue_length_max": max((queue.queue_length_max for queue in window.queues), default=0),
        "rtt_ms_max": max((rtt.rtt_ms_min for rtt in window.rtts), default=None),
        "users": None if interests is None else interests.user_count,
        "users_strayed": len(window.strayed),
    }


def network_summary(window: ClosedWindow) -> Document:
    """Return what each link and each broker carried in a window, and where it was congested.

    What the brokers at both ends of a link say of their directions is added up; queue and congestion are the larger.
    """
    links: dict[tuple[str, str], Document] = {}
    brokers: dict[str, Document] = {}
    published = Counter(window.homes.values())
    for queue in window.queues:
        if not queue.peer:
            brokers[queue.broker] = {
                "broker": queue.broker,
                "notifications_per_s": queue.notifications_out_per_s,
                "busy_share": queue.busy_share,
                "queue_length_last": queue.queue_length_last,
                "queue_length_max": queue.queue_length_max,
                "congestion": queue.congestion,
                "publishers": published[queue.broker],
            }
            continue
        a, b = sorted((queue.broker, queue.peer))
        link = links.setdefault((a, b), {"a": a, "b": b, **_NOTHING_CARRIED})
        link["notifications_per_s"] += queue.notifications_out_per_s
        link["bytes_per_s"] += queue.bytes_out_per_s
        link["queue_length_max"] = max(link["queue_length_max"], queue.queue_length_max)
        link["congestion"] = max(link["congestion"], queue.congestion)
    for rtt in window.rtts:
        a, b = sorted((rtt.broker, rtt.peer))
        if (a, b) in links:
            links[a, b]["rtt_ms"] = rtt.rtt_ms_last
    return {
        "window_end_ms": window.end_ms,
        "links": [links[pair] for pair in sorted(links)],
        "brokers": [brokers[name] for name in sorted(brokers)],
    }


def plan_summary(plan: Plan) -> Document:
    """Return a plan without its target, which follows from the bootstrap and the changes."""
    shown = msgspec.structs.replace(
        plan, links_target=(), ring_target=(), moves=(), id_moves=(), proposals=(), refused=()
    )
    summary: Document = msgspec.to_builtins(shown)
    del summary["links_target"], summary["ring_target"]
    proposals = [proposal_summary(one) for one in plan.proposals]
    refused = [proposal_summary(one) for one in plan.refused[:REFUSALS_SHOWN_MAX]]
    return summary | _cut_moves(plan) | {"proposals": proposals, "refused": refused}


def proposal_summary(proposal: Proposal) -> Document:
    """Return a proposal with at most MOVES_SHOWN_MAX of its moves."""
    summary: Document = msgspec.to_builtins(msgspec.structs.replace(proposal, moves=(), id_moves=()))
    return summary | _cut_moves(proposal)


def shadow_summary(shadow: ShadowPlanner) -> Document:
    """Return what a shadow planner has made so far: its overlay, plans and refusals."""
    overlay = configuration_summary(shadow.overlay)
    return {
        "plans": shadow.plans_made,
        "plans_taken_back": shadow.plans_taken_back,
        "links_exchanged": shadow.links_exchanged,
        "publishers_moved": shadow.moved["publishers"],
        "users_moved": shadow.moved["users"],
        "id_moves": shadow.id_moves,
        "homes": shadow.homes_moved,
        "links": overlay["links"],
        "ring": overlay.get("ring", []),
        "refusals": dict(shadow.refusals),
        "faults": shadow.faults,
        "fault_text": shadow.fault_text,
        "last_plans": [
            {
                "window_end_ms": plan.window_end_ms,
                "links_removed": [list(pair) for pair in plan.links_removed],
                "links_added": [list(pair) for pair in plan.links_added],
                **_cut_moves(plan),
                "cost_before_per_s": plan.cost_before_per_s,
                "cost_predicted_per_s": plan.cost_predicted_per_s,
                "cost_observed_per_s": plan.cost_observed_per_s,
            }
            for plan in shadow.plans
        ],
    }


def decision_summary(decision: Decision) -> Document:
    """Return what a decision chose and refused."""
    refused: Sequence[Proposal] = decision.refused[:REFUSALS_SHOWN_MAX]
    return {
        "window_end_ms": decision.window_end_ms,
        "plan": None if decision.plan is None else plan_summary(decision.plan),
        "state_verdict": decision.state_verdict,
        "state_reason": decision.state_reason,
        "refused": [proposal_summary(proposal) for proposal in refused],
    }


def _cut_moves(changes: Plan | Proposal) -> dict[str, Any]:
    return {
        "moves": msgspec.to_builtins(changes.moves[:MOVES_SHOWN_MAX]),
        "move_count": len(changes.moves),
        "id_moves": msgspec.to_builtins(changes.id_moves[:MOVES_SHOWN_MAX]),
        "id_move_count": len(changes.id_moves),
    }
