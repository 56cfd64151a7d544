"""Pose the problem of ring IDs for the state of a ring, and turn the answer of a search into a proposal.

Any search will do.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from regraft.controller.kinds.ring.ring_state import RingContext, RingState, RingTraffic
from regraft.controller.planners.ring.steps.search_ring_ids import Reassignment
from regraft.controller.planners.shared_settings import ReassignmentSettings
from regraft.overlay.ring.ring_costs import topic_costs
from regraft.overlay.ring.ring_reassignment import Mapping, RingProblem
from regraft.schemas.plan import IdMove, Proposal
from regraft.schemas.texts import figure


def reassigning_proposals(
    planner: str,
    state: RingState,
    settings: ReassignmentSettings,
    context: RingContext,
    search: Callable[[RingProblem], Reassignment],
) -> list[Proposal]:
    """Return the answer of a search as one proposal, or none if the paper's process would not reconfigure.

    That is Algorithm 2 of Zhao13: nothing is computed unless the present cost passes the reconfigurability test, and
    nothing is done unless Bft > Cst, both over the reconfiguration-free period.
    """
    ring = state.traffic
    if ring is None:
        return []
    problem = ring_problem(ring, settings.ring_free_s, context.delay_weight)
    cost_now = ring.cost.notification_cost_per_s(context.delay_weight) * settings.ring_free_s
    if not problem.is_worth_computing(cost_now, settings.ring_demand_share_min):
        return []
    proposals = search(problem)
    if proposals.net_benefit <= 0:
        return []
    return [_proposal(planner, ring, settings, context, proposals)]


def ring_problem(ring: RingTraffic, ring_free_s: float, delay_weight: float) -> RingProblem:
    """Return the problem of the next ``ring_free_s``: present interests, and topics at their filtered rates (Eq. 8)."""
    events = ring.rates_per_s * ring_free_s
    return RingProblem(ring.configuration.ring, ring.roots, ring.wanted, events, delay_weight)


def id_moves_of(ring: RingTraffic, mapping: Mapping) -> tuple[IdMove, ...]:
    """Return the ID moves that lead to a mapping, sorted by broker."""
    brokers, ids = ring.configuration.broker_at, ring.configuration.ring.ids
    moved = (mapping != np.arange(len(mapping))).nonzero()[0].tolist()
    return tuple(sorted(IdMove(brokers[mapping[at]], ids[mapping[at]], ids[at]) for at in moved))


def _proposal(
    planner: str, ring: RingTraffic, settings: ReassignmentSettings, context: RingContext, reassignment: Reassignment
) -> Proposal:
    after = topic_costs(ring.configuration.ring, ring.roots, ring.wanted[reassignment.mapping]).at_rates(
        ring.rates_per_s
    )
    reason = (
        f"over {figure(settings.ring_free_s)} s saves {figure(reassignment.benefit)} messages and hops, and takes "
        f"{figure(reassignment.cost)} messages to give {reassignment.moved} of {len(reassignment.mapping)} brokers "
        "other IDs"
    )
    before_per_s = ring.cost.total_per_s(context.delay_weight)
    after_per_s = after.total_per_s(context.delay_weight)
    return Proposal(
        planner, (), (), before_per_s, after_per_s, 0.0, reason, id_moves=id_moves_of(ring, reassignment.mapping)
    )
