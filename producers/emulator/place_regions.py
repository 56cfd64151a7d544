"""Place brokers in cloud regions, with the price of traffic between them and to subscribers.

In: the number of brokers, the cap of links, a random source. Out: an Inventory of a random tree whose link cost is the
measured one-way delay in ms and whose prices are the provider's list prices. Both are shipped (data/SOURCES.md). Every
broker has the same load limit.
"""

from __future__ import annotations

import csv
import random
import string
from dataclasses import dataclass
from functools import cache

import numpy as np

from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.inventory.prices import Prices
from regraft.overlay.tree.build_tree import random_tree
from regraft.producers.emulator.place_overlay import DATA_DIRECTORY, PROCESSING_MS_MAX, PROCESSING_MS_MIN
from regraft.schemas.arrays import Floats

CURRENCY = "USD"
INTERNET = "internet"  # The target of prices for traffic that leaves Amazon.
MESSAGE_BYTES = 1_000.0  # Assumed: quotes of some 130 bytes with headers, in packets that are rarely full.
# 100 ms cost a twentieth of a notification between the cheapest regions: enough to distinguish these.
DELAY_PRICE = 0.01
# Some 70 % of the demo's notifications: brokers in the middle of a random tree pass more, and are relieved first.
LOAD_MAX_PER_S = 140.0


@dataclass(frozen=True, eq=False)
class Regions:
    """The regions, sorted: USD per GB from each to each other and to the internet, and round-trip times in ms."""

    names: tuple[str, ...]
    per_gb: Floats
    internet_per_gb: Floats
    rtt_ms: Floats


@cache
def shipped_regions() -> Regions:
    """Return the shipped prices and round-trip times (cached)."""
    with (DATA_DIRECTORY / "aws_regions.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(line for line in stream if not line.startswith("#")))
    names = tuple(sorted({row["source"] for row in rows}))
    index = {name: place for place, name in enumerate(names)}
    per_gb, rtt_ms = np.zeros((len(names),) * 2), np.zeros((len(names),) * 2)
    internet = np.zeros(len(names))
    for row in rows:
        source, price = index[row["source"]], float(row["usd_per_gb"])
        if row["target"] == INTERNET:
            internet[source] = price
        else:
            per_gb[source, index[row["target"]]], rtt_ms[source, index[row["target"]]] = price, float(row["rtt_ms"])
    return Regions(names, per_gb, internet, rtt_ms)


def broker_count_max() -> int:
    """Return how many brokers can be named, each by a letter in its region."""
    return len(shipped_regions().names) * len(string.ascii_lowercase)


def place_regions(broker_count: int, degree_max: int, rng: random.Random) -> Inventory:
    """Return brokers distributed over the regions in turn, named by region and letter, on a random tree.

    A link's price and delay are the means of both directions. Raises ValueError for more than :func:`broker_count_max`.
    """
    if broker_count > broker_count_max():
        raise ValueError(f"{broker_count} brokers: {broker_count_max()} at most, each named by a letter in its region")
    regions = shipped_regions()
    order = rng.sample(range(len(regions.names)), len(regions.names))
    dealt = [(order[number % len(order)], number // len(order)) for number in range(broker_count)]
    placed = sorted((f"{regions.names[region]}{string.ascii_lowercase[place]}", region) for region, place in dealt)
    brokers, at = tuple(name for name, _ in placed), [region for _, region in placed]
    delays_ms, links = (_both_ways(values[np.ix_(at, at)]) for values in (regions.rtt_ms / 2, regions.per_gb))
    prices = Prices(CURRENCY, links, regions.internet_per_gb[at], MESSAGE_BYTES, DELAY_PRICE)
    costs = np.array([round(rng.uniform(PROCESSING_MS_MIN, PROCESSING_MS_MAX), 3) for _ in brokers])
    tree = random_tree(brokers, degree_max, rng)
    caps = np.full(broker_count, LOAD_MAX_PER_S)
    return Inventory(brokers, costs, delays_ms, degree_max, tree, load_max_per_s=caps, prices=prices)


def _both_ways(values: Floats) -> Floats:
    mean = (values + values.T) / 2
    np.fill_diagonal(mean, 0.0)
    return mean
