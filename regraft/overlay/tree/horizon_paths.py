"""Paths of a tree up to a number of hops, as arrays: what a broker with horizon eta can see.

In: a configuration. Out: broker positions in ``configuration.brokers`` (the order of inventory and delivery sets).
Costs and interests of the paths do not belong here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.tree.tree_configuration import TreeConfiguration

Paths = NDArray[np.intp]


def paths_within(configuration: TreeConfiguration, hops_max: int) -> dict[int, Paths]:
    """Return, for each hop count from 1 to ``hops_max``, all directed paths of that length.

    Each array has shape (paths, hops + 1) and is sorted; it contains each path and its reverse. If the tree has no path
    of a length, its array is empty. Raises ValueError if ``hops_max`` is below 1. Cost O(paths).
    """
    if hops_max < 1:
        raise ValueError(f"hops_max is {hops_max}, a horizon has at least 1 hop")
    position = {broker: index for index, broker in enumerate(configuration.brokers)}
    neighbours = [[position[peer] for peer in configuration.neighbours[broker]] for broker in configuration.brokers]
    degrees = np.array([len(peers) for peers in neighbours], dtype=np.intp)
    flat = np.array([peer for peers in neighbours for peer in peers], dtype=np.intp)
    starts = np.cumsum(degrees) - degrees
    paths = np.column_stack([np.repeat(np.arange(len(degrees), dtype=np.intp), degrees), flat])
    by_hops = {1: paths}
    for hops in range(2, hops_max + 1):
        paths = _extended(paths, degrees, starts, flat)
        by_hops[hops] = paths
    return by_hops


def _extended(paths: Paths, degrees: Paths, starts: Paths, flat: Paths) -> Paths:
    """Return every path extended by one hop without turning back, which cannot close a cycle in a tree."""
    ends = paths[:, -1]
    counts = degrees[ends]
    origin = np.repeat(np.arange(len(paths), dtype=np.intp), counts)
    within = np.arange(len(origin), dtype=np.intp) - np.repeat(np.cumsum(counts) - counts, counts)
    following = flat[starts[ends[origin]] + within]
    onward = following != paths[origin, -2]
    return np.column_stack([paths[origin[onward]], following[onward]])
