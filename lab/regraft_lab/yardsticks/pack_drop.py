"""Pack users by the whole cost: ours, in place of the three algorithms of Zhao11.

In: an instance, a generator, a budget of evaluations. Out: a home for each user, within the room of brokers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from regraft.api.trees import Floats
from regraft_lab.yardsticks.pack_mixing import pack_mixing
from regraft_lab.yardsticks.pack_users import ROUNDING, pack_clustering, pack_greedy
from regraft_lab.yardsticks.packed_users import Homes, PackingCosts, PackingError, PackingInstance

PACKING_TIE_SHARE = 1e-9  # A saving below this share of the cost is rounding of floats.
EVALUATIONS_MAX = 20_000  # Full or partial evaluations, some 2 ms each at 100 brokers.


@dataclass
class Budget:
    """How many evaluations of the cost are left."""

    evaluations_left: int = EVALUATIONS_MAX

    def take(self) -> bool:
        """Use one evaluation; return True if there was one left."""
        self.evaluations_left -= 1
        return self.evaluations_left >= 0


def pack_drop(instance: PackingInstance, rng: np.random.Generator, evaluations_max: int = EVALUATIONS_MAX) -> Homes:
    """Return the cheapest packing that closing brokers and moving single users lead to.

    It starts from each of the paper's three packings. Brokers are closed one by one while that lowers the whole cost;
    their users go where their access link is cheapest. Then single users move while that lowers it, and both repeat.
    Source: drop heuristics of facility location; the cost is that of :mod:`regraft_lab.yardsticks.packed_users`, which
    also states the cost of an evaluation. Guarantee: never more expensive than the paper's three, nor than greedy
    packing with brokers closed. Any-time: ends at a local optimum or after ``evaluations_max`` evaluations from each
    start.
    """
    starts = [pack_greedy(instance), pack_clustering(instance), pack_mixing(instance, rng)]
    packings = [descend_packing(PackingCosts(instance, homes), Budget(evaluations_max)) for homes in starts]
    return min(packings, key=lambda costs: costs.cost_per_s).homes


def descend_packing(costs: PackingCosts, budget: Budget) -> PackingCosts:
    """Return a packing that neither closing a broker nor moving a user improves, or the last one within the budget."""
    while True:
        before_per_s = costs.cost_per_s
        costs = close_brokers(costs, budget)
        move_users(costs, budget)
        if costs.cost_per_s >= before_per_s * (1 - 1e-6) or budget.evaluations_left <= 0:
            return costs


def close_brokers(costs: PackingCosts, budget: Budget) -> PackingCosts:
    """Close brokers while closing one saves, those with the least traffic first."""
    is_closing = True
    while is_closing:
        is_closing = False
        loads = costs.instance.loads_per_s(costs.homes)
        for broker in np.argsort(loads, kind="stable").tolist():
            homes = _without(costs.instance, costs.homes, broker) if loads[broker] > 0 else None
            if homes is None or not budget.take():
                continue
            trial = PackingCosts(costs.instance, homes)
            if trial.cost_per_s < costs.cost_per_s * (1 - PACKING_TIE_SHARE):
                costs, is_closing = trial, True
                loads = costs.instance.loads_per_s(costs.homes)
    return costs


def _without(instance: PackingInstance, homes: Homes, broker: int) -> Homes | None:
    """Return the homes after closing a broker, each user where its link is cheapest; None if the others lack room.

    Users with the most traffic choose first. Brokers without users stay closed.
    """
    loads = instance.loads_per_s(homes)
    is_open = np.bincount(homes, minlength=instance.broker_count) > 0
    is_open[broker] = False
    places = np.flatnonzero(is_open)
    after, left = homes.copy(), instance.room_per_s[places] * (1 + ROUNDING) - loads[places]
    leaving = np.flatnonzero(homes == broker)
    for user in leaving[np.argsort(-instance.demand_per_s[leaving], kind="stable")].tolist():
        fits = np.flatnonzero(left >= instance.demand_per_s[user])
        if not len(fits):
            return None
        place = fits[instance.access_price[user, places[fits]].argmin()]
        after[user] = places[place]
        left[place] -= instance.demand_per_s[user]
    return after


def move_users(costs: PackingCosts, budget: Budget) -> int:
    """Move single users while that lowers the cost; return how many moves were made.

    Moves are found by their likely savings, all at once, and made by their actual ones.
    """
    instance, made = costs.instance, 0
    while True:
        likely = likely_changes_per_s(costs)
        left = instance.room_per_s * (1 + ROUNDING) - instance.loads_per_s(costs.homes)
        likely[instance.demand_per_s[:, None] > left[None, :]] = np.inf
        target = likely.argmin(axis=1)
        change = likely[np.arange(len(target)), target]
        before, least_per_s = made, PACKING_TIE_SHARE * costs.cost_per_s
        for user in np.argsort(change, kind="stable").tolist():
            broker = int(target[user])
            if change[user] >= -least_per_s or not budget.take():
                break
            if left[broker] < instance.demand_per_s[user] or costs.change_per_s(user, broker) >= -least_per_s:
                continue
            left[costs.homes[user]] += instance.demand_per_s[user]
            left[broker] -= instance.demand_per_s[user]
            costs.move(user, broker)
            made += 1
        if made == before or budget.evaluations_left <= 0:
            return made


def likely_changes_per_s(costs: PackingCosts) -> Floats:
    """Return the approximate cost change of each move, shape (users, brokers); 0 at a user's home.

    Exact if at most one broker joins or leaves each tree, and nobody publishes from outside of it.
    """
    instance = costs.instance
    there = costs.subscribers > 0
    channels, brokers = there.shape
    wider = np.repeat(there, brokers, axis=0)
    wider[np.arange(len(wider)), np.tile(np.arange(brokers), channels)] = True
    prices = instance.trees.prices(np.concatenate([there, wider]))
    plain, with_broker = prices[:channels], prices[channels:].reshape(channels, brokers)
    single = np.argwhere(costs.subscribers == 1)
    narrower = there[single[:, 0]]
    narrower[np.arange(len(single)), single[:, 1]] = False
    rates = instance.channel_rates
    joining = rates[:, None] * (with_broker - plain[:, None])
    leaving = np.zeros((channels, brokers))
    saved = plain[single[:, 0]] - instance.trees.prices(narrower)
    leaving[single[:, 0], single[:, 1]] = rates[single[:, 0]] * saved
    users = np.arange(instance.user_count)
    own = costs.homes
    change = instance.access_cost_per_s - instance.access_cost_per_s[users, own][:, None]
    sent = instance.rates @ with_broker
    change += sent - sent[users, own][:, None]
    change += instance.wants @ joining
    change -= (instance.wants * leaving[:, own].T).sum(axis=1)[:, None]
    change[users, own] = 0.0
    return np.asarray(change)


def closable(instance: PackingInstance, homes: Homes) -> Homes:
    """Return the brokers without clients, which can be closed. Raises PackingError for homes that do not fit."""
    if not instance.is_packed(homes):
        raise PackingError("brokers have more traffic than they have room for")
    return np.flatnonzero(np.bincount(homes, minlength=instance.broker_count) == 0)
