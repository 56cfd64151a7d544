"""Move clients away from drained brokers, at any cost: publishers to their cheapest homes, subscribers to the nearest.

In: the state of a tree, the brokers in maintenance, and those of them to evacuate. Out: proposals, for which the judge
enforces shape and caps but requires no gain.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from regraft.controller.kinds.overlay_kind import EVACUATION
from regraft.controller.kinds.tree.describe_moves import effect_text
from regraft.controller.kinds.tree.price_moves import move_gain_per_s, present_cost_per_s
from regraft.controller.kinds.tree.tree_state import TreeState
from regraft.controller.state.planner_interface import emptying_proposal, moving_proposal
from regraft.overlay.tree.publisher_placement import PublisherPlacement
from regraft.schemas.plan import ClientMove, HomeMove, Proposal


def publishers_leaving(
    state: TreeState, avoided: Collection[str], left: Collection[str], moves_max: int
) -> list[Proposal]:
    """Return moves of at most ``moves_max`` publishers from the brokers ``left`` to any that are not ``avoided``.

    A publisher goes to its cheapest home within the caps of load. Cost O(brokers) for each publisher. Guarantee: none
    but the caps; deterministic. A publisher that has been silent over the whole horizon is unknown and stays.
    """
    if not left or not state.can_move_publishers:
        return []
    costs, homes, index = state.publisher_costs, state.configuration.home_of, state.inventory.index
    rows = [place for place, publisher in enumerate(costs.publishers) if publisher in homes]
    names = [costs.publishers[place] for place in rows]
    at = [index[homes[name]] for name in names]
    placement = PublisherPlacement(costs, rows, at, state.inventory.load_max_per_s)
    proposals: list[Proposal] = []
    cost_per_s = present_cost_per_s(state)
    for place, name in enumerate(names):
        if homes[name] not in left or len(proposals) == moves_max:
            continue
        by_cost = np.argsort(costs.costs_per_s[rows[place]], kind="stable").tolist()
        open_homes = [home for home in by_cost if state.inventory.brokers[home] not in avoided]
        limits = placement.limits_now()
        home = next((home for home in open_homes if placement.keeps(limits, [(place, home)])), None)
        if home is None:
            continue  # No broker has room; one may have in the next window.
        move = ClientMove(name, homes[name], state.inventory.brokers[home])
        placement.move(place, home)
        after_per_s = cost_per_s - move_gain_per_s(state, move)
        reason = f"{move.home_from} is in maintenance; {move.home_to} is the cheapest home that the caps of load allow"
        text = f"{reason}; {effect_text(state, [move])}"
        proposals.append(moving_proposal(EVACUATION, (move,), cost_per_s, after_per_s, text))
        cost_per_s = after_per_s
    return proposals


def subscribers_leaving(state: TreeState, avoided: Collection[str], left: Collection[str]) -> list[Proposal]:
    """Return moves of all subscribers of each broker ``left`` to the open one with the cheapest link to it.

    Empty if the register of clients does not show their number, clients stay, or no broker is open.
    """
    counts, inventory = state.subscribers_at or {}, state.inventory
    open_homes = [broker for broker in inventory.brokers if broker not in avoided]
    if inventory.clients_stay or not open_homes:
        return []
    proposals = []
    for broker in sorted(left):
        if not counts.get(broker) or broker not in inventory.index:
            continue
        near = min(open_homes, key=lambda home: (inventory.cost_of_link(broker, home), home))
        moves = (HomeMove(broker, near),)
        reason = f"{broker} is in maintenance; its {counts[broker]} subscribers go to {near}, the nearest broker"
        cost_per_s = state.tree_costs.cost_per_s  # The judge computes what each of them costs.
        proposals.append(emptying_proposal(EVACUATION, moves, cost_per_s, cost_per_s, reason))
    return proposals
