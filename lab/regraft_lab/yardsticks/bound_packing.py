"""Compute a lower bound of the cost of all packings of users."""

from __future__ import annotations

import numpy as np

from regraft_lab.yardsticks.packed_users import PackingInstance, tree_prices

STEPS = 300  # Of the ascent; its bound came within 1 % of the linear program where that was solved.


def least_packing_cost_per_s(instance: PackingInstance) -> float:
    """Return a lower bound of every packing's cost: of its access links plus that of its trees.

    Access: the Lagrangian dual of assigning users to brokers with room; at its best it equals the linear program in
    which a user may be split. Trees: subscribers of a sub-channel need room, so they are at no fewer brokers than the
    roomiest ones that hold them together; a tree over k brokers has k - 1 links without a cycle, and the cheapest k - 1
    such links are the first that Kruskal takes of all brokers (matroid). Cost O(steps * users * brokers).
    """
    return _least_access_per_s(instance) + _least_core_per_s(instance)


def _least_access_per_s(instance: PackingInstance) -> float:
    cost, demand, room = instance.access_cost_per_s, instance.demand_per_s, instance.room_per_s
    price = np.zeros(instance.broker_count)  # The price of a broker's room.
    best, scale = -np.inf, float(cost.min(axis=1).sum()) / max(float(demand.sum()), 1e-12)
    for step in range(STEPS):
        total = cost + price * demand[:, None]
        homes = total.argmin(axis=1)
        value = float(total[np.arange(len(homes)), homes].sum() - price @ room)
        best = max(best, value)
        over = np.bincount(homes, weights=demand, minlength=len(room)) - room
        size = float(np.abs(over).max(initial=0.0))
        if size <= 0 or ((over <= 0).all() and not price.any()):
            break
        price = np.maximum(price + scale / (1 + step / 10) * over / size, 0.0)
    return best


def _least_core_per_s(instance: PackingInstance) -> float:
    held = np.cumsum(np.sort(instance.room_per_s)[::-1])
    links = _cheapest_links(instance)
    total = 0.0
    for channel, rate in enumerate(instance.channel_rates.tolist()):
        wanted_per_s = float(instance.demand_per_s[instance.wants[:, channel]].sum())
        brokers = int(np.searchsorted(held, wanted_per_s * (1 - 1e-9))) + 1
        total += rate * float(links[: brokers - 1].sum())
    return total


def _cheapest_links(instance: PackingInstance) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the prices of the links of a minimum spanning tree over all brokers, ascending."""
    count = instance.broker_count
    left = np.ones(count, dtype=np.bool_)
    left[0] = False
    near, cheapest = instance.core_price[0].copy(), np.zeros(max(count - 1, 0))
    for place in range(count - 1):
        at = int(np.where(left, near, np.inf).argmin())
        cheapest[place], left[at] = near[at], False
        near = np.minimum(near, instance.core_price[at])
    cheapest.sort()
    assert np.isclose(cheapest.sum(), tree_prices(instance.core_price, np.ones((1, count), dtype=np.bool_))[0])
    return cheapest
