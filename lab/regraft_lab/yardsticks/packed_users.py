"""The cost of users at brokers whose traffic is billed: access links, and trees between brokers.

In: what users publish and want by sub-channel of the content space, prices, room of brokers, homes. Out: costs per
second, and the change of cost of a user's move. Choosing homes belongs to the packers.

Source: Zhao and Wu, "On the Construction of the Minimum Cost Content-Based Publish/Subscribe Overlays", sections II to
IV. A message pays for the access link of its publisher and of each subscriber, and between brokers for a minimum
spanning tree over the publisher's broker and the brokers with a subscriber of its sub-channel (section III.A). Messages
that no other user wants are not sent at all (end of section IV.B).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from regraft.api.trees import Flags, Floats

Homes = NDArray[np.intp]

TREES_KNOWN_MAX = 1_000_000  # Some 200 MB.


class PackingError(ValueError):
    """Users, prices and brokers do not fit together; the message says what is wrong."""


@dataclass(frozen=True, eq=False)
class PackingInstance:
    """Users to be packed: ``rates`` (users, channels) per second, ``wants`` (users, channels), ``access_price`` (users,
    brokers), ``core_price`` (brokers, brokers; symmetric, 0 to itself), ``room_per_s`` (brokers,).

    ``rates`` holds only what another user wants. The room of a broker limits the traffic of its users in both
    directions; transit traffic between other brokers does not count (section II.B).
    """

    rates: Floats
    wants: Flags
    access_price: Floats
    core_price: Floats
    room_per_s: Floats

    @classmethod
    def of(
        cls, published: Floats, wants: Flags, access_price: Floats, core_price: Floats, room_factor: float = 2.0
    ) -> PackingInstance:
        """Build an instance whose brokers have equal room, together for ``room_factor`` times the traffic.

        Each broker has room for at least the user with the most traffic. Raises PackingError if shapes differ, a price
        or rate is negative, or prices between brokers are not symmetric with 0 on the diagonal.
        """
        _check(published, wants, access_price, core_price)
        others = wants.sum(axis=0)[None, :] - wants
        rates = np.where(others > 0, published, 0.0)
        brokers = len(core_price)
        demand = _demand_per_s(rates, wants)
        room = np.full(brokers, max(room_factor * demand.sum() / brokers, float(demand.max(initial=0.0))))
        return cls(rates, wants, access_price, core_price, room)

    @property
    def user_count(self) -> int:
        """The number of users."""
        return len(self.rates)

    @property
    def broker_count(self) -> int:
        """The number of brokers."""
        return len(self.core_price)

    @cached_property
    def demand_per_s(self) -> Floats:
        """What each user sends and receives, shape (users,): b_i(out) + b_i(in)."""
        return _demand_per_s(self.rates, self.wants)

    @cached_property
    def access_cost_per_s(self) -> Floats:
        """What each user's access link costs at each broker, shape (users, brokers)."""
        return self.demand_per_s[:, None] * self.access_price

    @cached_property
    def channel_rates(self) -> Floats:
        """What all users send on each sub-channel per second, shape (channels,)."""
        return np.asarray(self.rates.sum(axis=0))

    @cached_property
    def trees(self) -> KnownTrees:
        """A cache of prices of trees between brokers: moves of users need few different trees."""
        return KnownTrees(self.core_price)

    def loads_per_s(self, homes: Homes) -> Floats:
        """Return the traffic of each broker's users, shape (brokers,)."""
        return np.bincount(homes, weights=self.demand_per_s, minlength=self.broker_count).astype(np.float64)

    def is_packed(self, homes: Homes) -> bool:
        """Return True if the room of every broker suffices, up to rounding."""
        return bool((self.loads_per_s(homes) <= self.room_per_s * (1 + 1e-9)).all())


def _check(published: Floats, wants: Flags, access_price: Floats, core_price: Floats) -> None:
    users, brokers = access_price.shape
    if published.shape != wants.shape or len(published) != users:
        raise PackingError(f"rates are {published.shape}, wants {wants.shape}, access prices {access_price.shape}")
    if core_price.shape != (brokers, brokers):
        raise PackingError(f"prices between brokers are {core_price.shape}: they must be {brokers} by {brokers}")
    if min(published.min(initial=0.0), access_price.min(initial=0.0), core_price.min(initial=0.0)) < 0:
        raise PackingError("a rate or price is negative")
    if core_price.diagonal().any() or not np.allclose(core_price, core_price.T):
        raise PackingError("prices between brokers must be symmetric, and 0 from a broker to itself")


def _demand_per_s(rates: Floats, wants: Flags) -> Floats:
    taken = (wants * (rates.sum(axis=0)[None, :] - rates)).sum(axis=1)
    return np.asarray(rates.sum(axis=1) + taken)


def tree_prices(core_price: Floats, members: Flags) -> Floats:
    """Return the price of the minimum spanning tree over each set of brokers, shape (sets,).

    ``members`` has shape (sets, brokers). Runs Prim's algorithm on all sets at once. Cost O(sets * brokers * largest
    set).
    """
    prices = np.zeros(len(members))
    rows = np.flatnonzero(members.sum(axis=1) > 1)
    left = members[rows].copy()
    first = left.argmax(axis=1)
    left[np.arange(len(rows)), first] = False
    near = np.where(left, core_price[first], np.inf)
    while len(rows):
        own = np.arange(len(rows))
        at = near.argmin(axis=1)
        prices[rows] += near[own, at]
        left[own, at] = False
        np.minimum(near, core_price[at], out=near)
        near[~left] = np.inf
        going = left.any(axis=1)
        if not going.all():
            rows, left, near = rows[going], left[going], near[going]
    return prices


class KnownTrees:
    """A cache of prices of minimum spanning trees over sets of brokers, emptied above TREES_KNOWN_MAX entries."""

    def __init__(self, core_price: Floats) -> None:
        self._core_price = core_price
        self._known: dict[bytes, float] = {}

    def prices(self, members: Flags) -> Floats:
        """Return the same as :func:`tree_prices`. Cost O(sets) if all prices are cached."""
        if len(self._known) > TREES_KNOWN_MAX:
            self.forget()
        packed, price_of = np.packbits(members, axis=1), self._known
        width, text = packed.shape[1], packed.tobytes()
        keys = [text[at : at + width] for at in range(0, len(text), width)]
        priced = list(map(price_of.get, keys))
        if None in priced:
            new = {keys[row]: row for row, price in enumerate(priced) if price is None}
            prices = tree_prices(self._core_price, members[list(new.values())])
            price_of.update(zip(new, prices.tolist(), strict=True))
            priced = list(map(price_of.get, keys))
        return np.array(priced, dtype=np.float64)

    def forget(self) -> None:
        """Empty the cache."""
        self._known.clear()


class PackingCosts:
    """The cost of users at their homes, maintained while users move.

    A full evaluation costs O(users * channels + trees * brokers^2): one tree for each sub-channel, and one more for
    each broker that publishes on it without having a subscriber of it. A move evaluates only the trees of sub-channels
    whose set of brokers it changes.
    """

    def __init__(self, instance: PackingInstance, homes: Homes) -> None:
        self.instance = instance
        self.homes = homes.copy()
        brokers, channels = instance.broker_count, instance.rates.shape[1]
        self.subscribers = np.zeros((channels, brokers), dtype=np.int64)  # By sub-channel and broker.
        self.published = np.zeros((channels, brokers))  # By sub-channel and the users' broker, per second.
        order = np.argsort(homes, kind="stable")
        starts = np.flatnonzero(np.r_[True, np.diff(homes[order]) > 0]) if len(homes) else np.zeros(0, dtype=np.intp)
        if len(starts):
            there = homes[order][starts]
            self.subscribers[:, there] = np.add.reduceat(instance.wants[order].astype(np.int64), starts, axis=0).T
            self.published[:, there] = np.add.reduceat(instance.rates[order], starts, axis=0).T
        self._core = self._core_of(np.arange(channels), self.subscribers > 0, self.published)

    @property
    def access_per_s(self) -> float:
        """The cost of all access links: C_1."""
        return float(self.instance.access_cost_per_s[np.arange(len(self.homes)), self.homes].sum())

    @property
    def core_per_s(self) -> float:
        """The cost of all trees between brokers."""
        return float(self._core.sum())

    @property
    def cost_per_s(self) -> float:
        """The total cost."""
        return self.access_per_s + self.core_per_s

    @property
    def unicast_per_s(self) -> float:
        """The total cost if brokers send to each other broker separately: the second accounting."""
        sent = self.published.T @ (self.subscribers > 0)
        return self.access_per_s + float((sent * self.instance.core_price).sum())

    def change_per_s(self, user: int, broker: int) -> float:
        """Return the change of cost if a user moves to a broker."""
        before = self.instance.access_cost_per_s[user, self.homes[user]]
        channels, _, _, core = self._moved(user, broker)
        return float(self.instance.access_cost_per_s[user, broker] - before + (core - self._core[channels]).sum())

    def move(self, user: int, broker: int) -> None:
        """Move a user to a broker."""
        channels, subscribers, published, core = self._moved(user, broker)
        self.subscribers[channels], self.published[channels], self._core[channels] = subscribers, published, core
        self.homes[user] = broker

    def _moved(self, user: int, broker: int) -> tuple[Homes, NDArray[np.int64], Floats, Floats]:
        """Return the sub-channels that a move affects, and their subscribers, publications and tree costs after it."""
        wants, rates = self.instance.wants[user], self.instance.rates[user]
        old = self.homes[user]
        leaving, coming = self.subscribers[:, old], self.subscribers[:, broker]
        is_other_tree = wants & ((leaving == 1) | (coming == 0))
        # A publisher that moves between two brokers with subscribers stays on the same tree.
        is_outside = (rates > 0) & ((leaving == 0) | (coming == 0))
        is_counted = wants | (rates > 0)
        channels = np.flatnonzero(is_counted)
        subscribers, published = self.subscribers[channels], self.published[channels]
        for home, sign in ((old, -1), (broker, 1)):
            subscribers[:, home] += sign * wants[channels]
            published[:, home] += sign * rates[channels]
        core = self._core[channels]
        again = np.flatnonzero((is_other_tree | is_outside)[channels])
        core[again] = self._core_of(channels[again], subscribers[again] > 0, published[again])
        return channels, subscribers, published, core

    def _core_of(self, channels: Homes, there: Flags, published: Floats) -> Floats:
        """Return the cost of the trees of these sub-channels; ``there`` marks the brokers with subscribers."""
        tiny = 1e-12 * max(float(self.instance.channel_rates.max(initial=0.0)), 1.0)  # Below: rounding error.
        outside = np.argwhere((published > tiny) & ~there)
        members = np.concatenate([there, there[outside[:, 0]]])
        members[len(there) + np.arange(len(outside)), outside[:, 1]] = True
        prices = self.instance.trees.prices(members)
        core = prices[: len(there)] * np.where(there, published, 0.0).sum(axis=1)
        np.add.at(core, outside[:, 0], prices[len(there) :] * published[outside[:, 0], outside[:, 1]])
        return np.asarray(core)
