"""Reassign ring IDs by linear assignment and swaps that consider the move price: ours, in place of DYNATOPS-Greedy.

The steps belong to :mod:`controller.planners.ring.steps.assign_ring_ids`, making a proposal of them to
:mod:`controller.planners.ring.steps.propose_ring_ids`.
"""

from __future__ import annotations

import random

from regraft.controller.kinds.ring.ring_state import RingContext, RingState
from regraft.controller.planners.ring.steps.assign_ring_ids import assign_ids
from regraft.controller.planners.ring.steps.propose_ring_ids import reassigning_proposals
from regraft.controller.planners.shared_settings import ReassignmentSettings
from regraft.controller.state.planner_interface import PlannerSpec
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.schemas.plan import Proposal

PLANNER = "reassign_ids_assignment"


def reassign_ids_assignment(
    state: RingState, settings: ReassignmentSettings, context: RingContext, rng: random.Random
) -> list[Proposal]:
    """Return IDs from a linear assignment of brokers to positions, improved by swaps, with the move price in both.

    Source: the problem, Bft, Cst and the tests around the search are those of Zhao13 (section 5, Algorithm 2), with
    ``delay_weight`` (w_d), ``ring_free_s`` (T_free) and ``ring_demand_share_min`` (beta); hops count as delay. The
    paper notes that with delay alone the problem can be solved; the rest is ours. Cost O(brokers^3) for the assignment
    and O(topics * brokers^2) for evaluating all swaps. Guarantee: Bft - Cst is never below that of DYNATOPS-Greedy on
    the same state, which is computed, too; none of the optimum, which is NP-hard. Nothing is drawn from ``rng``.
    """
    return reassigning_proposals(PLANNER, state, settings, context, assign_ids)


SPEC = PlannerSpec(
    PLANNER,
    RingConfiguration.KIND,
    reassign_ids_assignment,
    ReassignmentSettings,
    summary="ring IDs, by relayed messages, delay and the price of each move",
    source="ours, for the problem of Zhao13",
)
