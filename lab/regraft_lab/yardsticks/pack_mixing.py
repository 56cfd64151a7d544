"""Steiner-tree mixing of Zhao11: draw homes by the traffic that the trees of all publishers and sub-channels send."""

from __future__ import annotations

import numpy as np

from regraft.api.trees import Floats
from regraft_lab.yardsticks.pack_users import Room
from regraft_lab.yardsticks.packed_users import Homes, PackingInstance


def pack_mixing(instance: PackingInstance, rng: np.random.Generator) -> Homes:
    """Return each user at a broker drawn by the traffic that approximate Steiner trees send over its access links.

    Phase 1 grows a tree for each publisher and sub-channel (:func:`_grown`); phase 2 draws each user's broker among
    those with room, weighted by the traffic on its access links in these trees. Source: section IV.B and Algorithm 3,
    which is garbled; read as Prim from the publisher: the next user is the one with the cheapest path to a broker plus
    access link, and it stays at that broker. The first path leads from the publisher over one broker or over two,
    whichever is cheaper, and the publisher stays at the first of them; the paper requires the triangle inequality
    between brokers, so none needs a third. Departures: once the publisher is at its first broker, its tree is that of
    any other publisher there, so one is grown for each sub-channel and first broker, and a publisher is not excluded
    from the receivers of its own tree. A user that no tree reaches goes to the cheapest broker with room. Cost
    O(channels * brokers * brokers that join * users * brokers).
    """
    weights = np.zeros_like(instance.access_price)
    for channel in range(instance.rates.shape[1]):
        receivers = np.flatnonzero(instance.wants[:, channel])
        senders = np.flatnonzero(instance.rates[:, channel] > 0)
        if not len(receivers) or not len(senders):
            continue
        first = _first_brokers(instance.access_price, instance.core_price, receivers, senders)
        rates = instance.rates[senders, channel]
        np.add.at(weights, (senders, first), rates)
        starts, place = np.unique(first, return_inverse=True)
        sent = np.bincount(place, weights=rates)
        access_price = instance.access_price[receivers]
        for rate, start in zip(sent.tolist(), starts.tolist(), strict=True):
            weights[receivers, _grown(access_price, instance.core_price, start)] += rate
    return _drawn(instance, weights, rng)


def _first_brokers(access_price: Floats, core_price: Floats, receivers: Homes, senders: Homes) -> Homes:
    """Return the broker at which each sender's cheapest way to a receiver other than itself begins, shape (senders,).

    A way is an access link, none or one link between brokers, and another access link. Cost O((senders + brokers *
    brokers) * brokers): only a receiver that is the nearest of some broker has to be left out of its own way.
    """
    prices = access_price[receivers]
    nearest = prices.min(axis=0)
    ways = access_price[senders] + (core_price + nearest).min(axis=1)
    if len(receivers) > 1:
        by_price = prices.argmin(axis=0)
        second = np.partition(prices, 1, axis=0)[1]
        place_of = {user: place for place, user in enumerate(receivers.tolist())}
        nearest_places = set(by_price.tolist())
        for row, sender in enumerate(senders.tolist()):
            place = place_of.get(sender)
            if place in nearest_places:
                others = np.where(by_price == place, second, nearest)
                ways[row] = access_price[sender] + (core_price + others).min(axis=1)
    return np.asarray(ways.argmin(axis=1), dtype=np.intp)


def _grown(access_price: Floats, core_price: Floats, start: int) -> Homes:
    """Return where each receiver is attached in the tree grown from a broker, shape (receivers,).

    In its turn, a receiver goes to a broker of the tree, unless the path to another broker plus its link there is
    cheaper. So between two brokers that join the tree, all receivers with an earlier turn are attached at once.
    """
    homes = np.full(len(access_price), start, dtype=np.intp)
    near, apart = core_price[start].copy(), np.arange(len(core_price)) != start
    inside = access_price[:, start].copy()  # From a broker of the tree to the receiver.
    # Through a broker that would join for it. Stays as it is if that one joins for another: then ``inside`` is less.
    outside = np.where(apart, near + access_price, np.inf).min(axis=1)
    free = np.arange(len(access_price), dtype=np.intp)
    while True:
        joining = free[outside[free] < inside[free]]
        if not len(joining):
            return homes
        turn = joining[outside[joining].argmin()]
        broker = int(np.where(apart, near + access_price[turn], np.inf).argmin())
        apart[broker] = False
        homes[turn] = broker
        free = free[(inside[free] > outside[turn]) & (free != turn)]
        closer = np.flatnonzero(core_price[broker] < near)
        near[closer] = core_price[broker, closer]
        closer = closer[apart[closer]]
        if len(closer):
            outside[free] = np.minimum(
                outside[free], (near[closer] + access_price[np.ix_(free, closer)]).min(axis=1, initial=np.inf)
            )
        moved = free[access_price[free, broker] < inside[free]]
        homes[moved], inside[moved] = broker, access_price[moved, broker]


def _drawn(instance: PackingInstance, weights: Floats, rng: np.random.Generator) -> Homes:
    room, homes = Room(instance), np.zeros(instance.user_count, dtype=np.intp)
    for user in range(instance.user_count):
        fits = room.fits(user)
        weight = weights[user, fits]
        total = weight.sum()
        if total > 0:
            homes[user] = rng.choice(fits, p=weight / total)
        else:
            homes[user] = fits[instance.access_price[user, fits].argmin()]
        room.take(user, int(homes[user]))
    return homes
