"""Cost the hand-overs of notifications to subscribers, if an inventory has prices, and the ways of clients to brokers.

Pure; decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.inventory.prices import per_month
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.tree.overlay_cost import overlay_cost
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.schemas.agent_names import publishing_client
from regraft.schemas.arrays import Floats
from regraft.schemas.live_view import ShownBill
from regraft.schemas.units import SECOND_MS


def handing_costs_per_s(inventory: Inventory, window: ClosedWindow) -> Floats:
    """Return what the hand-overs of a window cost at each broker, shape (brokers,); zeros without prices.

    Hand-overs are counted in full, even if brokers report a sample of notifications.
    """
    if inventory.prices is None:
        return np.zeros(len(inventory.brokers))
    counts = np.zeros(len(inventory.brokers))
    for (_, broker), count in window.local_deliveries.items():
        if broker in inventory.index:
            counts[inventory.index[broker]] += count
    return np.asarray(counts / _span_s(window) * inventory.prices.access_money)


def way_costs_per_s(
    inventory: Inventory, window: ClosedWindow, homes: Mapping[str, str], nearest: Mapping[str, str]
) -> Floats:
    """Return the cost of the ways of clients beside agents to their homes, shape (brokers,), by home.

    A client is where its ``nearest`` broker is; what it receives, if that is reported separately, and what it publishes
    costs the delay from there to its home. ``homes`` are those of publishers; those not named are where they published.
    """
    costs, index = np.zeros(len(inventory.brokers)), inventory.index
    ways: list[tuple[str, str, float]] = []
    for client, key in window.single.items() if nearest else ():
        part = window.parts.received.get(key)
        ways.append((client, key[0], 0.0 if part is None else sum(part.handed.values())))
    for publisher, home in window.homes.items() if nearest else ():
        if client := publishing_client(publisher):
            ways.append((client, homes.get(publisher, home), window.published_by(publisher)))
    for client, home, count in ways:
        near = nearest.get(client, home)
        if near in index and home in index:
            costs[index[home]] += count / _span_s(window) * float(inventory.delay_cost[index[near], index[home]])
    return costs


def access_costs_per_s(
    inventory: Inventory, window: ClosedWindow, homes: Mapping[str, str], nearest: Mapping[str, str] | None = None
) -> Floats:
    """Return the costs of hand-overs and of clients' ways at each broker, shape (brokers,).

    ``homes`` are those of publishers, ``nearest`` where clients are, by default as the window knows it.
    """
    ways = way_costs_per_s(inventory, window, homes, window.nearest if nearest is None else nearest)
    return np.asarray(handing_costs_per_s(inventory, window) + ways)


def access_by_span_per_s(
    inventory: Inventory,
    windows: Sequence[ClosedWindow],
    slice_count: int,
    homes: Mapping[str, str],
    nearest: Mapping[str, str] | None = None,
) -> Floats:
    """Return the same as one sum for each span, shape (spans,): windows, each cut into ``slice_count`` slices."""
    by_window = [float(access_costs_per_s(inventory, window, homes, nearest).sum()) for window in windows]
    return np.repeat(np.array(by_window), slice_count)


def _span_s(window: ClosedWindow) -> float:
    return max(window.end_ms - window.start_ms, 1) / SECOND_MS


def bill_of(
    configuration: TreeConfiguration, inventory: Inventory, windows: Sequence[ClosedWindow]
) -> ShownBill | None:
    """Return the cost in money of the traffic of windows on a tree, or None without prices.

    Publishers are where the configuration has them, subscribers where the windows do.
    """
    prices = inventory.prices
    if prices is None:
        return None
    money = replace(
        inventory,
        link_cost=prices.link_money,
        processing_cost=np.zeros(len(inventory.brokers)),
    )
    sets = DeliverySets.joined(window.sets_at(configuration.home_of) for window in windows)
    links_per_s = overlay_cost(configuration, money, sets).total_per_s
    access_per_s = float(np.mean([handing_costs_per_s(inventory, window).sum() for window in windows]))
    span_s = sum(window.end_ms - window.start_ms for window in windows) / 1000
    handed_per_s = sum(sum(window.local_deliveries.values()) for window in windows) / max(span_s, 1e-9)
    # Millionths of the currency per hand-over equal the currency per million hand-overs.
    per_million = (links_per_s + access_per_s) / handed_per_s if handed_per_s else None
    return ShownBill(
        currency=prices.currency,
        window_end_ms=windows[-1].end_ms,
        links_per_month=per_month(links_per_s),
        access_per_month=per_month(access_per_s),
        per_million=per_million,
    )
