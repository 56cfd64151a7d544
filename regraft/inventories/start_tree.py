"""The initial overlay of a new inventory: a tree of cheap links under a cap of links.

In: costs. Out: links. Trees of the demo, which are random so that there is something to improve, are in ``overlay``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def cheap_tree(costs: NDArray[np.float64], degree_max: int) -> list[tuple[int, int]]:
    """Return the links of a tree, each the cheapest from the tree so far to the rest (Prim), none above the cap.

    Ties go to the first broker. Cost O(n^2), with caps at most O(n^3). Guarantee: the least sum of costs if no broker
    reaches the cap, else none. ``degree_max`` is at least 2 for more than two brokers.
    """
    count = len(costs)
    degree = np.zeros(count, dtype=np.int64)
    inside = np.zeros(count, dtype=bool)
    inside[0] = True
    best, via = costs[0].copy(), np.zeros(count, dtype=np.int64)
    links = []
    for _ in range(count - 1):
        broker = int(np.argmin(np.where(inside, np.inf, best)))
        peer = int(via[broker])
        links.append((peer, broker))
        inside[broker] = True
        degree[[peer, broker]] += 1
        nearer = costs[broker] < best
        if degree[broker] < degree_max:
            best, via = np.where(nearer, costs[broker], best), np.where(nearer, broker, via)
        late = np.flatnonzero(~inside & (via == peer))
        if degree[peer] >= degree_max and len(late):  # What would have been linked to it is linked to another.
            open_ = np.flatnonzero(inside & (degree < degree_max))
            nearest = open_[np.argmin(costs[np.ix_(late, open_)], axis=1)]
            best[late], via[late] = costs[late, nearest], nearest
    return links
