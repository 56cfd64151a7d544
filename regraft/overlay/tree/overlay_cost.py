"""The cost function by which all algorithms for trees are compared: Jaeger07, Eq. 1-2, per second."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.cost_breakdown import CostBreakdown
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import Link, link
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.tree.link_sides import RootedTree, link_sides
from regraft.overlay.tree.tree_configuration import TreeConfiguration


def overlay_cost(configuration: TreeConfiguration, inventory: Inventory, sets: DeliverySets) -> CostBreakdown:
    """Return the cost per second of distributing the notifications of ``sets`` over the tree.

    A notification costs c for each link and p for each broker of its delivery tree, the smallest subtree that contains
    V(n). A notification wanted only at its publisher's broker costs p there once. Source: Jaeger07, Eq. 1-2. Cost
    O(brokers * columns).
    """
    if sets.brokers != configuration.brokers or inventory.brokers != configuration.brokers:
        raise ValueError("configuration, inventory and delivery sets must cover the same brokers")
    crossing = link_crossings(configuration, sets)
    at_broker = sets.words.copy()
    span_s = max(sets.span_s, 1e-9)
    links_per_s: dict[Link, float] = {}
    notifications_per_s: dict[Link, float] = {}
    for pair in configuration.links:
        words = crossing[pair]
        per_s = float(np.bitwise_count(words).sum()) / span_s
        notifications_per_s[pair] = per_s
        links_per_s[pair] = per_s * inventory.cost_of_link(*pair)
        for end in pair:
            at_broker[inventory.index[end]] |= words
    counts = np.bitwise_count(at_broker).sum(axis=1, dtype=np.int64) / span_s
    brokers_per_s = {
        broker: float(counts[position] * inventory.processing_cost[position])
        for position, broker in enumerate(configuration.brokers)
    }
    return CostBreakdown(links_per_s, brokers_per_s, notifications_per_s)


def link_crossings(configuration: TreeConfiguration, sets: DeliverySets) -> dict[Link, NDArray[np.uint64]]:
    """Return, for each link, the bits of the notifications whose delivery tree contains it, shape (columns,).

    A notification crosses a link if it is wanted on both sides.
    """
    tree, names = RootedTree.of(configuration), configuration.brokers
    below, above = link_sides(tree, sets.words)
    return {
        link(names[child], names[parent]): below[child] & above[child]
        for child, parent in enumerate(tree.parents)
        if child != parent
    }
