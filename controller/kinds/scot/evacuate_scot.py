"""Move publishers away from brokers in maintenance, to their cheapest homes elsewhere. Subscribers stay."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from regraft.controller.kinds.overlay_kind import EVACUATION
from regraft.controller.kinds.scot.scot_state import ScotState
from regraft.controller.state.planner_interface import moving_proposal
from regraft.schemas.plan import ClientMove, Proposal


def publishers_leaving(
    state: ScotState, avoided: Collection[str], left: Collection[str], moves_max: int
) -> list[Proposal]:
    """Return moves of at most ``moves_max`` publishers from brokers ``left`` to any that are not ``avoided``."""
    open_to = np.array([broker not in avoided for broker in state.configuration.brokers])
    if not left or not state.can_move_publishers or not open_to.any():
        return []
    costs, homes = state.costs, state.configuration.home_of
    proposals: list[Proposal] = []
    cost_per_s = costs.total_per_s(homes)
    for name in costs.publishers:
        home = homes.get(name)
        if home is None or home not in left or len(proposals) == moves_max:
            continue
        by_home = np.where(open_to, costs.by_home(name), np.inf)
        best = int(np.argmin(by_home))
        move = ClientMove(name, home, state.configuration.brokers[best])
        before = float(costs.by_home(name)[state.configuration.brokers.index(home)])
        after_per_s = cost_per_s - before + float(by_home[best])
        reason = f"{home} is in maintenance; {move.home_to} is the cheapest home elsewhere"
        proposals.append(moving_proposal(EVACUATION, (move,), cost_per_s, after_per_s, reason))
        cost_per_s = after_per_s
    return proposals
