"""Move clients away from brokers that a person has set aside, whatever it costs: the cheapest homes for them elsewhere.

In: a state, the brokers in maintenance, and those of them that are to be left. Out: proposals, which the judge holds to
the shape and the caps but not to a gain. On a tree publishers move, on a ring users; subscribers of a tree stay.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from controller.planners.steps.describe_moves import effect_text
from controller.planners.steps.rank_moves import move_gain_per_s, moving_proposal, present_cost_per_s
from controller.state.planner_interface import OverlayState
from controller.state.ring_state import RingState
from overlay.publisher_placement import PublisherPlacement
from overlay.ring_costs import overlay_ring_cost
from schemas.plan import ClientMove, Plan, Proposal

PLANNER = "evacuate_brokers"


def evacuate_brokers(
    state: OverlayState,
    avoided: Collection[str],
    left: Collection[str],
    moves_max: int,
    user_load_max: float,
    ring_delay_weight: float = 1.0,
) -> list[Proposal]:
    """Return moves of at most ``moves_max`` clients from the brokers ``left`` to any that are not ``avoided``.

    A publisher goes to its cheapest home that the caps of load leave. A user goes to the broker that already
    subscribes to most of its topics, of equal ones to the least loaded, and none above ``user_load_max`` times the
    mean. Cost O(brokers) for each publisher and each topic of a user. Guarantee: none but the caps; deterministic. A
    publisher that has been silent over the whole horizon is not known and stays.
    """
    if not left:
        return []
    if state.ring is not None:
        return _users_leaving(state.ring, avoided, left, moves_max, user_load_max, ring_delay_weight)
    return _publishers_leaving(state, avoided, left, moves_max) if state.can_move_publishers else []


def is_evacuation(plan: Plan) -> bool:
    """Tell whether a plan moves clients away from a broker in maintenance: then it was not made to save anything."""
    return any(proposal.planner == PLANNER for proposal in plan.proposals)


def _publishers_leaving(
    state: OverlayState, avoided: Collection[str], left: Collection[str], moves_max: int
) -> list[Proposal]:
    costs, homes, index = state.publisher_costs, state.tree.home_of, state.inventory.index
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
            continue  # No broker has room; the next window may know one.
        move = ClientMove(name, homes[name], state.inventory.brokers[home])
        placement.move(place, home)
        after_per_s = cost_per_s - move_gain_per_s(state, move)
        reason = f"{move.home_from} is in maintenance; {move.home_to} is the cheapest home that the caps of load leave"
        text = f"{reason}; {effect_text(state, [move])}"
        proposals.append(moving_proposal(PLANNER, (move,), cost_per_s, after_per_s, text))
        cost_per_s = after_per_s
    return proposals


def _users_leaving(
    ring: RingState,
    avoided: Collection[str],
    left: Collection[str],
    moves_max: int,
    user_load_max: float,
    delay_weight: float,
) -> list[Proposal]:
    interests = ring.interests
    names, starts, wanted = interests.brokers, interests.starts, interests.wanted
    counts, loads = interests.user_counts.copy(), interests.user_counts.sum(axis=1).astype(np.float64)
    is_open = np.array([name not in avoided for name in names])
    limit = user_load_max * float(loads.mean())
    moves: list[ClientMove] = []
    for user, home in enumerate(interests.homes.tolist()):
        if names[home] not in left or len(moves) == moves_max:
            continue
        topics = wanted[starts[user] : starts[user + 1]]
        room = np.flatnonzero(is_open & (loads + len(topics) <= limit))
        if not len(room):
            continue
        alike = (counts[np.ix_(room, topics)] > 0).sum(axis=1)
        best = int(room[np.lexsort((room, loads[room], -alike))[0]])
        for broker, sign in ((home, -1), (best, 1)):
            counts[broker, topics] += sign
            loads[broker] += sign * len(topics)
        moves.append(ClientMove(interests.users[user], names[home], names[best]))
    if not moves:
        return []
    placed = interests.at_homes({move.client: move.home_to for move in moves})
    before, after = (
        overlay_ring_cost(ring.configuration, each, ring.rates_per_s).total_per_s(delay_weight)
        for each in (interests, placed)
    )
    emptied = ", ".join(sorted({move.home_from for move in moves}))
    reason = f"{emptied} in maintenance: {len(moves)} users go to brokers that subscribe to most of their topics"
    return [moving_proposal(PLANNER, tuple(moves), before, after, reason)]
