"""Brokers that redirect users by themselves: the distributed variant of Zhao11, sections IV.C and V.

All brokers act at once, each on what all of them reported before the round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from regraft.api.trees import Flags
from regraft_lab.yardsticks.pack_drop import PACKING_TIE_SHARE, likely_changes_per_s
from regraft_lab.yardsticks.pack_users import ROUNDING
from regraft_lab.yardsticks.packed_users import Homes, PackingCosts, PackingInstance

# request_to_move, accept, replicate, connect, register, summarize, redirect; or request_to_move and a refusal.
MOVE_MESSAGES, DECLINE_MESSAGES = 7, 2
ROUNDS_MAX = 300  # Brokers that act simultaneously may send users back and forth forever.


@dataclass(frozen=True, slots=True)
class Migration:
    """The outcome. ``messages``: for moves, and for brokers' reports of their users' interests to all others."""

    costs: PackingCosts
    rounds: int
    moves: int
    declined: int
    messages: int


def migrate_users(
    instance: PackingInstance, homes: Homes, rng: np.random.Generator, decline_share: float = 0.0
) -> Migration:
    """Let brokers redirect users until no broker does any more, or for ROUNDS_MAX rounds.

    In a round each broker considers one of its users, those with the most traffic first, and asks it to move to the
    broker with the lowest total cost, given the subscriptions of all brokers' users, the user's prices and those
    between brokers. A user declines with probability ``decline_share``, and is then not asked again. The other broker
    accepts it if it has room left. Because all brokers act at once, a move may cost more than it was expected to save.
    """
    costs = PackingCosts(instance, homes)
    left = instance.room_per_s * (1 + ROUNDING) - instance.loads_per_s(costs.homes)
    stays = np.zeros(instance.user_count, dtype=np.bool_)
    considered = np.zeros(instance.user_count, dtype=np.bool_)
    rounds = moves = declined = messages = 0
    has_moved = False
    while rounds < ROUNDS_MAX:
        users = _heaviest(instance, costs.homes, ~considered & ~stays)
        if not len(users):
            if not has_moved:
                break
            has_moved = False
            considered[:] = False
            continue
        rounds += 1
        considered[users] = True
        before = costs.subscribers > 0
        for user, broker in _redirected(costs, users):
            if rng.random() < decline_share:
                stays[user] = True
                declined, messages = declined + 1, messages + DECLINE_MESSAGES
            elif left[broker] >= instance.demand_per_s[user]:
                left[costs.homes[user]] += instance.demand_per_s[user]
                left[broker] -= instance.demand_per_s[user]
                costs.move(user, broker)
                has_moved, moves, messages = True, moves + 1, messages + MOVE_MESSAGES
        messages += _reporting_count(before, costs.subscribers > 0) * (instance.broker_count - 1)
    return Migration(costs, rounds, moves, declined, messages)


def _heaviest(instance: PackingInstance, homes: Homes, may_move: Flags) -> Homes:
    """Return the user with the most traffic of each broker that has users that may move."""
    users = np.flatnonzero(may_move)
    order = users[np.lexsort((-instance.demand_per_s[users], homes[users]))]
    first = np.r_[True, np.diff(homes[order]) > 0] if len(order) else np.zeros(0, dtype=np.bool_)
    return np.asarray(order[first], dtype=np.intp)


def _redirected(costs: PackingCosts, users: Homes) -> list[tuple[int, int]]:
    """Return which of these users are asked to move, and where to, judged by the state before any of them moves."""
    likely = likely_changes_per_s(costs)[users]
    targets, least_per_s = likely.argmin(axis=1), PACKING_TIE_SHARE * costs.cost_per_s
    return [
        (user, broker)
        for user, broker, change in zip(users.tolist(), targets.tolist(), likely.min(axis=1).tolist(), strict=True)
        if change < -least_per_s and costs.change_per_s(user, broker) < -least_per_s
    ]


def _reporting_count(before: Flags, after: Flags) -> int:
    """Return how many brokers must report: the union of their users' subscriptions has changed."""
    return int((before != after).any(axis=0).sum())
