"""Structured cyclic overlays (Shafique): the cartesian product of a tree and a complete graph.

Each node of the complete graph is a cluster, a copy of the tree; each node of the tree is a region, whose brokers are
all linked to each other. In: a tree and a number of clusters. Out: brokers and ways. Routing does not belong here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import networkx as nx  # At run time only where it is used: it takes 20 MB, and most brokers are in other overlays.

CLUSTERS_MIN = 1


class ScotBroker(NamedTuple):
    """A broker by its region, a node of the tree, and the index of its cluster."""

    region: str
    cluster: int


class OverlayShapeError(ValueError):
    """No structured cyclic overlay can be made; the message says why."""


@dataclass(frozen=True)
class StructuredCyclicOverlay:
    """The product of ``tree`` and a complete graph of ``cluster_count`` nodes; built by :func:`scot_overlay`."""

    tree: nx.Graph[str]
    cluster_count: int

    def __post_init__(self) -> None:
        """Check the tree and the number of clusters. Raises OverlayShapeError."""
        _check(self.tree, self.cluster_count)

    @cached_property
    def regions(self) -> tuple[str, ...]:
        """The regions, sorted."""
        return tuple(sorted(self.tree.nodes))

    def brokers(self) -> list[ScotBroker]:
        """Return all brokers, cluster by cluster."""
        return [ScotBroker(region, cluster) for cluster in range(self.cluster_count) for region in self.regions]

    def are_linked(self, regions: Collection[str]) -> bool:
        """Return True if some regions are connected by links between them."""
        import networkx as nx

        return bool(nx.is_connected(self.tree.subgraph(regions)))

    def path(self, region: str, other: str) -> list[str]:
        """Return the regions on the way from one to another, both included."""
        import networkx as nx

        return list(nx.shortest_path(self.tree, region, other))


def scot_overlay(tree_links: Iterable[tuple[str, str]], cluster_count: int) -> StructuredCyclicOverlay:
    """Return the overlay over a tree with at least one link.

    Raises OverlayShapeError if the links are not such a tree, one is given twice, or there are too few clusters.
    """
    import networkx as nx

    tree: nx.Graph[str] = nx.Graph()
    for one, other in tree_links:
        if tree.has_edge(one, other):
            raise OverlayShapeError(f"link {one}-{other} is given twice: name each link of the tree once")
        tree.add_edge(one, other)
    return StructuredCyclicOverlay(tree, cluster_count)


def _check(tree: nx.Graph[str], cluster_count: int) -> None:
    import networkx as nx

    if cluster_count < CLUSTERS_MIN:
        raise OverlayShapeError(f"{cluster_count} clusters are too few for an overlay: at least {CLUSTERS_MIN}")
    if not tree:
        raise OverlayShapeError("a tree without brokers is not an overlay: name at least one link")
    if not nx.is_connected(tree):
        parts = nx.number_connected_components(tree)
        raise OverlayShapeError(f"the tree is in {parts} parts: link them, one link for each further part")
    extra = tree.number_of_edges() - (len(tree) - 1)
    if extra > 0:
        raise OverlayShapeError(
            f"the tree has {extra} links too many for {len(tree)} regions: remove one of each cycle"
        )
