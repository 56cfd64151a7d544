"""A cost that no tree and no homes of publishers can be below: how far an overlay is from the best possible at most.

In: an inventory and delivery sets. Out: a bound per second, of the cost of Jaeger07, Eq. 1-2. Overlays that come near
it do not belong here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.delivery_sets import DeliverySets
from regraft.overlay.distinct_sets import Words, merge_sets
from regraft.overlay.inventory import Inventory

SLACK_SHARE = 1e-9  # What sums of floats may be above the true ones.
JOINED_MAX = 30_000  # Brokers joined, over all sets: some 0.2 s. What is not looked at lowers the bound, no more.
WAYS_BROKERS_MAX = 400  # Shortest ways between this many brokers take 0.2 s, between 1,000 some seconds.

Floats = NDArray[np.float64]


def least_cost_per_s(inventory: Inventory, spans: Sequence[DeliverySets], joined_max: int = JOINED_MAX) -> float:
    """Return a lower bound of the cost of any tree over the brokers, with every publisher at any home.

    Each notification is processed where it is delivered. Its links cost
    at least what joins those brokers over any links, and that no less than moats around them, grown at one pace over
    shortest ways until they meet: half the minimum spanning tree of the ways, and half its longest link once more
    (Goemans and Williamson, A general approximation technique for constrained forest problems, 1995). Besides, the
    links of the one tree cost at least the lightest tree of link cost times what both ends want. The larger of the two
    counts. Caps of degree and load would only raise it. Cost O(brokers^3 + sets * delivered^2), both bounded: of more
    than WAYS_BROKERS_MAX brokers ways of several links are bounded by their first and last one, and sets are joined
    until ``joined_max`` brokers were, those of the most deliveries first. Raises ValueError without a span, or where
    what was delivered is not known apart.
    """
    if not spans:
        raise ValueError("no span to bound the cost of: at least one window is needed")
    brokers = len(inventory.brokers)
    parts = [(rows[:, :-1], counts) for _, rows, counts in (span.distinct_delivered for span in spans)]
    sets, counts = merge_sets(parts, brokers)
    members = _members(sets, brokers)
    sizes = members.sum(axis=1, dtype=np.int64)
    processed = float(counts[sizes == 0].sum()) * float(inventory.processing_cost.min())
    processed += float(counts @ (members @ inventory.processing_cost))
    ways, joined = _ways(inventory.link_cost), 0.0
    interest = np.zeros((brokers, brokers))
    order = np.argsort(-counts * sizes, kind="stable")
    for place in order[: np.searchsorted(sizes[order].cumsum(), joined_max, side="right")].tolist():
        wanting, count = np.flatnonzero(members[place]), int(counts[place])
        interest[np.ix_(wanting, wanting)] += count
        links = _spanning(ways[np.ix_(wanting, wanting)])
        joined += count * (sum(links) + max(links, default=0.0)) / 2
    lightest = sum(_spanning(inventory.link_cost * interest))
    return (processed + max(joined, lightest) * (1 - SLACK_SHARE)) / max(sum(span.span_s for span in spans), 1e-9)


def _ways(link_cost: Floats) -> Floats:
    """Return what the shortest way between any two brokers costs at least."""
    ways = link_cost.copy()
    if len(ways) <= WAYS_BROKERS_MAX:
        for broker in range(len(ways)):
            np.minimum(ways, ways[:, broker, None] + ways[broker], out=ways)
        return ways
    np.fill_diagonal(ways, np.inf)
    cheapest = ways.min(axis=1)
    np.minimum(ways, cheapest[:, None] + cheapest, out=ways)
    np.fill_diagonal(ways, 0.0)
    return ways


def _members(sets: Words, brokers: int) -> NDArray[np.uint8]:
    return np.unpackbits(np.ascontiguousarray(sets).view(np.uint8), axis=1, count=brokers, bitorder="little")


def _spanning(weights: Floats) -> list[float]:
    """Return the weights of the links of the lightest tree, by Prim's method; none for fewer than two brokers."""
    if len(weights) < 2:
        return []
    nearest = weights[0].copy()
    is_joined = np.zeros(len(weights), dtype=bool)
    is_joined[0] = True
    links = []
    for _ in range(len(weights) - 1):
        following = int(np.where(is_joined, np.inf, nearest).argmin())
        links.append(float(nearest[following]))
        is_joined[following] = True
        np.minimum(nearest, weights[following], out=nearest)
    return links
