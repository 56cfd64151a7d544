"""The workload of Cheung09, section 5.1: publishers of real stock quotes, subscribers that sink shares of them.

In: the brokers, settings and a generator. Out: publishers with their quotes and publication times, and subscriptions
with their homes; :class:`QuoteTraffic` plays them on an emulated overlay. The workload depends neither on costs nor on
moves of publishers, so it is the same for every algorithm. The numbers of the paper's Fig. 4b are not in its text: they
are settings here.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, cast

import numpy as np
import simpy
from numpy.typing import NDArray

from regraft.api.brokers import Content, Filter, Operator, Predicate, matches
from regraft.api.emulation import EmulatedOverlay, OverlayListener, Quote, advertisement, load_stock_data

Distribution = Literal["random", "clustered"]
Sampling = Literal["shared", "independent"]
Rating = Literal["low", "medium", "high"]

SECOND_MS = 1_000.0
SINK_SHARES: dict[Rating, float] = {"low": 0.10, "medium": 0.50, "high": 1.0}
RATING_SHARES: dict[Distribution, dict[Rating, float]] = {
    "random": {"high": 0.05, "medium": 0.25, "low": 0.70},
    "clustered": {"high": 0.05, "medium": 0.0, "low": 0.95},
}
# The paper's example shows three decimals; six allow thresholds between any two quotes.
DERIVED_DECIMALS = 6
# Independent subscriptions sample a band of one of these. Prices are unsuitable: a band of them is one season.
SAMPLED_ATTRIBUTES = ("highLow%Diff", "openClose%Diff", "volume")
SINK_TOLERANCE = 0.05  # Rarely traded stocks cannot be split into halves; they are not published.


@dataclass(frozen=True, slots=True)
class QuoteSettings:
    """The numbers of clients, their rates and locations.

    ``distribution``: of subscribers' sink shares and locations (section 5.1). ``sampling``: whether the subscriptions
    of one rating to one stock share their predicates, as in the paper's examples, or each takes its own sample.
    ``interested_brokers``: X, the number of brokers over which the subscribers of a publisher are spread, capped at all
    brokers. ``publisher_count``, ``subscribers_per_publisher``, ``notifications_per_s`` of each publisher: not in the
    text.
    """

    distribution: Distribution = "clustered"
    sampling: Sampling = "shared"
    interested_brokers: int = 8
    publisher_count: int = 15
    subscribers_per_publisher: int = 60
    notifications_per_s: float = 8.0


@dataclass(frozen=True, slots=True)
class QuotePublisher:
    """The publisher of one stock: its first home; ``seed`` determines publication times and the first quote."""

    name: str
    home: str
    seed: int
    notifications_per_s: float

    @property
    def filter_(self) -> Filter:
        """Its advertisement."""
        return advertisement(self.name)

    def publications(self) -> Iterator[tuple[float, Quote]]:
        """Yield (ms since publishing began, quote) endlessly, at random times.

        Quotes are in order of date from a random one on; after the newest follows the oldest.
        """
        rng = random.Random(self.seed)
        quotes = enriched_quotes()[self.name]
        place, time_ms = rng.randrange(len(quotes)), 0.0
        while True:
            time_ms += rng.expovariate(self.notifications_per_s) * SECOND_MS
            yield time_ms, quotes[place % len(quotes)]
            place += 1


@dataclass(frozen=True, slots=True)
class QuoteSubscription:
    """One subscriber with its one subscription."""

    name: str
    publisher: str
    home: str
    rating: Rating
    filter_: Filter


@dataclass(frozen=True, slots=True)
class QuoteWorkload:
    """All clients. Publishers are in order of name, subscriptions in the order drawn."""

    publishers: tuple[QuotePublisher, ...]
    subscriptions: tuple[QuoteSubscription, ...]

    @property
    def homes(self) -> dict[str, str]:
        """The first home of each publisher."""
        return {publisher.name: publisher.home for publisher in self.publishers}

    def at_homes(self, homes: Mapping[str, str]) -> QuoteWorkload:
        """Return the workload with publishers at these homes; those not named stay."""
        moved = (replace(each, home=homes.get(each.name, each.home)) for each in self.publishers)
        return QuoteWorkload(tuple(moved), self.subscriptions)


def draw_workload(brokers: Sequence[str], settings: QuoteSettings, rng: random.Random) -> QuoteWorkload:
    """Return clients as section 5.1 describes them; publishers start at random brokers.

    Each publisher has its own X interested brokers. Raises ValueError if there are more publishers than tradable
    stocks.
    """
    stocks = tradable_stocks()
    if not 1 <= settings.publisher_count <= len(stocks):
        raise ValueError(
            f"publisher_count is {settings.publisher_count}: must be from 1 to the {len(stocks)} stocks that trade"
        )
    if settings.interested_brokers < 1 or settings.subscribers_per_publisher < 1:
        raise ValueError(
            f"interested_brokers is {settings.interested_brokers}, subscribers_per_publisher "
            f"{settings.subscribers_per_publisher}: at least 1 each"
        )
    publishers, subscriptions = [], []
    for name in sorted(rng.sample(stocks, settings.publisher_count)):
        home = rng.choice(brokers)
        publishers.append(QuotePublisher(name, home, rng.getrandbits(64), settings.notifications_per_s))
        subscriptions += _subscriptions(name, brokers, settings, rng)
    return QuoteWorkload(tuple(publishers), tuple(subscriptions))


def _subscriptions(
    publisher: str, brokers: Sequence[str], settings: QuoteSettings, rng: random.Random
) -> list[QuoteSubscription]:
    chosen = rng.sample(list(brokers), min(settings.interested_brokers, len(brokers)))
    subscriptions = []
    for place, rating in enumerate(ratings(settings.distribution, settings.subscribers_per_publisher)):
        home = rng.choice(chosen)
        if settings.distribution == "clustered" and len(chosen) > 1:
            home = chosen[0] if rating == "high" else rng.choice(chosen[1:])
        filter_ = shared_filter(publisher, rating)
        if settings.sampling == "independent" and rating != "high":
            filter_ = sampled_filter(publisher, SINK_SHARES[rating], rng)
        subscriptions.append(QuoteSubscription(f"{publisher}-{place:03d}-{rating}", publisher, home, rating, filter_))
    return subscriptions


def ratings(distribution: Distribution, count: int) -> list[Rating]:
    """Return the ratings of ``count`` subscribers by the paper's shares; at least one sinks all."""
    shares = RATING_SHARES[distribution]
    high = max(1, round(shares["high"] * count))
    medium = min(round(shares["medium"] * count), count - high)
    grades: list[Rating] = ["high"] * high
    grades += ["medium"] * medium
    grades += ["low"] * (count - high - medium)
    return grades


# --- quotes and filters ------------------------------------------------------------------------------------------


@cache
def enriched_quotes() -> Mapping[str, tuple[Quote, ...]]:
    """Return the shipped quotes with the derived attributes of the paper's example publication, by stock."""
    return {
        name: tuple(_enriched(quote.content) for quote in quotes) for name, quotes in load_stock_data().quotes.items()
    }


def _enriched(content: Content) -> Quote:
    open_, high, low, close = (cast(float, content[name]) for name in ("open", "high", "low", "close"))
    # As in the example, (18.62 - 18.37) / 18.37 = 0.014; we take differences to be unsigned.
    derived: dict[str, float | str] = {
        "openClose%Diff": round(abs(close - open_) / open_, DERIVED_DECIMALS),
        "highLow%Diff": round((high - low) / low, DERIVED_DECIMALS),
        "closeEqualsLow": str(close == low).lower(),
        "closeEqualsHigh": str(close == high).lower(),
    }
    whole = {**content, **derived}
    return Quote(whole, sum(len(f"[{name},{value}],") for name, value in whole.items()))


@cache
def tradable_stocks() -> tuple[str, ...]:
    """Return the stocks, sorted, whose shared subscriptions sink about their intended shares of the quotes."""
    return tuple(
        name
        for name in sorted(enriched_quotes())
        if all(
            abs(sink_share(name, shared_filter(name, rating)) - SINK_SHARES[rating])
            <= SINK_TOLERANCE * SINK_SHARES[rating]
            for rating in SINK_SHARES
        )
    )


def sink_share(publisher: str, filter_: Filter) -> float:
    """Return the share of a stock's shipped quotes that a filter matches."""
    quotes = enriched_quotes()[publisher]
    return sum(matches(filter_, quote.content) for quote in quotes) / len(quotes)


@cache
def shared_filter(publisher: str, rating: Rating) -> Filter:
    """Return the subscription of a rating in the form of the paper's examples, with thresholds from the stock's quotes.

    low: highLow%Diff > t; medium: volume > v and openClose%Diff > d, with v and d at the same quantile; high: all.
    """
    if rating == "high":
        return advertisement(publisher)
    if rating == "low":
        return (*advertisement(publisher), _above(publisher, "highLow%Diff", 1 - SINK_SHARES[rating]))
    volumes, differences = _values(publisher, "volume"), _values(publisher, "openClose%Diff")
    quantiles = np.arange(len(volumes)) / len(volumes)
    above = (volumes > np.quantile(volumes, quantiles)[:, None]) & (
        differences > np.quantile(differences, quantiles)[:, None]
    )
    best = float(quantiles[np.argmin(np.abs(above.mean(axis=1) - SINK_SHARES[rating]))])
    wanted = (_above(publisher, name, best) for name in ("volume", "openClose%Diff"))
    return (*advertisement(publisher), *wanted)


def sampled_filter(publisher: str, share: float, rng: random.Random) -> Filter:
    """Return a subscription to a band of one attribute that contains about ``share`` of the stock's quotes."""
    name = rng.choice(SAMPLED_ATTRIBUTES)
    ordered = np.sort(_values(publisher, name))
    width = round(share * len(ordered))
    first = rng.randrange(len(ordered) - width + 1)
    return (
        *advertisement(publisher),
        Predicate(name, Operator.GE, float(ordered[first])),
        Predicate(name, Operator.LE, float(ordered[first + width - 1])),
    )


def _above(publisher: str, name: str, quantile: float) -> Predicate:
    return Predicate(name, Operator.GT, float(np.quantile(_values(publisher, name), quantile)))


@cache
def _values(publisher: str, name: str) -> NDArray[np.float64]:
    return np.array([cast(float, quote.content[name]) for quote in enriched_quotes()[publisher]])


# --- on an emulated overlay --------------------------------------------------------------------------------------


class QuoteTraffic(OverlayListener):
    """Connects all clients of a workload at once, and publishes from ``publish_from_ms`` on.

    Times and contents of publications do not depend on publishers' homes. Raises RuntimeError if a broker does not know
    a publisher at its first publication: begin later.
    """

    def __init__(self, overlay: EmulatedOverlay, workload: QuoteWorkload, publish_from_ms: float) -> None:
        self._overlay = overlay
        self._workload = workload
        self._publish_from_ms = publish_from_ms
        self._ready: set[str] = set()
        self._is_running = False
        self._publications = {publisher.name: publisher.publications() for publisher in workload.publishers}

    def start(self) -> None:
        """Connect all clients now."""
        self._is_running = True
        self._overlay.listeners.append(self)
        for publisher in self._workload.publishers:
            self._overlay.advertise(publisher.name, publisher.home, publisher.filter_)
        for subscription in self._workload.subscriptions:
            self._overlay.subscribe(subscription.name, subscription.home, subscription.filter_)
        for publisher in self._workload.publishers:
            self._plan(publisher.name)

    def stop(self) -> None:
        """Stop publishing."""
        self._is_running = False

    def on_may_publish(self, publisher: str) -> None:
        """Record that all brokers know the publisher."""
        self._ready.add(publisher)

    def _plan(self, publisher: str) -> None:
        after_ms, quote = next(self._publications[publisher])
        at_ms = self._publish_from_ms + after_ms
        event = self._overlay.env.timeout(max(at_ms - self._overlay.env.now, 0.0), (publisher, quote))
        event.callbacks.append(self._publish)

    def _publish(self, event: simpy.Event) -> None:
        if not self._is_running:
            return
        publisher, quote = cast("tuple[str, Quote]", event.value)
        if publisher not in self._ready:
            raise RuntimeError(
                f"{publisher} should publish at {self._overlay.env.now:.0f} ms, but some brokers "
                "do not know it: start later"
            )
        self._overlay.publish(publisher, quote.content, quote.size_bytes)
        self._plan(publisher)
