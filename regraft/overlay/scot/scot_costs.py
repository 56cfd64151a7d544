"""The cost of notifications on a structured cyclic overlay with static routing (Jaeger07, Eq. 1-2).

Detours around congested links are left out: they are short-lived and take no more messages.

What is published at a home is distributed over one tree
(:meth:`overlay.scot_configuration.ScotConfiguration.static_tree`): that of the home's cluster and, for each other
cluster, the link to the broker of the same region and that cluster's tree. So the cost of a publisher at a home is the
sum over clusters of what enters each cluster at that broker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.cost_breakdown import CostBreakdown, summed_breakdown
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.tree.overlay_cost import overlay_cost
from regraft.overlay.tree.publisher_costs import PublisherCosts
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.schemas.arrays import Floats


def scot_breakdown(overlay: ScotConfiguration, inventory: Inventory, sets: DeliverySets) -> CostBreakdown:
    """Return the cost of delivery sets by link and broker, with publishers at the overlay's homes.

    A publisher without a known home is taken to be at the first broker that has any of its notifications; its cost is
    then a guess.
    """
    publishers_at: dict[str, list[str]] = {}
    for name, home in _homes_in(overlay, sets).items():
        publishers_at.setdefault(home, []).append(name)
    parts = [
        overlay_cost(overlay.static_tree(home), inventory, sets.of_publishers(frozenset(names)))
        for home, names in sorted(publishers_at.items())
    ]
    return summed_breakdown(parts)


def _homes_in(overlay: ScotConfiguration, sets: DeliverySets) -> dict[str, str]:
    homes: dict[str, str] = {}
    words = sets.words
    for slot, (name, _) in enumerate(sets.columns):
        if name not in homes:
            first = sets.brokers[int(np.argmax(words[:, slot] != 0))]
            homes[name] = overlay.home_of.get(name, first)
    return homes


class ScotCosts:
    """The cost of each publisher at each broker in some spans: ``costs_per_s`` (spans, publishers, brokers).

    ``publishers`` are sorted; brokers are those of the overlay. Cost O(brokers * columns), plus O(brokers) for each
    publisher, span and cluster. Raises ValueError if there is no span.
    """

    def __init__(self, overlay: ScotConfiguration, inventory: Inventory, spans: Sequence[DeliverySets]) -> None:
        if not spans:
            raise ValueError("no span to price publishers on: at least one window is needed")
        self.overlay, self.inventory = overlay, inventory
        self.spans_s: Floats = np.array([max(one.span_s, 1e-9) for one in spans])
        self.publishers = tuple(sorted({name for one in spans for name, _ in one.columns}))
        self.slot_of = {name: slot for slot, name in enumerate(self.publishers)}
        self._column_of = {broker: slot for slot, broker in enumerate(overlay.brokers)}
        published = self._counts([one.published for one in spans], spans)
        self.costs_per_s = self._priced(spans, published)

    def _counts(self, words: Sequence[NDArray[np.uint64]], spans: Sequence[DeliverySets]) -> Floats:
        """Return the set bits of each publisher per second, shape (spans, publishers)."""
        counts = np.zeros((len(spans), len(self.publishers)))
        for number, (one, bits) in enumerate(zip(spans, words, strict=True)):
            at = [self.slot_of[name] for name, _ in one.columns]
            np.add.at(counts[number], at, np.bitwise_count(bits).astype(np.float64))
        return np.asarray(counts / self.spans_s[:, None])

    def _priced(self, spans: Sequence[DeliverySets], published: Floats) -> Floats:
        overlay, inventory = self.overlay, self.inventory
        priced = np.zeros((*published.shape, len(overlay.brokers)))
        processing = inventory.processing_cost[[inventory.index[broker] for broker in overlay.brokers]]
        for cluster in range(overlay.cluster_count):
            members = sorted({region[cluster] for region in overlay.regions})
            parts = [_cluster_part(one, members) for one in spans]
            wanted = self._counts([one.published for one in parts], parts)
            entering = self._entering(members, parts, wanted)
            for slot, home in enumerate(overlay.brokers):
                entry = overlay.region_of(home)[cluster]
                priced[:, :, slot] += entering[:, :, members.index(entry)]
                if entry == home:  # The home's cluster also processes what none of it wants.
                    priced[:, :, slot] += (published - wanted) * processing[slot]
                else:
                    priced[:, :, slot] += wanted * inventory.cost_of_link(home, entry)
        return priced

    def _entering(self, members: Sequence[str], parts: Sequence[DeliverySets], wanted: Floats) -> Floats:
        """Return the cost in a cluster of notifications wanted there that enter at each of its brokers."""
        inventory = self.inventory
        if len(members) == 1:
            return np.asarray(wanted[:, :, None] * inventory.processing_cost[inventory.index[members[0]]])
        entering = np.zeros((*wanted.shape, len(members)))
        links = [pair for pair in self.overlay.cluster_links if pair[0] in members]
        tree = TreeConfiguration.of(self.overlay.epoch, members, links)
        costs = PublisherCosts(tree, inventory.restricted_to(members), parts)
        for name in costs.publishers:
            entering[:, self.slot_of[name], :] = costs.costs_by_span_per_s(name)
        return entering

    def at_homes(self, homes: Mapping[str, str]) -> Floats:
        """Return the cost of the publishers of ``homes`` in each span, shape (spans,)."""
        total = np.zeros(len(self.spans_s))
        for name, slot in self.slot_of.items():
            if name in homes:
                total += self.costs_per_s[:, slot, self._column_of[homes[name]]]
        return total

    def total_per_s(self, homes: Mapping[str, str]) -> float:
        """Return the cost of the publishers of ``homes`` over all spans."""
        return float(self.at_homes(homes) @ self.spans_s / self.spans_s.sum())

    def at_home(self, publisher: str, home: str) -> float:
        """Return the cost of a publisher at one broker over all spans."""
        return float(self.by_home(publisher)[self._column_of[home]])

    def by_home(self, publisher: str) -> Floats:
        """Return the cost of a publisher at each broker over all spans, shape (brokers,)."""
        weights = self.spans_s / self.spans_s.sum()
        return np.asarray(weights @ self.costs_per_s[:, self.slot_of[publisher], :])


def _cluster_part(sets: DeliverySets, members: Sequence[str]) -> DeliverySets:
    """Return the deliveries in a cluster, as if nothing else had been published."""
    rows = [sets.brokers.index(broker) for broker in members]
    delivered = sets.delivered[rows]
    return replace(sets, brokers=tuple(members), words=delivered, delivered=delivered)
