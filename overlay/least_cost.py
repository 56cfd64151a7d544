"""A cost that no tree and no homes of publishers can be below: how far an overlay is from the best possible at most.

In: an inventory and delivery sets. Out: a bound per second, of the cost of Jaeger07, Eq. 1-2. Overlays that come near
it do not belong here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from overlay.delivery_sets import DeliverySets
from overlay.distinct_sets import Words, merge_sets
from overlay.inventory import Inventory

SLACK_SHARE = 1e-9  # What sums of floats may be above the true ones.

Floats = NDArray[np.float64]


def least_cost_per_s(inventory: Inventory, spans: Sequence[DeliverySets]) -> float:
    """Return a lower bound of the cost of any tree over the brokers, with every publisher at any home.

    Each notification is processed where it is delivered. Its links cost
    at least what joins those brokers over any links, and that no less than moats around them, grown at one pace over
    shortest ways until they meet: half the minimum spanning tree of the ways, and half its longest link once more
    (Goemans and Williamson, A general approximation technique for constrained forest problems, 1995). Besides, the
    links of the one tree cost at least the lightest tree of link cost times what both ends want. The larger of the two
    counts. Caps of degree and load would only raise it. Cost O(brokers^3 + sets * delivered^2). Raises ValueError
    without a span, or where what was delivered is not known apart.
    """
    from scipy.sparse.csgraph import minimum_spanning_tree, shortest_path  # Half a second to load.

    if not spans:
        raise ValueError("no span to bound the cost of: at least one window is needed")
    brokers = len(inventory.brokers)
    parts = [(rows[:, :-1], counts) for _, rows, counts in (span.distinct_delivered for span in spans)]
    sets, counts = merge_sets(parts, brokers)
    ways = shortest_path(_no_gaps(inventory.link_cost), directed=False)
    interest = np.zeros((brokers, brokers))
    processed, joined = 0.0, 0.0
    for bits, count in zip(_members(sets, brokers), counts.tolist(), strict=True):
        wanting = np.flatnonzero(bits)
        costs = inventory.processing_cost[wanting]
        processed += count * float(costs.sum() if len(wanting) else inventory.processing_cost.min())
        interest[np.ix_(wanting, wanting)] += count
        joined += count * _moats(ways[np.ix_(wanting, wanting)])
    lightest = float(minimum_spanning_tree(_no_gaps(inventory.link_cost * interest)).sum())
    return (processed + max(joined, lightest) * (1 - SLACK_SHARE)) / max(sum(span.span_s for span in spans), 1e-9)


def _no_gaps(costs: Floats) -> Floats:
    """Return costs in which a link that costs nothing is not taken for none."""
    return np.where(costs > 0, costs, np.finfo(np.float64).tiny)


def _members(sets: Words, brokers: int) -> NDArray[np.uint8]:
    return np.unpackbits(np.ascontiguousarray(sets).view(np.uint8), axis=1, count=brokers, bitorder="little")


def _moats(ways: Floats) -> float:
    """Return what joins brokers at least that are so far from each other, shape (brokers, brokers)."""
    if len(ways) < 2:
        return 0.0
    nearest = ways[0].copy()
    is_joined = np.zeros(len(ways), dtype=bool)
    is_joined[0] = True
    links = []
    for _ in range(len(ways) - 1):
        following = int(np.where(is_joined, np.inf, nearest).argmin())
        links.append(float(nearest[following]))
        is_joined[following] = True
        np.minimum(nearest, ways[following], out=nearest)
    return (sum(links) + max(links)) / 2
