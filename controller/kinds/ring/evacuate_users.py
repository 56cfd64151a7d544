"""Move users away from brokers that are drained, at any cost: to brokers that already subscribe to their topics."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from regraft.controller.kinds.overlay_kind import EVACUATION
from regraft.controller.kinds.ring.ring_state import RingTraffic
from regraft.controller.state.planner_interface import moving_proposal
from regraft.overlay.ring.ring_costs import overlay_ring_cost
from regraft.overlay.ring.user_interests import UserInterests
from regraft.schemas.plan import ClientMove, Proposal


def users_leaving(
    ring: RingTraffic,
    avoided: Collection[str],
    left: Collection[str],
    moves_max: int,
    user_load_max: float,
    delay_weight: float,
) -> list[Proposal]:
    """Return moves of at most ``moves_max`` users from the brokers ``left`` to any that are not ``avoided``.

    A user goes to the broker that already subscribes to most of its topics, among equals to the least loaded, and to
    none above ``user_load_max`` times the mean. Cost O(brokers) for each topic of a user. Guarantee: none but the caps;
    deterministic.
    """
    if not left:
        return []
    interests = ring.interests
    moves = moves_elsewhere(interests, avoided, left, moves_max, user_load_max)
    if not moves:
        return []
    placed = interests.at_homes({move.client: move.home_to for move in moves})
    before, after = (
        overlay_ring_cost(ring.configuration, each, ring.rates_per_s).total_per_s(delay_weight)
        for each in (interests, placed)
    )
    emptied = ", ".join(sorted({move.home_from for move in moves}))
    reason = (
        f"{emptied} in maintenance: {len(moves)} users move to brokers that already subscribe to most of their topics"
    )
    return [moving_proposal(EVACUATION, moves, before, after, reason)]


def moves_elsewhere(
    interests: UserInterests,
    avoided: Collection[str],
    left: Collection[str],
    moves_max: int,
    user_load_max: float,
    leave_none: bool = False,
) -> tuple[ClientMove, ...]:
    """Return the moves of :func:`users_leaving`.

    A user for whom no broker has room stays; with ``leave_none`` it goes to the least loaded of the open brokers.
    """
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
        if not len(room) and leave_none:
            room = np.flatnonzero(is_open & (loads == loads[is_open].min()))
        if not len(room):
            continue
        alike = (counts[np.ix_(room, topics)] > 0).sum(axis=1)
        best = int(room[np.lexsort((room, loads[room], -alike))[0]])
        for broker, sign in ((home, -1), (best, 1)):
            counts[broker, topics] += sign
            loads[broker] += sign * len(topics)
        moves.append(ClientMove(interests.users[user], names[home], names[best]))
    return tuple(moves)
