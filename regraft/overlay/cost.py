"""The cost function by which all algorithms are compared: Jaeger07, Eq. 1-2, per second."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.configuration import Configuration, link
from regraft.overlay.delivery_sets import DeliverySets
from regraft.overlay.inventory import Inventory
from regraft.overlay.link_sides import RootedTree, link_sides
from regraft.overlay.overlay_configuration import Link

Key = TypeVar("Key")


@dataclass(frozen=True)
class CostBreakdown:
    """The cost per second of an overlay, broken down by link and by broker."""

    links_per_s: Mapping[Link, float]
    brokers_per_s: Mapping[str, float]
    link_notifications_per_s: Mapping[Link, float]

    @property
    def total_per_s(self) -> float:
        """The sum over all links and brokers."""
        return sum(self.links_per_s.values()) + sum(self.brokers_per_s.values())


def overlay_cost(configuration: Configuration, inventory: Inventory, sets: DeliverySets) -> CostBreakdown:
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


def link_crossings(configuration: Configuration, sets: DeliverySets) -> dict[Link, NDArray[np.uint64]]:
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


def mean_breakdown(parts: Sequence[CostBreakdown], spans_s: Sequence[float]) -> CostBreakdown:
    """Return the mean of the breakdowns, weighted by their spans."""
    total_s = sum(spans_s)

    def mean(values_of: Callable[[CostBreakdown], Mapping[Key, float]]) -> dict[Key, float]:
        sums: dict[Key, float] = {}
        for part, span_s in zip(parts, spans_s, strict=True):
            for key, value in values_of(part).items():
                sums[key] = sums.get(key, 0.0) + value * span_s / total_s
        return sums

    return CostBreakdown(
        mean(lambda part: part.links_per_s),
        mean(lambda part: part.brokers_per_s),
        mean(lambda part: part.link_notifications_per_s),
    )


def summed_breakdown(parts: Sequence[CostBreakdown]) -> CostBreakdown:
    """Return the sum of the breakdowns; the cost is 0 if there are none."""

    def added(values_of: Callable[[CostBreakdown], Mapping[Key, float]]) -> dict[Key, float]:
        sums: dict[Key, float] = {}
        for part in parts:
            for key, value in values_of(part).items():
                sums[key] = sums.get(key, 0.0) + value
        return sums

    return CostBreakdown(
        added(lambda part: part.links_per_s),
        added(lambda part: part.brokers_per_s),
        added(lambda part: part.link_notifications_per_s),
    )
