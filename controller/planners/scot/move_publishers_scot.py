"""Move publishers of a structured cyclic overlay to their cheapest homes, priced by static routing."""

from __future__ import annotations

import random

import numpy as np

from regraft.controller.kinds.scot.scot_state import ScotState
from regraft.controller.settings.planner_settings import PlannerSettings
from regraft.controller.state.planner_interface import PlannerContext, PlannerSpec, moving_proposal
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.schemas.plan import ClientMove, Proposal
from regraft.schemas.texts import figure

PLANNER = "move_publishers_scot"


def move_publishers_scot(
    state: ScotState, settings: PlannerSettings, context: PlannerContext, rng: random.Random
) -> list[Proposal]:
    """Return a move for each publisher that costs less elsewhere.

    Source: none, Shafique moves no publishers; the cost is Jaeger07, Eq. 1-2, on the tree that static routing makes of
    the overlay. Cost O(brokers) for each publisher, once the state is priced. Guarantee: each publisher is where it
    costs least, because publishers do not influence each other's cost.
    """
    if not state.can_move_publishers:
        return []
    costs, overlay = state.costs, state.configuration
    moves = []
    for name in costs.publishers:
        home = overlay.home_of.get(name)
        if home is None:
            continue
        by_home = costs.by_home(name)
        now, best = float(by_home[overlay.brokers.index(home)]), int(np.argmin(by_home))
        if by_home[best] < now:
            moves.append((now - float(by_home[best]), now, ClientMove(name, home, overlay.brokers[best])))
    moves.sort(key=lambda one: (-one[0], one[2]))
    cost_per_s = costs.total_per_s(overlay.home_of)
    proposals = []
    for gain_per_s, now, move in moves[: min(context.proposals_max, context.moves_max)]:
        reason = f"costs {figure(now - gain_per_s)} instead of {figure(now)}/s there"
        proposals.append(moving_proposal(PLANNER, (move,), cost_per_s, cost_per_s - gain_per_s, reason))
        cost_per_s -= gain_per_s
    return proposals


SPEC = PlannerSpec(
    PLANNER,
    ScotConfiguration.KIND,
    move_publishers_scot,
    PlannerSettings,
    summary="a publisher's home on a structured cyclic overlay, by the one cost",
    source="ours",
)
