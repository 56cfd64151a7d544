"""The changes of cost of all swaps of a tree's links at once, by walking outward from each cut.

Of the notifications that cross a cut, only those wanted behind a broker and nowhere else on its side can be saved there
(:mod:`overlay.tree.tree_costs`), so a walk outward from the cut tracks one shrinking set.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.sets.weighted_sets import weighed
from regraft.overlay.tree.tree_costs import WORDS_AT_ONCE, TreeCosts
from regraft.schemas.arrays import Floats, Places, Words


def walk_cuts(costs: TreeCosts, cuts: Places | None = None) -> Iterator[tuple[Places, Places, Floats]]:
    """Yield, level by level, the change of cost as the place of attachment moves outward, over all spans, in total.

    Each level is (row, place, change): directed link ``cuts[row]``, from the side that moves to the side that is
    walked, is removed, and the moved side is attached at broker ``place`` instead of at the cut. ``change`` is the
    change of the walked side's cost, not per second. ``cuts`` None means all directed links, in order. All levels
    together have each pair of a cut and a broker on its walked side once. Cost O(cuts * brokers * words), memory O(cuts
    * (brokers + words)).
    """
    weights = costs.weighted.weights.sum(axis=1, keepdims=True)
    starts, links_of = costs.links_by_broker()
    tails, heads = costs.directed_ends()
    inventory = costs.inventory
    processing = inventory.processing_cost
    cuts = np.arange(len(costs.side), dtype=np.intp) if cuts is None else cuts
    pairs = _CutPairs.of(costs, cuts)
    crossings = costs.crossings()[cuts // 2]
    row = np.arange(len(cuts), dtype=np.intp)
    last, change = cuts, np.zeros(len(cuts))
    alone = pairs.crossing[pairs.link_row]
    own = row  # Row of ``alone`` of each walk, -1 if that set is empty.
    while len(row):
        yield row, heads[last], change
        parent, last = _extended_walks(last, starts, links_of, heads)
        row, own = row[parent], own[parent]
        alpha = crossings[row] - pairs.counts_behind(costs.side, row, last, weights)
        kept, beta, alone = _narrowed(alone, own, costs, last, weights)
        link_cost = inventory.link_cost[tails[last], heads[last]]
        step = (alpha - beta) * link_cost + alpha * processing[heads[last]] - beta * processing[tails[last]]
        change, own = change[parent] + step, kept


def _extended_walks(last: Places, starts: Places, links_of: Places, heads: Places) -> tuple[Places, Places]:
    """Extend every walk by one link without turning back; return for each new walk its parent and its last link."""
    here = heads[last]
    counts = starts[here + 1] - starts[here]
    parent = np.repeat(np.arange(len(last), dtype=np.intp), counts)
    within = np.arange(len(parent), dtype=np.intp) - np.repeat(np.cumsum(counts) - counts, counts)
    following = links_of[starts[here[parent]] + within]
    onward = following != last[parent] ^ 1
    return parent[onward], following[onward]


@dataclass(frozen=True, eq=False)
class _CutPairs:
    """What crosses each cut link, and how much of it is wanted behind other links, by cut and last link of the walk.

    ``row_of`` (directed links,) is the row of each cut, -1 for links that are not cut; ``link_row`` (cuts,) is the row
    of each cut in ``crossing``.
    """

    cuts: Places
    row_of: Places
    link_row: Places
    crossing: Words
    known: NDArray[np.float32]

    @classmethod
    def of(cls, costs: TreeCosts, cuts: Places) -> _CutPairs:
        row_of = np.full(len(costs.side), -1, dtype=np.intp)
        row_of[cuts] = np.arange(len(cuts))
        links, link_row = np.unique(cuts // 2, return_inverse=True)
        crossing = costs.side[2 * links] & costs.side[2 * links + 1]
        return cls(cuts, row_of, link_row, crossing, np.empty((len(cuts), len(costs.side)), dtype=np.float32))

    def counts_behind(self, side: Words, row: Places, last: Places, weights: NDArray[np.float32]) -> Floats:
        """Return for each walk the number of notifications across its cut that are wanted behind its last link.

        These are wanted at both outer ends of the walk, so the reverse walk has the same number if its cut is also
        examined: only one of the two is counted, and kept in ``known`` for the other.
        """
        cut, back_row = self.cuts[row], self.row_of[last ^ 1]
        is_counted = (back_row < 0) | (cut * len(side) + last < (last ^ 1) * len(side) + (cut ^ 1))
        chosen, others = np.flatnonzero(is_counted), np.flatnonzero(~is_counted)
        counts = np.empty(len(row))
        at_once = _rows_at_once(side)
        for at in range(0, len(chosen), at_once):
            chunk = chosen[at : at + at_once]
            common = self.crossing[self.link_row[row[chunk]]]
            common &= side[last[chunk]]
            counts[chunk] = weighed(common, weights)[:, 0]
        self.known[row[chosen], last[chosen]] = counts[chosen]
        counts[others] = self.known[back_row[others], cut[others] ^ 1]
        return counts


def _rows_at_once(words: Words) -> int:
    return max(WORDS_AT_ONCE // max(int(words.shape[1]), 1), 1)


def _narrowed(
    alone: Words, own: Places, costs: TreeCosts, last: Places, weights: NDArray[np.float32]
) -> tuple[Places, Floats, Words]:
    """Return the row of each walk's narrowed set (-1 if empty), the set's weight, and all sets that are not empty."""
    places, beta = np.full(len(own), -1, dtype=np.intp), np.zeros(len(own))
    parts: list[Words] = []
    living = np.flatnonzero(own >= 0)
    rows, tails = _rows_at_once(alone), costs.directed_ends()[0]
    kept = 0
    for at in range(0, len(living), rows):
        chunk = living[at : at + rows]
        narrowed = alone[own[chunk]]
        narrowed &= costs.side[last[chunk]]
        narrowed &= ~costs.thrice[tails[last[chunk]]]
        weight = weighed(narrowed, weights)[:, 0]
        beta[chunk] = weight
        full = np.flatnonzero(weight)
        places[chunk[full]] = np.arange(kept, kept + len(full))
        kept += len(full)
        parts.append(narrowed[full])
    return places, beta, np.concatenate([np.zeros((0, alone.shape[1]), dtype=np.uint64), *parts])
