"""Yardstick trees built with global knowledge: the minimum spanning tree and the maximum interest tree."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from regraft.api.overlays import Inventory
from regraft.api.trees import TreeConfiguration


def minimum_spanning_tree(inventory: Inventory, epoch: int = 0) -> TreeConfiguration:
    """Return the tree with the least sum of link costs, regardless of traffic.

    Ties go to the first link in the brokers' order (Kruskal's algorithm), so equal inventories give equal trees.
    Source: Jaeger07, section 3.1.2. Cost O(brokers^2 log brokers). Guarantee: the least sum of link costs; none for the
    cost of Eq. 1-2.
    """
    return _lightest_tree(inventory.brokers, inventory.link_cost, epoch)


def maximum_interest_tree(inventory: Inventory, interest: NDArray[np.int64], epoch: int = 0) -> TreeConfiguration:
    """Return the tree with the largest sum of interest over its links, regardless of their cost.

    ``interest`` (n, n) holds I_ij in the order of the inventory's brokers; ties as in :func:`minimum_spanning_tree`.
    Raises ValueError if it is over another number of brokers. Source: Jaeger07, section 3.1.2. Cost O(brokers^2 log
    brokers). Guarantee: the largest sum of I_ij; none for the cost of Eq. 1-2.
    """
    if interest.shape != inventory.link_cost.shape:
        raise ValueError(
            f"interest has shape {interest.shape}, {len(inventory.brokers)} brokers need {inventory.link_cost.shape}: "
            "count it from delivery sets over the inventory's brokers"
        )
    return _lightest_tree(inventory.brokers, -interest, epoch)


def _lightest_tree(brokers: tuple[str, ...], weights: NDArray[Any], epoch: int) -> TreeConfiguration:
    graph = nx.Graph()
    graph.add_nodes_from(brokers)
    # Links are added in the brokers' order; the sort by weight is stable, so ties resolve equally on every machine.
    graph.add_weighted_edges_from(
        (brokers[i], brokers[j], weights[i, j].item()) for i in range(len(brokers)) for j in range(i + 1, len(brokers))
    )
    return TreeConfiguration.of(epoch, brokers, nx.minimum_spanning_edges(graph, algorithm="kruskal", data=False))
