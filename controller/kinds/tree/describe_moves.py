"""Price moves of publishers on a tree, and describe them in one sentence: messages and delay before and after.

Publishers do not influence each other's cost, so each move counts alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from regraft.controller.kinds.tree.tree_state import TreeState
from regraft.schemas.plan import ClientMove
from regraft.schemas.texts import figure


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


def effect_text(state: TreeState, moves: Sequence[ClientMove]) -> str:
    """Return how the messages of the moved publishers change, and the mean delay to their subscribers.

    Messages are those through all brokers (Cheung09, Algorithm 2). The delay is the inventory's cost of links and
    brokers from the publisher's home to each delivery of the horizon, without queues; left out if there was no
    delivery.
    """
    priced, row = state.publisher_costs, state.inventory.index
    rates = [0.0, 0.0]
    delays = [0.0, 0.0]
    count, names = 0.0, state.inventory.brokers
    for move in moves:
        targets, counts = state.hand_overs.of_publisher(move.client)
        deliveries = dict(zip((names[target] for target in targets), counts.tolist(), strict=True))
        count += float(counts.sum())
        for place, home in enumerate((move.home_from, move.home_to)):
            rates[place] += float(priced.message_rates_per_s[priced.place_of(move.client), row[home]])
            path_costs = _path_costs_from(state, home)
            delays[place] += sum(path_costs[broker] * number for broker, number in deliveries.items())
    text = f"messages {figure(rates[0])} -> {figure(rates[1])}/s"
    return f"{text}, delay {figure(delays[0] / count)} -> {figure(delays[1] / count)}" if count else text


def _path_costs_from(state: TreeState, home: str) -> dict[str, float]:
    """Return the cost of links and brokers on the path from a home to every broker, both ends included."""
    inventory = state.inventory
    costs = {home: float(inventory.processing_cost[inventory.index[home]])}
    for broker, parent in state.configuration.parents_from(home).items():
        own = float(inventory.processing_cost[inventory.index[broker]])
        costs[broker] = costs[parent] + inventory.cost_of_link(parent, broker) + own
    return costs
