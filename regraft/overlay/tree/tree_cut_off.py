"""What the death of each broker of a tree would cut off. Pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.cut_off import CutOff
from regraft.overlay.tree.link_sides import RootedTree
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.schemas.arrays import Floats


def tree_cut_off(tree: TreeConfiguration, deliveries_per_s: Floats) -> CutOff:
    """Return what the death of each broker of a tree cuts off.

    ``deliveries_per_s`` (brokers, brokers) holds the deliveries at each broker (column) of what is published at each
    broker (row). Cost O(brokers^2).
    """
    rooted = RootedTree.of(tree)
    places, sizes = _preorder(rooted)
    order = np.argsort(places)
    sums = np.zeros((len(order) + 1, len(order) + 1))
    np.cumsum(np.cumsum(deliveries_per_s[np.ix_(order, order)], axis=0), axis=1, out=sums[1:, 1:])
    first, end = places, places + sizes
    inside = sums[end, end] - sums[first, end] - sums[end, first] + sums[first, first]  # Within each broker's subtree.
    total = sums[-1, -1]
    touching = (sums[end, -1] - sums[first, -1]) + (sums[-1, end] - sums[-1, first]) - inside
    above = total - touching  # Between brokers outside its subtree.
    own = np.diagonal(deliveries_per_s)
    of_broker = deliveries_per_s.sum(axis=0) + deliveries_per_s.sum(axis=1) - own
    children = np.zeros(len(order))
    below_root = np.flatnonzero(rooted.parents != np.arange(len(order)))
    np.add.at(children, rooted.parents[below_root], inside[below_root])
    per_s = np.maximum(total - of_broker - above - children, 0.0)
    return CutOff(tree.brokers, per_s, float(total))


def _preorder(rooted: RootedTree) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return each broker's place in preorder and the size of its subtree, itself included."""
    sizes = np.rint(rooted.summed_below(np.ones(len(rooted.parents)))).astype(np.intp)
    places = np.zeros(len(sizes), dtype=np.intp)
    for level in rooted.levels:
        parents = rooted.parents[level]
        before = np.cumsum(sizes[level]) - sizes[level]
        firsts = np.flatnonzero(np.concatenate([[True], parents[1:] != parents[:-1]]))
        runs = np.diff(np.append(firsts, len(level)))
        places[level] = places[parents] + 1 + before - np.repeat(before[firsts], runs)
    return places, sizes
