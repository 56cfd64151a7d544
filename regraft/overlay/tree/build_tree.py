"""Random and cheap trees under a degree cap, and the cycle that a new link closes."""

import random
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from regraft.overlay.inventory.inventory import Inventory, InventoryError
from regraft.overlay.overlay_configuration import Link, link
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.schemas.arrays import Floats


def bootstrap_tree(inventory: Inventory) -> TreeConfiguration:
    """Return the overlay of epoch 0, for callers that need a tree. Raises InventoryError if it is of another kind."""
    if not isinstance(inventory.bootstrap, TreeConfiguration):
        kind, count = inventory.bootstrap.KIND, len(inventory.brokers)
        raise InventoryError(f"the overlay of {count} brokers is a {kind}, a tree is needed here")
    return inventory.bootstrap


def random_tree(brokers: Sequence[str], degree_max: int, rng: random.Random, epoch: int = 0) -> TreeConfiguration:
    """Return a random tree: brokers join in random order, each at a random broker below the degree cap.

    Raises ValueError if ``degree_max`` is below 2 and there are more than two brokers.
    """
    if degree_max < 2 and len(brokers) > 2:
        raise ValueError(f"degree_max is {degree_max}: a tree over {len(brokers)} brokers needs at least 2")
    order = sorted(brokers)
    rng.shuffle(order)
    degree = dict.fromkeys(order, 0)
    links: list[Link] = []
    for position, broker in enumerate(order[1:], start=1):
        peer = rng.choice([earlier for earlier in order[:position] if degree[earlier] < degree_max])
        degree[peer] += 1
        degree[broker] += 1
        links.append(link(broker, peer))
    return TreeConfiguration.of(epoch, brokers, links)


def cheap_tree(brokers: Sequence[str], link_cost: Floats, degree_max: int) -> TreeConfiguration:
    """Return a tree of epoch 0, each link the cheapest from the tree so far to the rest (Prim), under the cap.

    Ties go to the first broker. Cost O(n^2), with caps at most O(n^3). Guarantee: the least sum of costs if no broker
    reaches the cap, else none. ``degree_max`` is at least 2 for more than two brokers.
    """
    count = len(brokers)
    degree = np.zeros(count, dtype=np.int64)
    inside = np.zeros(count, dtype=bool)
    inside[0] = True
    best, via = link_cost[0].copy(), np.zeros(count, dtype=np.int64)
    links = []
    for _ in range(count - 1):
        broker = int(np.argmin(np.where(inside, np.inf, best)))
        peer = int(via[broker])
        links.append(link(brokers[peer], brokers[broker]))
        inside[broker] = True
        degree[[peer, broker]] += 1
        nearer = link_cost[broker] < best
        if degree[broker] < degree_max:
            best, via = np.where(nearer, link_cost[broker], best), np.where(nearer, broker, via)
        late = np.flatnonzero(~inside & (via == peer))
        if degree[peer] >= degree_max and len(late):  # What would have been linked to it is linked to another.
            open_ = np.flatnonzero(inside & (degree < degree_max))
            nearest = open_[np.argmin(link_cost[np.ix_(late, open_)], axis=1)]
            best[late], via[late] = link_cost[late, nearest], nearest
    return TreeConfiguration.of(0, brokers, links)


def cycle_links(configuration: TreeConfiguration, added: Link) -> tuple[Link, ...]:
    """Return the present links on the cycle that ``added`` would close, from its first end to its second."""
    path = configuration.path(added[0], added[1])
    return tuple(link(a, b) for a, b in pairwise(path))
