"""The least-cost tree of a small overlay, found by pricing every possible tree: the yardstick of Jaeger07."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from regraft.api.overlays import DeliverySets, Inventory
from regraft.api.trees import TreeConfiguration

BROKERS_MAX = 8  # 262,144 trees take milliseconds and 6 MB; the 4.8 million of nine brokers would take 150 MB.


class DegreeError(ValueError):
    """A broker would have more links than the cap allows."""


class TooManyTreesError(ValueError):
    """The brokers have more trees than can be priced."""


@dataclass(frozen=True, eq=False)
class AllTrees:
    """Every tree over brokers 0 .. n-1, in the order of their Pruefer sequences.

    ``lesser`` and ``greater`` (trees, n - 1): the two ends of each link. ``side``: the brokers on the lesser end's side
    of it, with bit v for broker v. ``degree_max`` (trees,): the largest degree in each tree.
    """

    lesser: NDArray[np.uint8]
    greater: NDArray[np.uint8]
    side: NDArray[np.uint8]
    degree_max: NDArray[np.uint8]


@lru_cache(maxsize=BROKERS_MAX)
def all_trees(broker_count: int) -> AllTrees:
    """Return all n^(n-2) trees over ``broker_count`` brokers, cached by count.

    Source: Pruefer 1918; the proof of Cayley's formula decodes each of the n^(n-2) sequences to a different tree. Cost
    O(n^(n-1)) in array operations. Raises TooManyTreesError above ``BROKERS_MAX``, ValueError below 2.
    """
    if broker_count < 2:
        raise ValueError(f"a tree joins at least 2 brokers, got {broker_count}")
    if broker_count > BROKERS_MAX:
        raise TooManyTreesError(
            f"{broker_count} brokers have {broker_count ** (broker_count - 2):,} trees, all are priced up to "
            f"{BROKERS_MAX} brokers: compare with overlay.yardstick_trees instead"
        )
    sequences = np.array(list(product(range(broker_count), repeat=broker_count - 2)), dtype=np.intp)
    tree = np.arange(len(sequences))
    # A broker occurs in the sequence once less often than it has links; the next leaf has one link left.
    left = 1 + (sequences[:, :, None] == np.arange(broker_count)).sum(axis=1)
    degree_max = left.max(axis=1)
    below = np.tile(1 << np.arange(broker_count), (len(sequences), 1))
    ends = np.empty((3, len(sequences), broker_count - 1), dtype=np.uint8)
    for place in range(broker_count - 1):
        leaf = (left == 1).argmax(axis=1)
        left[tree, leaf] = 0
        parent = sequences[:, place] if place < broker_count - 2 else (left == 1).argmax(axis=1)
        left[tree, parent] -= 1
        beyond = below[tree, leaf]
        below[tree, parent] |= beyond
        everyone = (1 << broker_count) - 1
        ends[:, :, place] = (
            np.minimum(leaf, parent),
            np.maximum(leaf, parent),
            np.where(leaf < parent, beyond, everyone ^ beyond),
        )
    return AllTrees(ends[0], ends[1], ends[2], degree_max.astype(np.uint8))


def tree_costs_per_s(inventory: Inventory, sets: DeliverySets) -> NDArray[np.float64]:
    """Return the cost per second of every tree over the inventory's brokers, in the order of :func:`all_trees`.

    The costs are those of ``overlay.tree.overlay_cost`` (Jaeger07, Eq. 1-2), counted by cuts: a notification avoids a
    link if all of V(n) is on one side of it, and it avoids a broker if all of V(n) is behind one of the broker's links.
    The cost of a link minus these savings depends only on its ends and its side, so it is computed once for all trees.
    Cost O(n^2 * 2^n) for that, and one look-up per link and tree. Raises TooManyTreesError above ``BROKERS_MAX``
    brokers, ValueError if inventory and sets have different brokers.
    """
    if sets.brokers != inventory.brokers:
        raise ValueError("inventory and delivery sets must be over the same brokers")
    trees = all_trees(len(inventory.brokers))
    within = _notifications_within(sets)
    total = within[-1]
    near, far = within, within[::-1]  # Wanted only on the lesser end's side, only on the other.
    c = inventory.link_cost[:, :, None]
    p = inventory.processing_cost
    added = c * (total - near - far) - p[:, None, None] * far - p[None, :, None] * near
    costs = total * p.sum() + added[trees.lesser, trees.greater, trees.side].sum(axis=1)
    return np.asarray(costs / max(sets.span_s, 1e-9), dtype=np.float64)


def exact_optimum(inventory: Inventory, sets: DeliverySets, degree_max: int | None = None) -> TreeConfiguration:
    """Return the tree of least cost over the inventory's brokers, as epoch 0.

    ``degree_max`` caps the links of a broker; by default there is no cap, not even the inventory's. Source: Jaeger07,
    section 3.1, Definition 1, which has no cap. Cost: that of :func:`tree_costs_per_s`. Guarantee: optimal. Raises
    TooManyTreesError above ``BROKERS_MAX`` brokers, DegreeError if no tree meets the cap.
    """
    count = len(inventory.brokers)
    trees = all_trees(count)
    costs = tree_costs_per_s(inventory, sets)
    if degree_max is not None:
        if degree_max < trees.degree_max.min():
            raise DegreeError(
                f"degree_max is {degree_max}: a tree over {count} brokers needs at least {trees.degree_max.min()}"
            )
        costs[trees.degree_max > degree_max] = np.inf
    return tree_at(inventory.brokers, int(costs.argmin()))


def tree_at(brokers: tuple[str, ...], position: int) -> TreeConfiguration:
    """Return the tree at ``position`` of :func:`all_trees`, over the named brokers, as epoch 0."""
    trees = all_trees(len(brokers))
    ends = zip(trees.lesser[position], trees.greater[position], strict=True)
    return TreeConfiguration.of(0, brokers, [(brokers[a], brokers[b]) for a, b in ends])


def _notifications_within(sets: DeliverySets) -> NDArray[np.int64]:
    """Return for each set of brokers (as bits) how many notifications were published and delivered only within it."""
    distinct, counts = sets.distinct
    within = np.zeros(1 << len(sets.brokers), dtype=np.int64)
    within[distinct[:, 0].astype(np.int64)] = counts
    for broker in range(len(sets.brokers)):
        halves = within.reshape(-1, 2, 1 << broker)  # Without the broker, with it.
        halves[:, 1] += halves[:, 0]
    return within
