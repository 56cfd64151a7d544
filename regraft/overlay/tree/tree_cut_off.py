"""What the death of each broker of a tree would cut off. Pure."""

from __future__ import annotations

import numpy as np

from regraft.overlay.cut_off import CutOff, DeliveryPairs
from regraft.overlay.tree.compiled_costs import prepared_kernels
from regraft.overlay.tree.link_sides import RootedTree
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.schemas.arrays import Floats, Places


def tree_cut_off(tree: TreeConfiguration, deliveries: DeliveryPairs) -> CutOff:
    """Return what the death of each broker of a tree cuts off; see :func:`cut_off_over`."""
    row = {broker: position for position, broker in enumerate(tree.brokers)}
    ends = np.array([(row[a], row[b]) for a, b in tree.links], dtype=np.intp).reshape(-1, 2)
    return cut_off_over(ends, tree.brokers, deliveries)


def cut_off_over(ends: Places, brokers: tuple[str, ...], deliveries: DeliveryPairs) -> CutOff:
    """Return what the death of each broker of a tree with these links cuts off. Cost O(brokers + pairs * depth).

    ``ends`` (links, 2) are positions of brokers.
    """
    counts, kernels = deliveries.counts, prepared_kernels()
    if kernels is None:
        cut_off = _passing_each(RootedTree.of_ends(ends, len(brokers)), deliveries)
    else:
        pairs = map(np.ascontiguousarray, (deliveries.sources, deliveries.targets, counts))
        cut_off = kernels.passing_each(ends, len(brokers), *pairs)
    return CutOff(brokers, cut_off / deliveries.length_s, float(counts.sum()) / deliveries.length_s)


def _passing_each(rooted: RootedTree, deliveries: DeliveryPairs) -> Floats:
    """Return how much passes each broker on the way between two others, as the compiled loops do."""
    sources, targets, counts = deliveries.sources, deliveries.targets, deliveries.counts
    size, total = len(rooted.parents), float(counts.sum())
    published, delivered = (_sums(ends, counts, size) for ends in (sources, targets))
    is_local = sources == targets
    own = _sums(sources[is_local], counts[is_local], size)
    inside = rooted.summed_below(_sums(_meeting_points(rooted, sources, targets), counts, size))
    touching = rooted.summed_below(published + delivered) - inside  # With an end in each broker's subtree.
    above = total - touching  # Between brokers outside its subtree.
    below_root = np.flatnonzero(rooted.parents != np.arange(size))
    children = _sums(rooted.parents[below_root], inside[below_root], size)
    return np.maximum(total - (published + delivered - own) - above - children, 0.0)


def _sums(brokers: Places, counts: Floats, size: int) -> Floats:
    """Return the sum of the counts of each broker."""
    return np.bincount(brokers, counts, size).astype(np.float64)


def _meeting_points(rooted: RootedTree, sources: Places, targets: Places) -> Places:
    """Return for each pair the broker closest to the root on the path between them."""
    places, sizes = rooted.preorder
    meeting, left = sources.copy(), np.arange(len(sources))
    while len(left):
        here, there = meeting[left], places[targets[left]]
        left = left[(there < places[here]) | (there >= places[here] + sizes[here])]
        meeting[left] = rooted.parents[meeting[left]]
    return meeting
