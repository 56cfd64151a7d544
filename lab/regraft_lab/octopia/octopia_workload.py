"""The overlay, publishers and subscribers of Shafique's evaluation, as far as the text describes them.

In: random numbers. Out: publishers with their homes and notifications, and the brokers that want them. Notifications
are quotes of drawn stocks, with ten attributes; subscriptions are bounds on these, each matched by 2 % of all
notifications. Fig. 10 is lost: we take the 4 inner brokers of the tree as a path and attach the 10 outer ones as 3, 2,
2 and 3.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import NDArray

from regraft.api.brokers import Content, Filter, Operator, Predicate
from regraft.api.cyclic import ScotBroker, StructuredCyclicOverlay, scot_overlay

EDGE_OF = {"f": "abc", "g": "de", "h": "jk", "i": "lmn"}
CLUSTER_COUNT = 5
STOCK_COUNT = 500
PUBLISHER_COUNT = 100
SUBSCRIBER_COUNT = 2_000
SELECTIVITY = 0.02

STOCK = Predicate("class", Operator.EQ, "STOCK")
KEPT = ("open", "high", "low", "close", "volume")  # Attributes that vary little over time but differ between stocks.
NUMBERS = (*KEPT, "date", "openClose%Diff", "highLow%Diff")  # With class and symbol, the ten attributes of PADRES.
QUOTES_PER_STOCK = 100  # Published cyclically.
SAMPLED_EVERY = 5  # Bounds are fitted to the selectivity on every fifth quote of each stock.

Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]


def paper_overlay() -> StructuredCyclicOverlay:
    """Return the overlay of the evaluation, 14 x K5."""
    edges = ((inner, leaf) for inner, leaves in EDGE_OF.items() for leaf in leaves)
    return scot_overlay([*zip("fgh", "ghi", strict=True), *edges], CLUSTER_COUNT)


@dataclass(frozen=True, eq=False)
class Subscriptions:
    """The subscriptions of all subscribers, each at a broker; ``low`` and ``high``: (subscriptions, numbers)."""

    at: Sequence[ScotBroker]
    low: Numbers
    high: Numbers

    def filter_of(self, number: int) -> Filter:
        """Return a subscription in the form that brokers use."""
        bounds = zip(NUMBERS, self.low[number].tolist(), self.high[number].tolist(), strict=True)
        return (
            STOCK,
            Predicate("symbol", Operator.PRESENT),
            *(
                predicate
                for name, low, high in bounds
                for predicate in (Predicate(name, Operator.GE, low), Predicate(name, Operator.LE, high))
            ),
        )

    def meeting(self, low: Numbers, high: Numbers) -> Flags:
        """Return which subscriptions intersect these bounds."""
        return cast(Flags, np.all((self.low <= high) & (self.high >= low), axis=1))


@dataclass(frozen=True, eq=False)
class StockPublisher:
    """A publisher of one stock: its home, and its quotes, (quotes, numbers)."""

    name: str
    symbol: str
    host: ScotBroker
    quotes: Numbers
    subscriptions: Subscriptions
    _matched: dict[int, NDArray[np.int64]] = field(default_factory=dict, repr=False)

    def content_of(self, number: int) -> Content:
        """Return a notification in the form that brokers use."""
        quote = self.quotes[number % len(self.quotes)].tolist()
        return {"class": "STOCK", "symbol": self.symbol, **dict(zip(NUMBERS, quote, strict=True))}

    @property
    def advertisement(self) -> Filter:
        """What it advertises: its stock, and the range of each number."""
        bounds = zip(NUMBERS, self.quotes.min(axis=0).tolist(), self.quotes.max(axis=0).tolist(), strict=True)
        return (
            STOCK,
            Predicate("symbol", Operator.EQ, self.symbol),
            *(
                predicate
                for name, low, high in bounds
                for predicate in (Predicate(name, Operator.GE, low), Predicate(name, Operator.LE, high))
            ),
        )

    @cached_property
    def interested(self) -> Flags:
        """Which subscriptions intersect its advertisement."""
        return self.subscriptions.meeting(self.quotes.min(axis=0), self.quotes.max(axis=0))

    @cached_property
    def _candidates(self) -> tuple[NDArray[np.int64], Numbers, Numbers]:
        """The subscriptions that intersect its advertisement, with their bounds; its quotes match no others."""
        rows = np.flatnonzero(self.interested)
        return rows, self.subscriptions.low[rows], self.subscriptions.high[rows]

    @cached_property
    def subscribed(self) -> frozenset[ScotBroker]:
        """The brokers with a subscription that intersects its advertisement, even if no quote matches it."""
        return frozenset(self.subscriptions.at[each] for each in np.flatnonzero(self.interested).tolist())

    @property
    def wanted_share(self) -> float:
        """The mean share of all subscriptions that one of its quotes matches."""
        return float(np.mean([len(self.matched(number)) for number in range(len(self.quotes))])) / len(self.interested)

    def matched(self, number: int) -> NDArray[np.int64]:
        """Return the subscriptions that a notification matches; quotes are published cyclically."""
        quote = number % len(self.quotes)
        if quote not in self._matched:
            numbers, (rows, low, high) = self.quotes[quote], self._candidates
            self._matched[quote] = rows[np.all((low <= numbers) & (high >= numbers), axis=1)]
        return self._matched[quote]

    def targets_of(self, number: int) -> frozenset[ScotBroker]:
        """Return the brokers that want a notification."""
        return frozenset(self.subscriptions.at[each] for each in self.matched(number).tolist())


@dataclass(frozen=True, eq=False)
class StockWorkload:
    """Publishers and subscribers at brokers; ``bursting``: high-rate publishers, closest to the selectivity first."""

    publishers: list[StockPublisher]
    subscriptions: Subscriptions
    bursting: list[StockPublisher]

    @cached_property
    def bound(self) -> Flags:
        """Which subscriptions are bound to which publishers' advertisements, shape (subscriptions, publishers)."""
        return np.array([each.interested for each in self.publishers]).T

    def trees_to(self, publisher: StockPublisher, number: int) -> Mapping[ScotBroker, frozenset[ScotBroker]]:
        """Return for each broker that wants a notification the hosts of all publishers whose trees also lead there."""
        trees: dict[ScotBroker, set[ScotBroker]] = {}
        for subscription in publisher.matched(number).tolist():
            hosts = (self.publishers[each].host for each in np.flatnonzero(self.bound[subscription]).tolist())
            trees.setdefault(self.subscriptions.at[subscription], {publisher.host}).update(hosts)
        return {at: frozenset(hosts) for at, hosts in trees.items()}


def draw_workload(overlay: StructuredCyclicOverlay, rng: random.Random, bursting: int = 1) -> StockWorkload:
    """Draw publishers and subscribers at brokers, and additional bursting publishers.

    The latter publish the stocks wanted in all clusters whose share of subscriptions is closest to 2 %. As in the
    paper, they share no broker with their subscribers. Raises ValueError if too few stocks are wanted in all clusters.
    """
    numbers = np.random.default_rng(rng.getrandbits(64))
    brokers = overlay.brokers()
    stocks = numbers.choice(_draw_stocks(numbers), PUBLISHER_COUNT, replace=False)
    subscriptions = _draw_subscriptions(stocks, [rng.choice(brokers) for _ in range(SUBSCRIBER_COUNT)], numbers)
    publishers = [
        StockPublisher(f"S{place:02d}", f"S{place:02d}", rng.choice(brokers), quotes, subscriptions)
        for place, quotes in enumerate(stocks)
    ]
    in_all = [each for each in publishers if _is_in_all_clusters(overlay, each)]
    best = sorted(in_all, key=lambda each: abs(each.wanted_share - SELECTIVITY))[:bursting]
    if len(best) < bursting:
        raise ValueError(f"{len(best)} of {PUBLISHER_COUNT} stocks are wanted in all clusters, {bursting} must burst")
    fast = [
        replace(each, name=f"burst {each.symbol}", host=rng.choice(sorted(set(brokers) - each.subscribed)))
        for each in best
    ]
    return StockWorkload(publishers, subscriptions, fast)


def _is_in_all_clusters(overlay: StructuredCyclicOverlay, publisher: StockPublisher) -> bool:
    """Return True if each quote is wanted in every cluster, and some broker has no subscriber."""
    every = range(len(publisher.quotes))
    clusters = {len({at.cluster for at in publisher.targets_of(number)}) for number in every}
    return clusters == {overlay.cluster_count} and len(publisher.subscribed) < len(overlay.brokers())


def _draw_stocks(numbers: np.random.Generator) -> Numbers:
    """Return quotes of all stocks, (stocks, quotes, numbers): prices are random walks with steps of 0.2 %."""
    shape = STOCK_COUNT, QUOTES_PER_STOCK
    level = numbers.lognormal(np.log(30.0), 0.8, (STOCK_COUNT, 1))
    close = level * np.exp(np.cumsum(numbers.normal(0.0, 0.002, shape), axis=1))
    opened = np.concatenate([level, close[:, :-1]], axis=1) * np.exp(numbers.normal(0.0, 0.0005, shape))
    high = np.maximum(opened, close) * np.exp(np.abs(numbers.normal(0.0, 0.001, shape)))
    low = np.minimum(opened, close) * np.exp(-np.abs(numbers.normal(0.0, 0.001, shape)))
    volume = np.round(numbers.lognormal(np.log(1e6), 1.2, (STOCK_COUNT, 1)) * numbers.lognormal(0.0, 0.05, shape))
    date = np.broadcast_to(np.arange(QUOTES_PER_STOCK, dtype=np.float64), shape)
    change, spread = 100 * (close - opened) / opened, 100 * (high - low) / low
    return np.stack([opened, high, low, close, volume, date, change, spread], axis=2)


def _draw_subscriptions(stocks: Numbers, at: Sequence[ScotBroker], numbers: np.random.Generator) -> Subscriptions:
    """Return subscriptions around randomly drawn quotes, as wide as the selectivity requires.

    The numbers in KEPT are bounded equally tightly relative to their spread over stocks; the others are bounded to the
    range that occurs. The width is such that the wanted share of a sample of all quotes matches.
    """
    quotes = stocks.reshape(-1, len(NUMBERS))
    centres = np.log(quotes[numbers.integers(len(quotes), size=len(at)), : len(KEPT)])
    sample = np.log(stocks[:, ::SAMPLED_EVERY, : len(KEPT)].reshape(-1, len(KEPT)))
    spread = sample.std(axis=0)
    distance = np.zeros((len(at), len(sample)))
    for place in range(len(KEPT)):
        np.maximum(distance, np.abs(centres[:, place, None] - sample[:, place]) / spread[place], out=distance)
    width = np.partition(distance, round(SELECTIVITY * len(sample)) - 1, axis=1)[
        :, round(SELECTIVITY * len(sample)) - 1
    ]
    low, high = (
        np.broadcast_to(edge, (len(at), len(NUMBERS))).copy() for edge in (quotes.min(axis=0), quotes.max(axis=0))
    )
    low[:, : len(KEPT)] = np.exp(centres - width[:, None] * spread)
    high[:, : len(KEPT)] = np.exp(centres + width[:, None] * spread)
    return Subscriptions(at, low, high)
