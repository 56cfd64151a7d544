"""Price every tree of a few brokers, with every home of every publisher: exact where a search may end too early.

In: a tree with its publishers, limits. Out: the best trees and homes. Making them belongs to the searches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from regraft.controller.planners.tree.steps.search_swaps import TIE_SHARE, Search
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import Link, link
from regraft.overlay.tree.overlay_costs import OverlayCosts
from regraft.overlay.tree.swap_sequences import as_swaps
from regraft.overlay.tree.tree_costs import TreeCosts
from regraft.schemas.arrays import Flags, Places, Words

BROKERS_MAX = 6  # 1,296 trees take milliseconds; the 16,807 of seven brokers would take as long as kicks do.
PRICED_MAX = 5_000_000  # Homes of publishers on trees, 40 MB: 640 publishers at six brokers, 8,000 at five.


@dataclass(frozen=True, eq=False)
class EveryTree:
    """Every tree over brokers 0 .. n-1, and where a notification passes that a set of brokers wants, as bits.

    ``ends`` (trees, n - 1, 2); ``degrees`` (trees, n); ``crosses`` (trees, n - 1, 2^n) and ``passes`` (trees, n, 2^n)
    are the links that it crosses and the brokers that it passes.
    """

    ends: Places
    degrees: Places
    crosses: Flags
    passes: Flags


@lru_cache(maxsize=BROKERS_MAX)
def every_tree(count: int) -> EveryTree:
    """Return all n^(n-2) trees over n brokers, at least 2, cached. Source: Pruefer 1918. Memory 2 n 2^n a tree."""
    brokers, sets = np.arange(count), np.arange(1 << count)
    ends, sides = [], []
    for sequence in product(range(count), repeat=count - 2):
        links, behind = _decoded(sequence, count)
        ends.append(links)
        sides.append(behind)
    places, side = np.array(ends, dtype=np.intp), np.array(sides)[:, :, None]
    crosses = ((sets & side) != 0) & ((sets & ~side) != 0)
    is_end = (places[:, :, :, None] == brokers).any(axis=2)  # (trees, links, brokers)
    near = np.matmul(is_end.transpose(0, 2, 1).astype(np.uint8), crosses.astype(np.uint8)) > 0
    wanted = (sets[None, :] >> brokers[:, None]) & 1 == 1
    return EveryTree(places, is_end.sum(axis=1), crosses, near | wanted)


def _decoded(sequence: tuple[int, ...], count: int) -> tuple[list[tuple[int, int]], list[int]]:
    """Return the links of the tree with this Pruefer sequence, and the brokers on one side of each, as bits."""
    left = [1 + sequence.count(broker) for broker in range(count)]
    below = [1 << broker for broker in range(count)]
    links, sides = [], []
    for place in range(count - 1):
        leaf = left.index(1)
        left[leaf] = 0
        parent = sequence[place] if place < count - 2 else left.index(1)
        left[parent] -= 1
        links.append((leaf, parent))
        sides.append(below[leaf])
        below[parent] |= below[leaf]
    return links, sides


def best_tree(costs: TreeCosts, search: Search) -> TreeCosts | None:
    """Return the cheapest tree within the limits, or None if the present one is. For 2 to ``BROKERS_MAX`` brokers.

    The limits are the caps of degree and load and ``links_max``; a broker above a cap may stay there. Frailty does not
    count. Cost O(trees * brokers * 2^brokers). Guarantee: optimal.
    """
    trees = every_tree(len(costs.degrees))
    wanted = np.bitwise_count(_wanted_by(costs.sets.words)) @ costs.weighted.weights.sum(axis=1, dtype=np.float64)
    seconds = float(costs.sets.spans_s.sum())
    prices = _set_prices(trees, costs.inventory) @ wanted / seconds
    allowed = _allowed(trees, costs, search)
    if search.load_max_per_s is not None:
        now = costs.loads_per_s
        loads = trees.passes @ wanted / seconds
        allowed &= (loads <= np.maximum(search.load_max_per_s, now) * (1 + TIE_SHARE)).all(axis=1)
    prices[~allowed] = np.inf
    best = int(prices.argmin())
    if prices[best] >= costs.cost_per_s * (1 - TIE_SHARE):
        return None
    reached = costs.copy()
    _go_to(reached, _links(trees, best, costs.inventory))
    return reached


def may_price_overlays(overlay: OverlayCosts, search: Search) -> bool:
    """Return True if :func:`best_overlays` can be used: few brokers and publishers, and no caps of load."""
    brokers = len(overlay.inventory.brokers)
    if brokers > BROKERS_MAX or search.load_max_per_s is not None:
        return False
    return len(every_tree(brokers).ends) * brokers * len(overlay.homes) <= PRICED_MAX


def best_overlays(
    overlay: OverlayCosts, present: OverlayCosts, search: Search, moves_max: int
) -> Iterator[OverlayCosts]:
    """Yield every tree within the limits with the cheapest homes on it, cheapest first, while cheaper than ``overlay``.

    The limits are the cap of degree, ``links_max``, and ``moves_max`` publishers away from their ``present`` homes.
    Under caps of load publishers would not be independent. Cost O(trees * publishers * brokers * 2^brokers). Guarantee:
    the first is the cheapest of all within the limits.
    """
    inventory, sets = overlay.inventory, overlay.sets
    trees = every_tree(len(inventory.brokers))
    rows = _wanted_by(sets.words)
    own = sets.counts(rows)
    fixed = np.bitwise_count(rows) @ sets.weights.astype(np.float64) - own.sum(axis=0)
    prices = _set_prices(trees, inventory)
    wanted = np.arange(prices.shape[1])
    at_homes = np.stack(
        [prices[:, wanted | 1 << home] @ own.T for home in range(len(inventory.brokers))], axis=2
    )  # (trees, publishers, brokers)
    stay = at_homes[:, np.arange(len(own)), present.homes]
    gains = stay - at_homes.min(axis=2)
    saved = np.sort(gains, axis=1)[:, ::-1][:, :moves_max].sum(axis=1)
    costs_per_s = (prices @ fixed + stay.sum(axis=1) - saved) / sets.span_s
    costs_per_s[~_allowed(trees, present.tree, search)] = np.inf
    for place in np.argsort(costs_per_s, kind="stable").tolist():
        if costs_per_s[place] >= overlay.cost_per_s * (1 - TIE_SHARE):
            return
        moving = np.argsort(-gains[place], kind="stable")[:moves_max]
        moving = moving[gains[place, moving] > TIE_SHARE * overlay.cost_per_s * sets.span_s]
        homes = present.homes.copy()
        homes[moving] = at_homes[place, moving].argmin(axis=1)
        reached = present.copy()
        reached.move({int(one): int(homes[one]) for one in np.flatnonzero(homes != reached.homes)})
        _go_to(reached.tree, _links(trees, place, inventory))
        reached.links_changed()
        yield reached


def _wanted_by(words: Words) -> Words:
    """Return for each set of brokers the bits that exactly these brokers want, shape (2^brokers, words)."""
    rows = np.full((1, words.shape[1]), ~np.uint64(0))
    for wanted in words:
        rows = np.concatenate([rows & ~wanted, rows & wanted])
    return rows


def _set_prices(trees: EveryTree, inventory: Inventory) -> NDArray[np.float64]:
    """Return what a notification costs on each tree by the set of brokers that want it, shape (trees, 2^brokers)."""
    link_cost = inventory.link_cost[trees.ends[:, :, 0], trees.ends[:, :, 1]]
    by_links = np.matmul(link_cost[:, None, :], trees.crosses)[:, 0]
    return np.asarray(by_links + np.matmul(inventory.processing_cost, trees.passes))


def _allowed(trees: EveryTree, present: TreeCosts, search: Search) -> Flags:
    allowed = (trees.degrees <= np.maximum(search.degree_max, present.degrees)).all(axis=1)
    if search.links_max is not None:
        allowed &= search.are_new(present.inventory, trees.ends).sum(axis=1) <= search.links_max
    return np.asarray(allowed)


def _links(trees: EveryTree, place: int, inventory: Inventory) -> set[Link]:
    names = inventory.brokers
    return {link(names[a], names[b]) for a, b in trees.ends[place].tolist()}


def _go_to(costs: TreeCosts, links: set[Link]) -> None:
    now = set(costs.links)
    for swap in as_swaps(costs, sorted(now - links), sorted(links - now)):
        costs.apply(swap)
