"""The three algorithms of Zhao11 that pack users onto brokers, and random placement as their baseline.

All respect the room of brokers and raise PackingError if a user fits nowhere. Improving a packing belongs to
:mod:`regraft_lab.yardsticks.pack_drop`.
"""

from __future__ import annotations

import numpy as np

from regraft.api.records import figure
from regraft.api.trees import Floats
from regraft_lab.yardsticks.packed_users import Homes, PackingError, PackingInstance

ROUNDING = 1e-9


class Room:
    """The room that brokers have left while users are placed."""

    def __init__(self, instance: PackingInstance) -> None:
        self.left_per_s = instance.room_per_s.copy()
        self._slack_per_s = ROUNDING * instance.room_per_s
        self._demand_per_s = instance.demand_per_s

    def fits(self, user: int) -> Homes:
        """Return the brokers with room for a user. Raises PackingError if there is none."""
        fitting = np.flatnonzero(self.left_per_s + self._slack_per_s >= self._demand_per_s[user])
        if not len(fitting):
            raise PackingError(
                f"no broker has room for user {user}, who needs {figure(self._demand_per_s[user])}/s: the most that "
                f"one has left is {figure(self.left_per_s.max())}/s; give brokers more room, or add one"
            )
        return fitting

    def take(self, user: int, broker: int) -> None:
        """Place a user at a broker."""
        self.left_per_s[broker] -= self._demand_per_s[user]


def pack_random(instance: PackingInstance, rng: np.random.Generator) -> Homes:
    """Return each user at a broker drawn from those with room: the paper's baseline (section VI.B)."""
    room, homes = Room(instance), np.zeros(instance.user_count, dtype=np.intp)
    for user in range(instance.user_count):
        homes[user] = rng.choice(room.fits(user))
        room.take(user, int(homes[user]))
    return homes


def pack_greedy(instance: PackingInstance) -> Homes:
    """Return each user, in their order, at the broker with room whose access link is cheapest.

    Source: Algorithm 1, whose comments on U and B are swapped. Cost O(users * brokers). Considers access alone.
    """
    room, homes = Room(instance), np.zeros(instance.user_count, dtype=np.intp)
    for user in range(instance.user_count):
        fits = room.fits(user)
        homes[user] = fits[instance.access_price[user, fits].argmin()]
        room.take(user, int(homes[user]))
    return homes


def pack_clustering(instance: PackingInstance) -> Homes:
    """Return users with much traffic between them at one broker, by the largest ratio of bandwidth to cost (BCR).

    Each broker first gets the pair of free users with the largest b_ij / (c_i + c_j). Then each user in their order
    goes to the broker with room at which its traffic with the users there is largest relative to the price of its
    access link. Source: Algorithm 2, with argmax in place of its argmin, as the text says "maximum". b_ij counts both
    ways. Departure: a pair must fit into its broker. Cost O(pairs evaluated + users * brokers * channels); a pair is
    evaluated only if its first user could do better than the best pair found.
    """
    room, homes = Room(instance), np.full(instance.user_count, -1, dtype=np.intp)
    most = _largest_between(instance)
    wanted, sent = (np.zeros((instance.broker_count, instance.rates.shape[1])) for _ in range(2))

    def settle(user: int, broker: int) -> None:
        homes[user] = broker
        wanted[broker] += instance.wants[user]
        sent[broker] += instance.rates[user]
        room.take(user, broker)

    for broker in range(instance.broker_count):
        for user in _best_pair(instance, broker, np.flatnonzero(homes < 0), most, room):
            settle(user, broker)
    for user in np.flatnonzero(homes < 0).tolist():
        fits = room.fits(user)
        between = wanted[fits] @ instance.rates[user] + sent[fits] @ instance.wants[user]
        settle(user, int(fits[_ratio(between, instance.access_price[user, fits]).argmax()]))
    return homes


def _ratio(bandwidth: Floats, price: Floats) -> Floats:
    """Return b / c, with c bounded below: links that cost nothing rank first, by their traffic."""
    return np.asarray(bandwidth / np.maximum(price, 1e-12))


def _largest_between(instance: PackingInstance) -> Floats:
    """Return the most traffic that each user has with any other one, shape (users,). O(users^2 * channels)."""
    most = np.zeros(instance.user_count)
    wants = instance.wants.astype(np.float32)
    rates = instance.rates.astype(np.float32)
    at_once = max(4_000_000 // max(instance.user_count, 1), 1)
    for at in range(0, instance.user_count, at_once):
        between = rates[at : at + at_once] @ wants.T + wants[at : at + at_once] @ rates.T
        between[np.arange(len(between)), np.arange(at, at + len(between))] = 0.0
        most[at : at + at_once] = between.max(axis=1)
    return most


def _best_pair(
    instance: PackingInstance, broker: int, free: Homes, most: Floats, room: Room
) -> tuple[int, int] | tuple[()]:
    """Return the free users with the largest ratio that fit into a broker together, or () if no two do."""
    if len(free) < 2:
        return ()
    price, demand = instance.access_price[free, broker], instance.demand_per_s[free]
    reachable = _ratio(most[free] * (1 + 1e-6), price + price.min())
    best, pair = -1.0, ()  # type: tuple[float, tuple[int, int] | tuple[()]]
    for place in np.argsort(-reachable, kind="stable").tolist():
        if reachable[place] <= best:
            break
        user = free[place]
        between = instance.wants[free] @ instance.rates[user] + instance.rates[free] @ instance.wants[user]
        ratio = _ratio(between, price + price[place])
        ratio[place] = -1.0
        ratio[demand + demand[place] > room.left_per_s[broker] * (1 + ROUNDING)] = -1.0
        other = int(ratio.argmax())
        if ratio[other] > best:
            best, pair = float(ratio[other]), (int(user), int(free[other]))
    return pair
