"""Cost the hand-overs of notifications to subscribers, if an inventory has prices. Pure; decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.inventory import Inventory
from regraft.overlay.prices import per_month
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.tree.overlay_cost import overlay_cost
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.schemas.arrays import Floats
from regraft.schemas.live_view import ShownBill


def access_costs_per_s(inventory: Inventory, window: ClosedWindow) -> Floats:
    """Return what the hand-overs of a window cost at each broker, shape (brokers,); zeros without prices.

    Hand-overs are counted in full, even if brokers report a sample of notifications.
    """
    if inventory.prices is None:
        return np.zeros(len(inventory.brokers))
    counts = np.zeros(len(inventory.brokers))
    for (_, broker), count in window.local_deliveries.items():
        if broker in inventory.index:
            counts[inventory.index[broker]] += count
    span_s = max(window.end_ms - window.start_ms, 1) / 1000
    return np.asarray(counts / span_s * inventory.prices.access_money)


def access_by_span_per_s(inventory: Inventory, windows: Sequence[ClosedWindow], slice_count: int) -> Floats:
    """Return the cost of all hand-overs in each span, shape (spans,): windows, each cut into ``slice_count`` slices."""
    by_window = [float(access_costs_per_s(inventory, window).sum()) for window in windows]
    return np.repeat(np.array(by_window), slice_count)


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
    access_per_s = float(np.mean([access_costs_per_s(inventory, window).sum() for window in windows]))
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
