"""The cost of a structured cyclic overlay after brokers exchange slots or regions are linked differently."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.scot.scot_slots import Regions
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.tree.link_sides import RootedTree, link_sides
from regraft.overlay.tree.publisher_costs import costs_at_homes
from regraft.schemas.arrays import Floats

RegionLinks = tuple[tuple[int, int], ...]
CLUSTERS_KEPT_MAX = 4_096  # Priced clusters. An exchange changes two, so these suffice for 2,000.


@dataclass(frozen=True, eq=False)
class _Cluster:
    """A priced cluster of an overlay.

    ``entering_per_s`` (publishers, brokers) is the cost of letting each publisher's notifications enter at each broker,
    a column by ``row_of``. ``wanted_per_s`` (publishers,) is what any broker of the cluster wants.
    """

    row_of: Mapping[str, int]
    entering_per_s: Floats
    wanted_per_s: Floats


class SlotCosts:
    """Prices whole overlays over the same brokers, with publishers at the same homes, on the same traffic.

    A cluster costs the same in every overlay that links its brokers in the same way, so exchanging two brokers reprices
    two clusters, at O(brokers * columns) on words. A publisher without a home costs nothing.
    """

    def __init__(self, inventory: Inventory, sets: DeliverySets, homes: Mapping[str, str]) -> None:
        self.inventory = inventory
        published = sets.of_publishers(homes.keys())
        names = [name for name, _ in published.columns]  # Columns are sorted by publisher.
        self.publishers = tuple(sorted(set(names)))
        self.homes = tuple(homes[name] for name in self.publishers)
        self._starts = np.searchsorted(names, self.publishers)
        self._span_s = max(published.span_s, 1e-9)
        self._delivered = published.delivered
        self._row_of = {broker: row for row, broker in enumerate(published.brokers)}
        self._published_per_s = self._counts(published.published[None])[:, 0]
        self._clusters: dict[tuple[tuple[str, ...], RegionLinks], _Cluster] = {}

    def cost_per_s(self, regions: Regions, region_links: RegionLinks) -> float:
        """Return the cost of the traffic on this overlay."""
        region_of: dict[str, int] = {}
        for number, region in enumerate(regions):
            for broker in region:
                region_of.setdefault(broker, number)
        at = [region_of[home] for home in self.homes]
        return sum(
            self._cluster_cost_per_s(tuple(region[cluster] for region in regions), region_links, at)
            for cluster in range(len(regions[0]))
        )

    def _cluster_cost_per_s(self, holders: tuple[str, ...], region_links: RegionLinks, at: Sequence[int]) -> float:
        """Return the cost of notifications in one cluster and on the links into it; ``at`` are the regions of homes."""
        cluster, inventory, total = self._cluster(holders, region_links), self.inventory, 0.0
        for slot, (home, region) in enumerate(zip(self.homes, at, strict=True)):
            entry = holders[region]
            wanted = float(cluster.wanted_per_s[slot])
            total += float(cluster.entering_per_s[slot, cluster.row_of[entry]])
            if entry == home:  # The home's cluster also processes what no broker of it wants.
                processing = float(inventory.processing_cost[inventory.index[home]])
                total += (float(self._published_per_s[slot]) - wanted) * processing
            elif wanted:
                total += wanted * inventory.cost_of_link(home, entry)
        return total

    def _cluster(self, holders: tuple[str, ...], region_links: RegionLinks) -> _Cluster:
        key = holders, region_links
        cluster = self._clusters.get(key)
        if cluster is None:
            if len(self._clusters) >= CLUSTERS_KEPT_MAX:
                self._clusters.clear()
            cluster = self._clusters[key] = self._priced(holders, region_links)
        return cluster

    def _priced(self, holders: tuple[str, ...], region_links: RegionLinks) -> _Cluster:
        members = sorted(set(holders))
        row_of = {broker: row for row, broker in enumerate(members)}
        at = np.array([self.inventory.index[broker] for broker in members])
        processing = self.inventory.processing_cost[at]
        below, above = self._sides(tree := _rooted(holders, region_links, row_of), members)
        wanted = below[:, 0]
        if len(members) == 1:
            return _Cluster(row_of, wanted[:, None] * processing, wanted)
        to_parents = self.inventory.link_cost[at, at[tree.parents]]
        return _Cluster(row_of, costs_at_homes(tree, processing, to_parents, wanted, below, above), wanted)

    def _sides(self, tree: RootedTree, members: Iterable[str]) -> tuple[Floats, Floats]:
        """Return each publisher's notifications per second wanted below and above each broker, (publishers, rows)."""
        rows = self._delivered[[self._row_of[broker] for broker in members]]
        below, above = link_sides(tree, rows)
        return self._counts(below), self._counts(above)

    def _counts(self, words: NDArray[np.uint64]) -> Floats:
        """Return the notifications per second that each row has of each publisher, shape (publishers, rows)."""
        if not self.publishers:
            return np.zeros((0, len(words)))
        bits = np.bitwise_count(words)
        return np.asarray(np.add.reduceat(bits, self._starts, axis=1, dtype=np.float64).T / self._span_s)


def _rooted(holders: Sequence[str], region_links: RegionLinks, row_of: Mapping[str, int]) -> RootedTree:
    """Return the tree of a cluster's brokers, as rows."""
    peers: list[set[int]] = [set() for _ in row_of]
    for one, other in region_links:
        first, second = row_of[holders[one]], row_of[holders[other]]
        if first != second:
            peers[first].add(second)
            peers[second].add(first)
    return RootedTree.of_peers([sorted(each) for each in peers])
