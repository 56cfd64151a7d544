"""Moves of publishers that a planner wants -> its proposals, one each, each costed after the earlier ones.

Publishers do not influence each other's cost, so the moves may be made in any order and any of them be left out.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from controller.state.planner_interface import OverlayState, PlannerSettings
from schemas.plan import ClientMove, Proposal


def rank_moves(
    state: OverlayState, settings: PlannerSettings, planner: str, reasons: Mapping[ClientMove, str], rng: random.Random
) -> list[Proposal]:
    """Return proposals for the moves (keys of ``reasons``), at most ``proposals_max``, in the order of the settings.

    The cost is that of all publishers whose home is known. Raises KeyError for a publisher or home that is not.
    """
    moves = sorted(reasons)
    if settings.order == "arrival":
        rng.shuffle(moves)
    else:
        moves.sort(key=lambda move: (-move_gain_per_s(state, move), move))
    cost_per_s = present_cost_per_s(state)
    proposals = []
    for move in moves[: settings.proposals_max]:
        after_per_s = cost_per_s - move_gain_per_s(state, move)
        proposals.append(moving_proposal(planner, (move,), cost_per_s, after_per_s, reasons[move]))
        cost_per_s = after_per_s
    return proposals


def moving_proposal(
    planner: str, moves: tuple[ClientMove, ...], before_per_s: float, after_per_s: float, reason: str
) -> Proposal:
    """Return a proposal that exchanges no link and moves these publishers."""
    return Proposal(planner, (), (), before_per_s, after_per_s, 0.0, reason, moves=moves)


def move_gain_per_s(state: OverlayState, move: ClientMove) -> float:
    """Return what one move saves in the one cost, negative when it costs more."""
    costs, index = state.publisher_costs, state.inventory.index
    row = costs.costs_per_s[costs.place_of(move.client)]
    return float(row[index[move.home_from]] - row[index[move.home_to]])


def present_cost_per_s(state: OverlayState) -> float:
    """Return what all publishers whose home is known cost at their homes."""
    costs, index = state.publisher_costs, state.inventory.index
    homes = state.tree.home_of
    return float(
        sum(
            costs.costs_per_s[place, index[homes[name]]] for place, name in enumerate(costs.publishers) if name in homes
        )
    )
