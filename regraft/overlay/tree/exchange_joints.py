"""Exchange given links of a tree for others, each where it costs least with the present traffic.

Removing a link leaves two sides. What both sides want crosses the new link a-b, wherever that is, and has to reach a on
one side and b on the other, as if it were published there; everything else is unchanged. So the cost of each broker of
a side as an end of the link is that of one publisher at each home (:mod:`overlay.tree.publisher_costs`), and the
cheapest pair of ends is exact.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import Link, link
from regraft.overlay.sets.weighted_sets import WeightedSets
from regraft.overlay.tree.link_sides import RootedTree, link_sides
from regraft.overlay.tree.publisher_costs import costs_at_homes
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.schemas.arrays import Floats

WORDS_MAX = 50_000_000  # Words of brokers swept over: at a thousand brokers some fifty attempts, which take seconds.
GAIN_SHARE_MIN = 1e-9  # A gain below this share is rounding error.


def exchange_joints(
    tree: TreeConfiguration,
    inventory: Inventory,
    sets: WeightedSets,
    joints: Collection[Link],
    room: NDArray[np.integer],
) -> tuple[Link, ...]:
    """Return the links that replace ``joints``, sorted.

    ``room`` (brokers,) caps the ends of such links at each broker; a broker above its cap keeps its links and gets no
    others. Each link in turn, the most expensive first, is moved to where it costs least while the others stay, until
    none can be improved or ``WORDS_MAX`` words have been swept over. Exact for a single link; among several, no single
    one can be exchanged for a cheaper one, unless the bound was reached. Cost O(brokers * words + brokers^2) per
    attempt.
    """
    row = inventory.index
    joints_sorted = _most_expensive_first(tree, inventory, sets, joints)
    rest = np.asarray(room, dtype=np.int64).copy()
    for pair in joints_sorted:
        rest[[row[end] for end in pair]] -= 1
    settled, place = 0, 0  # Attempts in a row that found nothing.
    for _ in range(max(WORDS_MAX // max(sets.words.size, 1), len(joints_sorted) == 1)):
        if settled == len(joints_sorted):
            break
        pair = joints_sorted[place]
        rest[[row[end] for end in pair]] += 1
        better = _best_ends(tree, inventory, sets, pair, rest > 0)
        rest[[row[end] for end in better]] -= 1
        settled += 1
        if better != pair:
            links = [*(one for one in tree.links if one != pair), better]
            tree, joints_sorted[place], settled = TreeConfiguration.of(tree.epoch, tree.brokers, links), better, 1
        place = (place + 1) % len(joints_sorted)
    return tuple(sorted(joints_sorted))


def _most_expensive_first(
    tree: TreeConfiguration, inventory: Inventory, sets: WeightedSets, joints: Collection[Link]
) -> list[Link]:
    """Return the links sorted by the cost of the traffic across them, the most expensive first."""
    rooted = RootedTree.of(tree)
    below, above = link_sides(rooted, sets.words)
    counts = sets.counts(below & above).sum(axis=-1)
    places = [(inventory.index[a], inventory.index[b]) for a, b in joints]
    costs = {
        pair: float(counts[a if rooted.parents[a] == b else b] * inventory.link_cost[a, b])
        for pair, (a, b) in zip(joints, places, strict=True)
    }
    return sorted(joints, key=lambda pair: (-costs[pair], pair))


def _best_ends(
    tree: TreeConfiguration, inventory: Inventory, sets: WeightedSets, pair: Link, is_open: NDArray[np.bool_]
) -> Link:
    """Return the cheapest link in place of ``pair``, or ``pair`` itself if no other is cheaper."""
    behind = tree.reached_over(set(tree.links) - {pair}, pair[1])
    is_far = np.array([broker in behind for broker in tree.brokers])
    sides = [np.flatnonzero(~is_far), np.flatnonzero(is_far)]
    near, far = (np.bitwise_or.reduce(sets.words[side], axis=0) for side in sides)
    crossing = _Crossing.of(sets, near & far)
    if not crossing.count:
        return pair
    at_end = np.zeros(len(tree.brokers))
    for side in sides:
        at_end[side] = _end_costs(tree, inventory, crossing, side)
    a, b = (inventory.index[end] for end in pair)
    here = at_end[a] + at_end[b] + crossing.count * inventory.link_cost[a, b]
    ends = [side[is_open[side]] for side in sides]
    if not (len(ends[0]) and len(ends[1])):
        return pair
    costs = at_end[ends[0]][:, None] + at_end[ends[1]] + crossing.count * inventory.link_cost[np.ix_(*ends)]
    first, second = np.unravel_index(int(costs.argmin()), costs.shape)
    if costs[first, second] >= here - GAIN_SHARE_MIN * abs(here):
        return pair
    return link(tree.brokers[int(ends[0][first])], tree.brokers[int(ends[1][second])])


@dataclass(frozen=True, eq=False)
class _Crossing:
    """What both sides of a link want: the bits of ``mask`` in the words at ``columns``, ``count`` notifications."""

    sets: WeightedSets
    columns: NDArray[np.intp]
    mask: NDArray[np.uint64]
    count: float

    @classmethod
    def of(cls, sets: WeightedSets, words: NDArray[np.uint64]) -> _Crossing:
        columns = np.flatnonzero(words)
        return cls(sets, columns, words[columns], float(sets.counts_of(words[columns][None], columns)[0]))


def _end_costs(tree: TreeConfiguration, inventory: Inventory, crossing: _Crossing, side: NDArray[np.intp]) -> Floats:
    """Return the cost of each broker of a side as the end of the link, from what the side wants of what crosses it."""
    sets, columns = crossing.sets, crossing.columns
    names = [tree.brokers[place] for place in side]
    inside = set(names)
    part = TreeConfiguration.of(0, names, [pair for pair in tree.links if inside.issuperset(pair)])
    rooted = RootedTree.of(part)
    below, above = (
        sets.counts_of(words, columns)
        for words in link_sides(rooted, sets.words[np.ix_(side, columns)] & crossing.mask)
    )
    processing, link_cost = inventory.processing_cost[side], inventory.link_cost[side, side[rooted.parents]]
    published = np.array([crossing.count])
    return np.asarray(costs_at_homes(rooted, processing, link_cost, published, below[None], above[None])[0])
