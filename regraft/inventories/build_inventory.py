"""Combine what sources say about brokers into an inventory.

In: FoundBrokers of each source, prices by region. Out: an inventory and notes on what was not known; pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import csgraph_from_dense, shortest_path

from regraft.inventories.found_brokers import FoundBrokers, counted
from regraft.inventories.measure_sphere import delay_ms_between
from regraft.inventories.read_tables import Row, read_table
from regraft.inventories.source_error import SourceError
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.inventory.prices import Prices
from regraft.overlay.tree.build_tree import cheap_tree
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.real_fleet.place_fleet import NODE_MS
from regraft.schemas.arrays import Floats

CLIENTS = "clients"


def read_prices(file: Path, currency: str, message_bytes: float) -> Tariff:
    """Return the prices of a table. Raises SourceError."""
    tariff = Tariff(currency, message_bytes, {}, {})

    def take(row: Row) -> None:
        source, target, price = row.name("from"), row.name("to"), row.number("price_per_gb")
        if price is None:
            row.errors.append(f"{row.place}: there is no price_per_gb from {source} to {target}")
        elif target == CLIENTS:
            tariff.access_per_gb[source] = price
        else:
            tariff.link_per_gb[source, target] = price

    read_table(file, ("from", "to", "price_per_gb"), (), take)
    return tariff


BROKERS_MAX = 10_000  # Far above what one controller can follow (docs/sizing.md).
SHOWN_MAX = 3
PLACEHOLDER = 1.0
DIGITS = 4  # Of milliseconds.


@dataclass(frozen=True)
class Wishes:
    """What an operator chooses: the most links of a broker, whether its clients stay, and the prices of traffic."""

    degree_max: int
    clients_stay: bool
    prices: Tariff | None = None


@dataclass(frozen=True)
class Tariff:
    """Prices per GB from region to region, and from region to subscribers."""

    currency: str
    message_bytes: float
    link_per_gb: dict[tuple[str, str], float]
    access_per_gb: dict[str, float]


def combined(parts: Sequence[FoundBrokers]) -> FoundBrokers:
    """Return one value of several: brokers are those of the first, and what later parts know wins."""
    merged = FoundBrokers(list(parts[0].names))
    for part in parts:
        for name in ("delays_ms", "places", "processing_ms", "load_max_per_s", "agent_of", "region_of"):
            getattr(merged, name).update(getattr(part, name))
        merged.notes += part.notes
    return merged


def build_inventory(brokers: FoundBrokers, wishes: Wishes) -> tuple[Inventory, list[str]]:
    """Return an inventory of the brokers found, with a tree of cheap links, and notes. Raises SourceError."""
    names = sorted(brokers.names)
    _check(names, brokers, wishes)
    costs, notes = _costs(names, brokers)
    costs = costs.round(DIGITS)
    first = Inventory(
        tuple(names),
        np.array([brokers.processing_ms.get(name, NODE_MS) for name in names]),
        costs,
        wishes.degree_max,
        TreeConfiguration.of(0, names, pairwise(names)),
        _loads(names, brokers),
        _positions(names, brokers),
        {name: agent for name, agent in sorted(brokers.agent_of.items()) if name in set(names)},
        wishes.clients_stay,
        None if wishes.prices is None else _prices(names, brokers, wishes.prices),
    )
    tree = cheap_tree(names, first.charged.link_cost, wishes.degree_max)
    return replace(first, bootstrap=tree), [*brokers.notes, *notes]


def _check(names: Sequence[str], brokers: FoundBrokers, wishes: Wishes) -> None:
    errors = [f"{counted(len(names), 'broker')} found: at least 2 are needed"] if len(names) < 2 else []
    if len(names) > BROKERS_MAX:
        errors.append(f"{counted(len(names), 'broker')} found: an inventory has at most {BROKERS_MAX:,}; divide them")
    errors += [f"{name} is listed twice" for name, after in pairwise(names) if name == after]
    if wishes.degree_max < 2 and len(names) > 2:
        errors.append(f"--degree-max is {wishes.degree_max}: a tree over {len(names)} brokers needs at least 2")
    if brokers.load_max_per_s and (without := [name for name in names if not brokers.load_max_per_s.get(name)]):
        errors.append(f"load_max_per_s of {without[0]} is missing or 0: give it for every broker, above 0, or for none")
    if errors:
        raise SourceError(errors)


def _costs(names: Sequence[str], brokers: FoundBrokers) -> tuple[Floats, list[str]]:
    """Return the delay of each pair in ms, and notes on how it was found.

    One that is not known is that of the shortest known path. Without any delays, all are those of the shortest lines
    between places, and without places placeholders.
    """
    if not brokers.delays_ms:
        return _costs_of_places(names, brokers)
    every = [
        *names,
        *sorted({end for pair in brokers.delays_ms for end in pair} - {*names, *brokers.region_of.values()}),
    ]
    delays = np.full((len(every),) * 2, np.inf)
    for i, one in enumerate(every):
        for j in range(i + 1, len(every)):
            if (delay_ms := brokers.delay_ms(one, every[j])) is not None:
                delays[i, j] = delays[j, i] = delay_ms
    np.fill_diagonal(delays, 0.0)
    paths = shortest_path(csgraph_from_dense(delays, null_value=np.inf), directed=False)
    count = len(names)
    costs = np.where(np.isfinite(delays), delays, paths)[:count, :count]
    apart = _pairs(names, np.isinf(costs))
    if apart:
        raise SourceError(
            [f"nothing is known about the delay between {' and '.join(pair)}, on no path either" for pair in apart]
        )
    missing = _pairs(names, np.isinf(delays[:count, :count]))
    shown = ", ".join("-".join(pair) for pair in missing[:SHOWN_MAX])
    note = f"no delay is known for {counted(len(missing), 'pair')}; that of the shortest known path is used: {shown}"
    return costs, [f"{note}{', ...' if len(missing) > SHOWN_MAX else ''}"] if missing else []


def _costs_of_places(names: Sequence[str], brokers: FoundBrokers) -> tuple[Floats, list[str]]:
    if all(name in brokers.places for name in names):
        costs = [[delay_ms_between(brokers.places[one], brokers.places[other]) for other in names] for one in names]
        return np.array(costs), ["delays are those of light in fibre along the shortest line, a lower bound"]
    costs_alike = np.full((len(names),) * 2, PLACEHOLDER)
    np.fill_diagonal(costs_alike, 0.0)
    return costs_alike, []  # Odd enough to be noted without a word here.


def _pairs(names: Sequence[str], marked: NDArray[np.bool_]) -> list[tuple[str, str]]:
    return [(names[i], names[j]) for i, j in np.argwhere(np.triu(marked, 1)).tolist()]


def _loads(names: Sequence[str], brokers: FoundBrokers) -> Floats | None:
    return np.array([brokers.load_max_per_s[name] for name in names]) if brokers.load_max_per_s else None


def _positions(names: Sequence[str], brokers: FoundBrokers) -> Floats | None:
    all_placed = all(name in brokers.places for name in names)
    return np.array([brokers.places[name] for name in names]) if all_placed else None


def _prices(names: Sequence[str], brokers: FoundBrokers, tariff: Tariff) -> Prices:
    """Return the price of each link, the mean of both directions, and of each broker. Raises SourceError."""
    regions = [brokers.region_of.get(name, name) for name in names]
    errors = []
    links = np.zeros((len(names),) * 2)
    for i, one in enumerate(regions):
        for j, other in enumerate(regions):
            price = tariff.link_per_gb.get((one, other))
            if i != j and price is None:
                errors.append(f"the price from {one} to {other} is missing, for {names[i]} and {names[j]}")
            elif i != j and price is not None:
                links[i, j] = price
    errors += [
        f"the price from {region} to clients is missing, for {name}"
        for name, region in zip(names, regions, strict=True)
        if region not in tariff.access_per_gb
    ]
    if errors:
        raise SourceError(errors)
    access = np.array([tariff.access_per_gb[region] for region in regions])
    return Prices(tariff.currency, (links + links.T) / 2, access, tariff.message_bytes)
