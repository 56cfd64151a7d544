"""Links of a tree that may be exchanged for others, each brought to where it costs least with the traffic there is.

In: a tree, what is wanted where, and which links may go elsewhere. Out: the tree with those links at better places.

Taken away, a link leaves two sides. What both sides want crosses the new link a-b, wherever that is, and has to get to
a on the one side and to b on the other, as if it were published there; all else stays as it is. So what each broker of
a side costs as the end of the link is what one publisher costs at each home (:mod:`overlay.publisher_costs`), and the
cheapest pair of ends is exact.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from overlay.configuration import Configuration, link
from overlay.inventory import Inventory
from overlay.link_sides import HungTree, link_sides
from overlay.overlay_configuration import Link
from overlay.publisher_costs import costs_at_homes
from overlay.weighted_sets import WeightedSets

ROUNDS_MAX = 4  # Rounds over all links; most find nothing more after the second.
GAIN_SHARE_MIN = 1e-9  # A gain below this share is the rounding of floats.

Floats = NDArray[np.float64]


def exchange_joints(
    tree: Configuration,
    inventory: Inventory,
    sets: WeightedSets,
    joints: Collection[Link],
    room: NDArray[np.integer],
    rounds_max: int = ROUNDS_MAX,
) -> tuple[Link, ...]:
    """Return the links that take the place of ``joints``, sorted.

    ``room`` (brokers,) is how many ends of such links each broker may have; one that has more keeps those, and gets no
    other. Each link in turn goes where it costs least while the others stay, until none can be bettered: exact for a
    single link; of several no one alone can be exchanged for a cheaper one. Cost O(brokers * words + brokers^2) a link.
    """
    row = inventory.index
    found = sorted(joints)
    rest = np.asarray(room, dtype=np.int64).copy()
    for pair in found:
        rest[[row[end] for end in pair]] -= 1
    for _ in range(rounds_max):
        changed = False
        for place, pair in enumerate(found):
            rest[[row[end] for end in pair]] += 1
            better = _best_ends(tree, inventory, sets, pair, rest > 0)
            rest[[row[end] for end in better]] -= 1
            if better != pair:
                links = [*(one for one in tree.links if one != pair), better]
                tree, found[place], changed = Configuration.of(tree.epoch, tree.brokers, links), better, True
        if not changed:
            break
    return tuple(sorted(found))


def _best_ends(
    tree: Configuration, inventory: Inventory, sets: WeightedSets, pair: Link, is_open: NDArray[np.bool_]
) -> Link:
    """Return the link that costs least in the place of ``pair``; the same where no other is cheaper."""
    behind = tree.reached_over(set(tree.links) - {pair}, pair[1])
    is_far = np.array([broker in behind for broker in tree.brokers])
    near, far = (np.bitwise_or.reduce(sets.words[side], axis=0) for side in (~is_far, is_far))
    columns = np.flatnonzero(near & far)
    if not len(columns):
        return pair
    crossing = (near & far)[columns]
    count = float(sets.counts_of(crossing[None], columns)[0])
    hung = HungTree.of(tree)
    sides = [
        _end_costs(hung, inventory, sets, columns, np.where(side[:, None], crossing, np.uint64(0)))
        for side in (~is_far, is_far)
    ]
    at = [inventory.index[end] for end in pair]
    here = sides[0][at[0]] + sides[1][at[1]] + count * inventory.link_cost[at[0], at[1]]
    ends = [np.flatnonzero(side & is_open) for side in (~is_far, is_far)]
    if not (len(ends[0]) and len(ends[1])):
        return pair
    costs = sides[0][ends[0]][:, None] + sides[1][ends[1]] + count * inventory.link_cost[np.ix_(*ends)]
    a, b = np.unravel_index(int(costs.argmin()), costs.shape)
    if costs[a, b] >= here - GAIN_SHARE_MIN * abs(here):
        return pair
    return link(tree.brokers[int(ends[0][a])], tree.brokers[int(ends[1][b])])


def _end_costs(
    hung: HungTree, inventory: Inventory, sets: WeightedSets, columns: NDArray[np.intp], mask: NDArray[np.uint64]
) -> Floats:
    """Return what each broker costs as the end of the link, by what the brokers of its own side want of ``mask``."""
    wanted = sets.words[:, columns] & mask
    below, above = (sets.counts_of(words, columns) for words in link_sides(hung, wanted))
    published = sets.counts_of(np.bitwise_or.reduce(mask, axis=0)[None], columns)
    return np.asarray(costs_at_homes(hung, inventory, published, below[None], above[None])[0])
