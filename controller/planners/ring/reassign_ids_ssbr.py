"""Reassign ring IDs as DYNATOPS does: DYNATOPS-Greedy of Zhao13.

The steps belong to :mod:`controller.planners.ring.steps.search_ring_ids`, making a proposal of them to
:mod:`controller.planners.ring.steps.propose_ring_ids`.
"""

from __future__ import annotations

import random

from regraft.controller.kinds.ring.ring_state import RingContext, RingState
from regraft.controller.planners.ring.steps.propose_ring_ids import reassigning_proposals
from regraft.controller.planners.ring.steps.search_ring_ids import best_on_path, improve_greedily, swaps_of
from regraft.controller.planners.shared_settings import ReassignmentSettings
from regraft.controller.state.planner_interface import PlannerSpec
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.schemas.plan import Proposal

PLANNER = "reassign_ids_ssbr"


def reassign_ids_ssbr(
    state: RingState, settings: ReassignmentSettings, context: RingContext, rng: random.Random
) -> list[Proposal]:
    """Return the IDs of the mapping with the highest Bft - Cst on the improvement path of SSBR-Greedy.

    Source: Zhao13, section 5.1, Algorithms 2 to 4, with ``delay_weight`` (w_d), ``ring_free_s`` (T_free) and
    ``ring_demand_share_min`` (beta); hops count as delay. Cost: for each swap O(topics + subscriptions), and O(depth)
    for each number that it changes; the paper's bound is O(topics^2 * brokers^2 * log brokers). Guarantee: none,
    heuristic. Departures: none known; :func:`improve_greedily` and :meth:`RingProblem.reassignment_cost` state the
    readings where the text is damaged or ambiguous. Nothing is drawn from ``rng``.
    """
    return reassigning_proposals(
        PLANNER, state, settings, context, lambda problem: best_on_path(problem, improve_greedily(swaps_of(problem)))
    )


SPEC = PlannerSpec(
    PLANNER,
    RingConfiguration.KIND,
    reassign_ids_ssbr,
    ReassignmentSettings,
    summary="ring IDs, by relayed messages and delay",
    source="Zhao13, section 5",
)
