"""Links and neighbours of structured cyclic overlays: primary ones within a cluster, secondary ones within a region."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from regraft.api.cyclic import ScotBroker, StructuredCyclicOverlay


def a_links(overlay: StructuredCyclicOverlay) -> Iterator[tuple[ScotBroker, ScotBroker]]:
    """Yield the links within clusters, each once."""
    for cluster in range(overlay.cluster_count):
        for one, other in overlay.tree.edges:
            yield ScotBroker(one, cluster), ScotBroker(other, cluster)


def i_links(overlay: StructuredCyclicOverlay) -> Iterator[tuple[ScotBroker, ScotBroker]]:
    """Yield the links between clusters, each once."""
    for region in overlay.regions:
        for one, other in combinations(range(overlay.cluster_count), 2):
            yield ScotBroker(region, one), ScotBroker(region, other)


def primary_neighbours(overlay: StructuredCyclicOverlay, broker: ScotBroker) -> list[ScotBroker]:
    """Return the neighbours in the broker's cluster, by region."""
    return [ScotBroker(region, broker.cluster) for region in sorted(overlay.tree.neighbors(broker.region))]


def secondary_neighbours(overlay: StructuredCyclicOverlay, broker: ScotBroker) -> list[ScotBroker]:
    """Return the neighbours in the broker's region, by cluster."""
    others = (cluster for cluster in range(overlay.cluster_count) if cluster != broker.cluster)
    return [ScotBroker(broker.region, cluster) for cluster in others]
