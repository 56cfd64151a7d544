"""The stock workload: real quotes published in date order, real subscriptions that come, go and shift.

In: the shipped cuts (data/SOURCES.md), settings and a seed. Out: requests of clients to an emulated overlay, on its
clock. Brokers differ in how many subscriptions they draw (Jaeger07, section 5); at a change of interests, brokers and
symbols draw new shares, and all subscriptions are replaced.
"""

from __future__ import annotations

import csv
import gzip
import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol, cast

import simpy

from regraft.producers.brokers.match_content import Content, Filter, Operator, Predicate
from regraft.producers.emulator.emulator_ports import OverlayListener
from regraft.producers.emulator.starting_point import StartingPoint
from regraft.producers.workloads.stock_settings import RegimeChange, WorkloadSettings
from regraft.schemas.units import SECOND_MS

DATA_DIRECTORY = Path(__file__).parents[1] / "data"
STOCK_CLASS = "STOCK"
NIGHT_SHARE = 0.05  # What a broker draws at midnight, as a share of noon.


@dataclass(frozen=True, slots=True)
class Quote:
    """One publication: its content and its size in the text form that PADRES sends."""

    content: Content
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StockData:
    """The shipped data: quotes of each symbol, oldest first, and (open below, high below) of its subscriptions."""

    quotes: Mapping[str, tuple[Quote, ...]]
    thresholds: Mapping[str, tuple[tuple[float, float], ...]]

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols that have both quotes and subscriptions, sorted."""
        return tuple(sorted(self.quotes.keys() & self.thresholds.keys()))


@cache
def load_stock_data() -> StockData:
    """Read the shipped cuts."""
    quotes: dict[str, list[Quote]] = defaultdict(list)
    for row in _read_rows("stock_quotes.csv.gz"):
        content: dict[str, float | str] = {"class": STOCK_CLASS, "symbol": row["symbol"]}
        content |= {name: float(row[name]) for name in ("open", "high", "low", "close", "volume")}
        content["date"] = row["date"]
        size_bytes = sum(len(f"[{name},{value}],") for name, value in content.items())
        quotes[row["symbol"]].append(Quote(content, size_bytes))
    thresholds: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in _read_rows("stock_subscriptions.csv.gz"):
        thresholds[row["symbol"]].append((float(row["open_below"]), float(row["high_below"])))
    return StockData(
        {symbol: tuple(rows) for symbol, rows in quotes.items()},
        {symbol: tuple(rows) for symbol, rows in thresholds.items()},
    )


def _read_rows(name: str) -> Iterable[dict[str, str]]:
    with gzip.open(DATA_DIRECTORY / name, "rt", encoding="utf-8", newline="") as stream:
        yield from csv.DictReader(stream)


def advertisement(symbol: str) -> Filter:
    """Return what the publisher of a symbol advertises."""
    return (Predicate("class", Operator.EQ, STOCK_CLASS), Predicate("symbol", Operator.EQ, symbol))


def subscription(symbol: str, open_below: float, high_below: float) -> Filter:
    """Return a subscription in the form of the shipped ones."""
    return (
        *advertisement(symbol),
        Predicate("open", Operator.LT, open_below),
        Predicate("high", Operator.LT, high_below),
    )


class SubscriptionMaker:
    """Makes filters: the shipped ones of a symbol first, then more from the same distribution.

    It draws the shipped thresholds of any symbol, relative to that symbol's mean open and high, and scales them to the
    means of the requested symbol.
    """

    def __init__(self, data: StockData, rng: random.Random) -> None:
        self._rng = rng
        self._means = {symbol: _mean_open_and_high(data.quotes[symbol]) for symbol in data.symbols}
        self._unused = {symbol: list(data.thresholds[symbol]) for symbol in data.symbols}
        for unused in self._unused.values():
            rng.shuffle(unused)
        self._shares = [
            (open_below / self._means[symbol][0], high_below / self._means[symbol][1])
            for symbol in data.symbols
            for open_below, high_below in data.thresholds[symbol]
        ]

    def make(self, symbol: str) -> Filter:
        """Return the next filter of a symbol."""
        unused = self._unused[symbol]
        if unused:
            return subscription(symbol, *unused.pop())
        open_share, high_share = self._rng.choice(self._shares)
        mean_open, mean_high = self._means[symbol]
        return subscription(symbol, round(open_share * mean_open, 2), round(high_share * mean_high, 2))


def _mean_open_and_high(quotes: tuple[Quote, ...]) -> tuple[float, float]:
    opens = [cast(float, quote.content["open"]) for quote in quotes]
    highs = [cast(float, quote.content["high"]) for quote in quotes]
    return sum(opens) / len(opens), sum(highs) / len(highs)


@dataclass(slots=True)
class _Slot:
    """A place that always has one subscription; ``turn`` shows whether a planned replacement is still current."""

    symbol: str = ""
    home: str = ""
    name: str = ""
    turn: int = 0


class StockOverlay(Protocol):
    """What the workload requires of an overlay, emulated or of real brokers."""

    listeners: list[Any]

    @property
    def env(self) -> simpy.Environment:
        """The clock."""

    @property
    def start(self) -> StartingPoint:
        """The configuration that brokers begin with, and where earlier plans have put clients."""

    @property
    def brokers(self) -> Mapping[str, object]:
        """The brokers by name."""

    def advertise(self, publisher: str, home: str, filter_: Filter) -> None:
        """Add a publisher; listeners are notified when it may publish."""

    def publish(self, publisher: str, content: Content, size_bytes: int) -> None:
        """Publish a notification."""

    def subscribe(self, subscription: str, home: str, filter_: Filter) -> None:
        """Add a subscription."""

    def cancel(self, subscription: str) -> None:
        """End a subscription."""


class StockWorkload(OverlayListener):
    """Publishers and subscribers of one overlay. Deterministic: equal seeds and settings make the same requests."""

    def __init__(
        self,
        overlay: StockOverlay,
        settings: WorkloadSettings,
        rng: random.Random,
        data: StockData | None = None,
    ) -> None:
        self._overlay = overlay
        self._settings = settings
        self._data = data or load_stock_data()
        # Each kind of choice has its own random stream, so that the order of brokers' answers does not affect others.
        self._home_rng, self._share_rng, self._life_rng, filter_rng = (
            random.Random(rng.getrandbits(64)) for _ in range(4)
        )
        self._maker = SubscriptionMaker(self._data, filter_rng)
        self._symbols = sorted(self._home_rng.sample(self._data.symbols, settings.publisher_count))
        self._publish_rngs = {symbol: random.Random(rng.getrandbits(64)) for symbol in self._symbols}
        self._position = dict.fromkeys(self._symbols, 0)
        self._slots = [_Slot() for _ in range(settings.interested_broker_count * len(self._symbols))]
        self._interested: Counter[tuple[str, str]] = Counter()
        self._named = 0
        self._is_running = False
        self._brokers = list(overlay.brokers)
        self._loads: list[float] = []
        self._popularity: list[float] = []
        self._rate_factor = 1.0  # Above 1 in a burst.
        self._bursts_begun = 0
        self.on_burst: Callable[[bool], None] = lambda has_begun: None  # Called at the start and at the end of a burst.
        self._symbol_factors: dict[str, float] = {}  # Symbol -> factor on its rate.
        self._day_began_ms: float | None = None
        self.regime_changed_ms: float | None = None

    @property
    def subscription_count(self) -> int:
        """How many subscriptions there are at a time."""
        return len(self._slots)

    def publisher_rate_per_s(self, publisher: str) -> float:
        """Return what a publisher publishes on average, the same for all."""
        return self._settings.notifications_per_s

    def start(self) -> None:
        """Connect all clients now; publishers begin once all brokers know them."""
        self._is_running = True
        self._overlay.listeners.append(self)
        self._draw_shares()
        count = self._settings.publisher_broker_count
        entries = (
            self._brokers if count is None else self._home_rng.sample(self._brokers, min(count, len(self._brokers)))
        )
        for symbol in self._symbols:
            home = self._overlay.start.first_home(symbol, self._home_rng.choice(entries))
            self._overlay.advertise(symbol, home, advertisement(symbol))
        for slot in self._slots:
            self._fill(slot)
        first_s = self._settings.regime_change_s or self._settings.regime_change_every_s
        if first_s is not None:
            self._after(first_s, self._change_regime_again)
        if self._settings.burst_every_s is not None:
            self._after(self._settings.burst_every_s, self._begin_burst)

    def stop(self) -> None:
        """Stop publishing and changing anything; connected clients stay."""
        self._is_running = False

    def change_regime(self) -> None:
        """Apply the configured kind of regime change."""
        if not self._is_running:
            return
        self.regime_changed_ms = self._overlay.env.now
        match RegimeChange(self._settings.regime_change_kind):
            case RegimeChange.INTERESTS:
                self._draw_shares()
                self._replace_all()
            case RegimeChange.PUBLISHER:
                self._symbol_factors = {self._share_rng.choice(self._symbols): self._settings.regime_change_factor}
            case RegimeChange.CROWD:
                self._gather_crowd()
            case RegimeChange.DAY:
                self._day_began_ms = self._overlay.env.now

    def _replace_all(self) -> None:
        for slot in self._slots:
            slot.turn += 1
            self._plan_replacement(slot, self._life_rng.uniform(0, self._settings.regime_change_spread_s))

    def _gather_crowd(self) -> None:
        place, before = self._share_rng.randrange(len(self._symbols)), self._popularity
        self._popularity = [*before[:place], sum(before) - before[place], *before[place + 1 :]]
        self._symbol_factors = {self._symbols[place]: self._settings.regime_change_factor}
        self._replace_all()

        def disperse() -> None:
            if self._is_running:
                self._popularity, self._symbol_factors = before, {}
                self._replace_all()

        self._after(self._settings.regime_change_for_s, disperse)

    def _change_regime_again(self) -> None:
        self.change_regime()
        if self._settings.regime_change_every_s is not None and self._is_running:
            self._after(self._settings.regime_change_every_s, self._change_regime_again)

    def _begin_burst(self) -> None:
        every_s = self._settings.burst_every_s
        if every_s is None or not self._is_running:
            return
        self._rate_factor = self._settings.burst_factor
        self.on_burst(True)
        self._bursts_begun += 1
        is_last = self._bursts_begun == self._settings.burst_count
        lasts_s = self._settings.burst_s_last if is_last else None
        self._after(self._settings.burst_s if lasts_s is None else lasts_s, self._end_burst)
        if not is_last:
            self._after(every_s, self._begin_burst)

    def _end_burst(self) -> None:
        self._rate_factor = 1.0
        self.on_burst(False)

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        self._overlay.env.timeout(seconds * SECOND_MS).callbacks.append(lambda _: act())

    # --- what the overlay reports ----------------------------------------------------------------------------------

    def on_may_publish(self, publisher: str) -> None:
        """Begin to publish."""
        self._plan_publication(publisher)

    # --- publishing ------------------------------------------------------------------------------------------------

    def _plan_publication(self, symbol: str) -> None:
        factor = self._rate_factor * self._symbol_factors.get(symbol, 1.0)
        rate_per_s = self._settings.notifications_per_s * factor
        pause_ms = self._publish_rngs[symbol].expovariate(rate_per_s) * SECOND_MS
        self._overlay.env.timeout(pause_ms, symbol).callbacks.append(self._publish)

    def _publish(self, event: simpy.Event) -> None:
        if not self._is_running:
            return
        symbol = cast(str, event.value)
        quotes = self._data.quotes[symbol]
        quote = quotes[self._position[symbol] % len(quotes)]  # After the newest quote, the oldest again.
        self._position[symbol] += 1
        self._overlay.publish(symbol, quote.content, quote.size_bytes)
        self._plan_publication(symbol)

    # --- subscribing -----------------------------------------------------------------------------------------------

    def _draw_shares(self) -> None:
        rng, settings = self._share_rng, self._settings
        self._loads = [rng.random() ** settings.broker_load_exponent for _ in self._brokers]
        self._popularity = [
            len(self._data.thresholds[symbol]) * rng.lognormvariate(0.0, settings.popularity_sigma)
            for symbol in self._symbols
        ]

    def _fill(self, slot: _Slot) -> None:
        slot.symbol = self._share_rng.choices(self._symbols, self._popularity)[0]
        slot.home = self._draw_home(slot.symbol)
        self._interested[slot.symbol, slot.home] += 1
        slot.name = f"s{self._named:07d}"
        self._named += 1
        slot.turn += 1
        self._overlay.subscribe(slot.name, slot.home, self._maker.make(slot.symbol))
        self._plan_replacement(slot, self._life_rng.expovariate(1.0 / self._settings.lifetime_s_mean))

    def _draw_home(self, symbol: str) -> str:
        loads = self._loads if self._day_began_ms is None else self._loads_by_day(self._day_began_ms)
        free = [place for place, broker in enumerate(self._brokers) if not self._interested[symbol, broker]]
        places = free or range(len(loads))
        return self._brokers[self._share_rng.choices(places, [loads[place] for place in places])[0]]

    def _loads_by_day(self, began_ms: float) -> list[float]:
        """Return the share that each broker draws now: the day moves around them in their order."""
        days = (self._overlay.env.now - began_ms) / (self._settings.regime_change_for_s * SECOND_MS)
        turn, count = math.tau / len(self._loads), len(self._loads)
        light = [0.5 + 0.5 * math.cos(math.tau * days - turn * place) for place in range(count)]
        return [
            load * (NIGHT_SHARE + (1 - NIGHT_SHARE) * share) for load, share in zip(self._loads, light, strict=True)
        ]

    def _plan_replacement(self, slot: _Slot, after_s: float) -> None:
        self._overlay.env.timeout(after_s * SECOND_MS, (slot, slot.turn)).callbacks.append(self._replace)

    def _replace(self, event: simpy.Event) -> None:
        slot, turn = cast("tuple[_Slot, int]", event.value)
        if not self._is_running or turn != slot.turn:
            return
        self._overlay.cancel(slot.name)
        self._interested[slot.symbol, slot.home] -= 1
        self._fill(slot)
