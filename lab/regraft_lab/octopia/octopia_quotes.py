"""Shafique's evaluation on real input: stock quotes, subscriptions of PADRES users, delays between PlanetLab hosts.

In: files of quotes and delays, or the shipped cuts, and random numbers. Out: publishers with their homes and quotes,
the brokers that want them, and the delay of each link. Files with fewer hosts than brokers or with other contents are
rejected. Routing and queues do not belong here.
"""

from __future__ import annotations

import csv
import gzip
import io
import random
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from regraft.api.cyclic import ScotBroker, StructuredCyclicOverlay
from regraft.api.emulation import load_stock_data, measured_rtt_ms
from regraft_lab.octopia.octopia_workload import PUBLISHER_COUNT, SUBSCRIBER_COUNT
from regraft_lab.octopia.overlay_links import a_links, i_links

Quotes = dict[str, list[tuple[float, float]]]  # Open and high by symbol, oldest first.
SLICE = 0  # The time slice used of a file of delays.


class RealDataError(ValueError):
    """A file of real input cannot be used; the message says why."""


@dataclass(frozen=True)
class QuotePublisher:
    """A publisher of one stock: its home, its quotes, and ``wanted``: (broker, upper limits of open and high)."""

    name: str
    host: ScotBroker
    quotes: Sequence[tuple[float, float]]
    wanted: Sequence[tuple[ScotBroker, float, float]]

    @property
    def subscribed(self) -> frozenset[ScotBroker]:
        """The brokers with a subscription to the stock, with any limits."""
        return frozenset(at for at, *_ in self.wanted)

    def targets_of(self, number: int) -> frozenset[ScotBroker]:
        """Return the brokers that want a notification (`open <` and `high <`); quotes are published cyclically."""
        opened, high = self.quotes[number % len(self.quotes)]
        return frozenset(at for at, open_below, high_below in self.wanted if opened < open_below and high < high_below)


@dataclass(frozen=True)
class LinkDelays:
    """One-way delays between brokers, in ms."""

    overlay: StructuredCyclicOverlay
    host_of: dict[ScotBroker, int]
    one_way_ms: NDArray[np.float64]

    def ms(self, one: ScotBroker, other: ScotBroker) -> float:
        """Return the delay of a link."""
        return float(self.one_way_ms[self.host_of[one], self.host_of[other]])

    def tree_from(self, host: ScotBroker) -> dict[ScotBroker, ScotBroker]:
        """Return the last hop at each broker of a flood from a host: the neighbour from which it arrives first."""
        graph: nx.Graph[ScotBroker] = nx.Graph()
        for one, other in (*a_links(self.overlay), *i_links(self.overlay)):
            graph.add_edge(one, other, weight=self.ms(one, other))
        paths = nx.single_source_dijkstra_path(graph, host)
        return {broker: path[-2] for broker, path in paths.items() if len(path) > 1}


@cache
def read_quotes(path: str) -> Quotes:
    """Return quotes of the stocks with real subscriptions; an empty path means the shipped cut.

    The file is CSV, optionally gzipped, with columns symbol, date, open and high. Raises RealDataError if it is not.
    """
    thresholds = load_stock_data().thresholds
    if not path:
        shipped = load_stock_data().quotes
        return {
            symbol: [(float(one.content["open"]), float(one.content["high"])) for one in shipped[symbol]]
            for symbol in sorted(shipped.keys() & thresholds.keys())
        }
    rows: dict[str, list[tuple[str, float, float]]] = {}
    try:
        held = Path(path).read_bytes()
        text = (gzip.decompress(held) if path.endswith(".gz") else held).decode()
        for row in csv.DictReader(io.StringIO(text, newline="")):
            if row["symbol"] in thresholds:
                rows.setdefault(row["symbol"], []).append((row["date"], float(row["open"]), float(row["high"])))
    except (OSError, EOFError, zlib.error, KeyError, TypeError, ValueError, csv.Error) as error:
        raise RealDataError(f"--quotes {path} is not a CSV of quotes (symbol, date, open, high): {error}") from error
    if not rows:
        raise RealDataError(f"--quotes {path} has no stock with real subscriptions, such as {min(thresholds)}")
    return {symbol: [quote[1:] for quote in sorted(rows[symbol])] for symbol in sorted(rows)}


@cache
def read_delays(path: str) -> NDArray[np.float64]:
    """Return one-way delays between hosts in ms, shape (hosts, hosts); an empty path means the shipped cut.

    The file is .npz with ``rtt_ms``, (hosts, hosts) or (slices, hosts, hosts). Raises RealDataError if it is not.
    """
    if not path:
        return measured_rtt_ms() / 2
    try:
        with np.load(path) as held:
            rtt_ms = np.asarray(held["rtt_ms"], dtype=np.float64)
    except (OSError, KeyError, ValueError, TypeError, zipfile.BadZipFile) as error:
        raise RealDataError(f"--delays {path} is not an .npz file with rtt_ms: {error}") from error
    delays = rtt_ms[SLICE] if rtt_ms.ndim == 3 else rtt_ms
    if delays.ndim != 2 or delays.shape[0] != delays.shape[1] or not np.isfinite(delays).all() or (delays < 0).any():
        raise RealDataError(f"--delays {path}: rtt_ms has shape {rtt_ms.shape}, expected all pairs of hosts")
    return delays / 2


def check_files(quotes: str, delays: str, broker_count: int) -> None:
    """Raise RealDataError if a file cannot be used."""
    read_quotes(quotes)
    hosts = len(read_delays(delays))
    if hosts < broker_count:
        raise RealDataError(f"--delays {delays} has {hosts} hosts, {broker_count} brokers need one each")


def place_brokers(overlay: StructuredCyclicOverlay, one_way_ms: NDArray[np.float64], rng: random.Random) -> LinkDelays:
    """Draw hosts for all brokers: each region gets a random host and the nearest of the remaining ones."""
    left = rng.sample(range(len(one_way_ms)), len(overlay.regions) * overlay.cluster_count)
    host_of: dict[ScotBroker, int] = {}
    for region in overlay.regions:
        first = left[0]
        left.sort(key=lambda host: (host != first, one_way_ms[first, host]))
        for cluster in range(overlay.cluster_count):
            host_of[ScotBroker(region, cluster)] = left[cluster]
        left = left[overlay.cluster_count :]
    return LinkDelays(overlay, host_of, one_way_ms)


def draw_quote_publishers(
    overlay: StructuredCyclicOverlay, quotes: Quotes, rng: random.Random
) -> tuple[list[QuotePublisher], QuotePublisher]:
    """Draw publishers and subscribers at brokers, and a stock with a bursting publisher.

    Each subscriber has one of the subscriptions that PADRES users wrote; on average 2 % of them are for the same stock.
    As in the paper, the bursting publisher shares no broker with its subscribers, and these are in all clusters.
    """
    brokers, symbols = overlay.brokers(), sorted(quotes)
    thresholds = load_stock_data().thresholds
    asked = [(symbol, *limits) for symbol in symbols for limits in thresholds[symbol]]
    wanted: dict[str, list[tuple[ScotBroker, float, float]]] = {symbol: [] for symbol in symbols}
    for _ in range(SUBSCRIBER_COUNT):
        symbol, open_below, high_below = rng.choice(asked)
        wanted[symbol].append((rng.choice(brokers), open_below, high_below))
    publishers = [
        QuotePublisher(f"{number} {symbol}", rng.choice(brokers), quotes[symbol], wanted[symbol])
        for number, symbol in ((number, symbols[number % len(symbols)]) for number in range(PUBLISHER_COUNT))
    ]
    in_all = [symbol for symbol in symbols if len({at.cluster for at, *_ in wanted[symbol]}) == overlay.cluster_count]
    if not in_all:
        raise RealDataError(f"none of {len(symbols)} stocks is wanted in all {overlay.cluster_count} clusters")
    fast = rng.choice(in_all)
    hosts = sorted(set(brokers) - {at for at, *_ in wanted[fast]})
    return publishers, QuotePublisher(f"burst {fast}", rng.choice(hosts), quotes[fast], wanted[fast])
