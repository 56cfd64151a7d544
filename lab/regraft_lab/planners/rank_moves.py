"""Turn moves of publishers that a planner wants into its proposals, one each, each costed after the earlier ones.

Publishers do not influence each other's cost, so the moves may be made in any order, and any of them may be left out.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from regraft.api.planners import move_gain_per_s, moving_proposal, present_cost_per_s
from regraft.api.planning import Order, TreeContext, TreeState
from regraft.api.records import ClientMove, Proposal


def rank_moves(
    state: TreeState,
    order: Order,
    context: TreeContext,
    planner: str,
    reasons: Mapping[ClientMove, str],
    rng: random.Random,
) -> list[Proposal]:
    """Return proposals for the moves (keys of ``reasons``), at most ``proposals_max``, in the given ``order``.

    The cost is that of all publishers whose home is known. Raises KeyError for an unknown publisher or home.
    """
    moves = sorted(reasons)
    if order == "arrival":
        rng.shuffle(moves)
    else:
        moves.sort(key=lambda move: (-move_gain_per_s(state, move), move))
    cost_per_s = present_cost_per_s(state)
    proposals = []
    for move in moves[: context.proposals_max]:
        after_per_s = cost_per_s - move_gain_per_s(state, move)
        proposals.append(moving_proposal(planner, (move,), cost_per_s, after_per_s, reasons[move]))
        cost_per_s = after_per_s
    return proposals
