"""What handing notifications to subscribers costs, where an inventory has prices. Pure; decides nothing.

In: windows that say how often something was handed over where, and what that costs at each broker. Out: costs per
second, in the unit of the one cost.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.inventory import Inventory

Floats = NDArray[np.float64]


def access_costs_per_s(inventory: Inventory, window: ClosedWindow) -> Floats:
    """Return what the hand-overs of a window cost at each broker, shape (brokers,); nothing without prices.

    Hand-overs are counted in full, also where brokers report a sample of notifications.
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
    """Return the same over all brokers in each span, shape (spans,): windows, each cut into as many slices."""
    by_window = [float(access_costs_per_s(inventory, window).sum()) for window in windows]
    return np.repeat(np.array(by_window), slice_count)
