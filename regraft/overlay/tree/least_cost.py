"""A lower bound on the cost of any tree with any homes of publishers, to limit how far an overlay is from optimal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.sets.distinct_sets import merge_sets
from regraft.schemas.arrays import Floats, Words

SLACK_SHARE = 1e-9  # How far sums of floats may be above the true ones.
JOINED_MAX = 30_000  # Brokers joined, over all sets: some 0.2 s. Skipping sets only lowers the bound.
PATHS_BROKERS_MAX = 400  # Shortest paths between this many brokers take 0.2 s, between 1,000 some seconds.


def least_cost_per_s(inventory: Inventory, spans: Sequence[DeliverySets], joined_max: int = JOINED_MAX) -> float:
    """Return a lower bound on the cost of any tree over the brokers, with every publisher at any home.

    Each notification is processed wherever it is delivered. Its links cost at least as much as joining these brokers
    over any links would, and that at least as much as moats around the brokers, grown at equal speed along shortest
    paths until they meet: half the minimum spanning tree over shortest paths plus half its longest link (Goemans and
    Williamson, A general approximation technique for constrained forest problems, 1995). Also, the links of the tree
    cost at least as much as the spanning tree that minimises link cost times the interest of both ends. The larger of
    the two bounds counts. Caps on degree and load would only raise it.

    Cost O(brokers^3 + sets * delivered^2), both bounded: with more than PATHS_BROKERS_MAX brokers, a path of several
    links is bounded by its first and last link, and sets are joined, those with the most deliveries first, until
    ``joined_max`` brokers are. Raises ValueError if there is no span, or ``delivered`` of one is not known.
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
    path_costs, joined = _path_costs(inventory.link_cost), 0.0
    interest = np.zeros((brokers, brokers))
    order = np.argsort(-counts * sizes, kind="stable")
    for place in order[: np.searchsorted(sizes[order].cumsum(), joined_max, side="right")].tolist():
        wanting, count = np.flatnonzero(members[place]), int(counts[place])
        interest[np.ix_(wanting, wanting)] += count
        links = _spanning(path_costs[np.ix_(wanting, wanting)])
        joined += count * (sum(links) + max(links, default=0.0)) / 2
    lightest = sum(_spanning(inventory.link_cost * interest))
    return (processed + max(joined, lightest) * (1 - SLACK_SHARE)) / max(sum(span.span_s for span in spans), 1e-9)


def _path_costs(link_cost: Floats) -> Floats:
    """Return a lower bound on the cost of the shortest path between any two brokers, shape (n, n)."""
    path_costs = link_cost.copy()
    if len(path_costs) <= PATHS_BROKERS_MAX:
        for broker in range(len(path_costs)):
            np.minimum(path_costs, path_costs[:, broker, None] + path_costs[broker], out=path_costs)
        return path_costs
    np.fill_diagonal(path_costs, np.inf)
    cheapest = path_costs.min(axis=1)
    np.minimum(path_costs, cheapest[:, None] + cheapest, out=path_costs)
    np.fill_diagonal(path_costs, 0.0)
    return path_costs


def _members(sets: Words, brokers: int) -> NDArray[np.uint8]:
    return np.unpackbits(np.ascontiguousarray(sets).view(np.uint8), axis=1, count=brokers, bitorder="little")


def _spanning(weights: Floats) -> list[float]:
    """Return the link weights of a minimum spanning tree (Prim); none if there are fewer than two brokers."""
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
