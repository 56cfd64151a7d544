"""Price moves of publishers on a tree. Publishers do not influence each other's cost, so each move counts alone."""

from __future__ import annotations

from regraft.controller.kinds.tree.tree_state import TreeState
from regraft.schemas.plan import ClientMove


def move_gain_per_s(state: TreeState, move: ClientMove) -> float:
    """Return what one move saves of the overlay's cost; negative if it costs more."""
    costs, index = state.publisher_costs, state.inventory.index
    row = costs.costs_per_s[costs.place_of(move.client)]
    return float(row[index[move.home_from]] - row[index[move.home_to]])


def present_cost_per_s(state: TreeState) -> float:
    """Return the cost of all publishers whose home is known, at their homes."""
    costs, index = state.publisher_costs, state.inventory.index
    homes = state.configuration.home_of
    return float(
        sum(
            costs.costs_per_s[place, index[homes[name]]] for place, name in enumerate(costs.publishers) if name in homes
        )
    )
