"""The cheapest links that join fragments into one tree, under caps on the links of each broker.

In: the cost of each possible link, the fragment of each broker, and how many more links each may have. Out: links.
Where fragments come from and what a link is worth does not belong here.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import count

import numpy as np
from numpy.typing import NDArray

from regraft.schemas.arrays import Floats, Places

Pair = tuple[int, int]

NODES_MAX = 400  # Subproblems per search: at a thousand brokers about a second.


@dataclass(frozen=True)
class JoinedFragments:
    """Links between fragments, by the positions of brokers.

    ``cost_min`` is a lower bound for any choice within the caps; it equals ``cost`` if the links are proven to be
    cheapest. ``exceeded`` maps each broker above its cap to its excess links, which are as few as possible in total.
    """

    links: tuple[Pair, ...]
    cost: float
    cost_min: float
    exceeded: dict[int, int]


def join_fragments(
    link_cost: Floats, fragment_of: NDArray[np.integer], room: NDArray[np.integer], nodes_max: int = NODES_MAX
) -> JoinedFragments:
    """Return the cheapest links that join the fragments into one tree.

    ``link_cost`` (n, n) is symmetric, ``fragment_of`` (n,) numbers each broker's fragment from 0, ``room`` (n,) is how
    many more links a broker may have. If no tree keeps these caps, as few links as possible exceed them. Exact: a
    minimum spanning tree if no cap binds, else branch and bound over the links of a full broker. After ``nodes_max``
    subproblems, returns the best tree found, with the bound proven so far. Cost O(n^2) per subproblem.
    """
    granted = _granted(link_cost, fragment_of, np.maximum(room, 0))
    search = _Search(link_cost, fragment_of, np.maximum(room, 0) + granted)
    links, cost, cost_min = search.run(nodes_max)
    used = Counter(end for pair in links for end in pair)
    over = {end: number - max(int(room[end]), 0) for end, number in sorted(used.items()) if number > max(room[end], 0)}
    return JoinedFragments(links, cost, cost_min, over)


def _granted(link_cost: Floats, fragment_of: NDArray[np.integer], room: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return how many links above its cap each broker is granted: as few as make a tree possible, shape (n,).

    A tree of m fragments has 2 (m - 1) ends of links, at least one in each fragment, and any such choice of ends makes
    a tree. Grants go to the brokers nearest to another fragment.
    """
    fragments = int(fragment_of.max(initial=-1)) + 1
    granted = np.zeros(len(fragment_of), dtype=np.int64)
    if fragments < 2:
        return granted
    outward = np.where(fragment_of[:, None] == fragment_of[None, :], np.inf, link_cost).min(axis=1)
    rooms = np.bincount(fragment_of, weights=room, minlength=fragments)
    for fragment in np.flatnonzero(rooms == 0):
        inside = np.flatnonzero(fragment_of == fragment)
        granted[inside[outward[inside].argmin()]] += 1
    missing = 2 * (fragments - 1) - int(np.maximum(rooms, 1).sum())
    for _ in range(missing):
        granted[int((outward * (1 + granted)).argmin())] += 1  # Spread: a second grant doubles a broker's price.
    return granted


@dataclass(frozen=True)
class _Node:
    """A subproblem: the trees that contain all links of ``taken`` and none of ``left_out``."""

    taken: tuple[Pair, ...] = ()
    left_out: tuple[Pair, ...] = ()


class _Search:
    """Branch and bound: bounds are spanning trees without caps, and branches split on a broker with too many links."""

    def __init__(self, link_cost: Floats, fragment_of: NDArray[np.integer], room: NDArray[np.integer]) -> None:
        usable = np.flatnonzero(room > 0)
        self._names: Places = usable[np.argsort(fragment_of[usable], kind="stable")]
        self._room = room[self._names]
        self._fragments = fragment_of[self._names]
        self._costs = link_cost[np.ix_(self._names, self._names)].astype(np.float64)
        self._costs[self._fragments[:, None] == self._fragments[None, :]] = np.inf
        self._count = int(fragment_of.max(initial=-1)) + 1

    @cached_property
    def _starts(self) -> Places:
        return np.searchsorted(self._fragments, np.arange(self._count + 1)).astype(np.intp)

    def run(self, nodes_max: int) -> tuple[tuple[Pair, ...], float, float]:
        """Return links, their cost, and a lower bound for any choice."""
        if self._count < 2:
            return (), 0.0, 0.0
        order = count()
        heap = [(*self._bound(_Node()), next(order), _Node())]
        best = heap[0][1] if self._overfull(heap[0][1]) is None else self._greedy()
        best_cost = self._cost(best)
        for _ in range(nodes_max):
            if not heap or heap[0][0] >= best_cost:
                break
            cost, links, _, node = heapq.heappop(heap)
            full = self._overfull(links)
            if full is None:
                best, best_cost = links, cost
                break
            for child in self._split(node, links, full):
                bound, tree = self._bound(child)
                if bound < best_cost:
                    heapq.heappush(heap, (bound, tree, next(order), child))
        least = min([best_cost, *(entry[0] for entry in heap[:1])])
        named = sorted((int(self._names[a]), int(self._names[b])) for a, b in best)
        return tuple((min(pair), max(pair)) for pair in named), best_cost, least

    def _split(self, node: _Node, links: Iterable[Pair], full: int) -> list[_Node]:
        """Return subproblems that together cover every tree within the caps: no such tree has all links of ``full``."""
        own = [pair for pair in links if full in pair]
        free = [pair for pair in own if pair not in node.taken]
        held = len(own) - len(free)
        free = free[: int(self._room[full]) + 1 - held]
        return [_Node(node.taken + tuple(free[:at]), (*node.left_out, free[at])) for at in range(len(free))]

    def _bound(self, node: _Node) -> tuple[float, tuple[Pair, ...]]:
        """Return cost and links of a subproblem's cheapest tree, with caps only on brokers that ``taken`` fills."""
        costs = self._costs
        if node.taken or node.left_out:
            costs = costs.copy()
            used = np.bincount([end for pair in node.taken for end in pair], minlength=len(self._room))
            filled = used >= self._room
            costs[filled] = np.inf
            costs[:, filled] = np.inf
            for a, b in node.left_out:
                costs[a, b] = costs[b, a] = np.inf
        at = self._starts[:-1]
        least = np.minimum.reduceat(np.minimum.reduceat(costs, at, axis=0), at, axis=1)
        measured = {}
        for a, b in node.taken:
            fragments = int(self._fragments[a]), int(self._fragments[b])
            least[fragments] = least[fragments[::-1]] = -np.inf
            measured[frozenset(fragments)] = a, b
        pairs = _spanning_tree(least)
        if pairs is None:
            return np.inf, ()
        links = tuple(measured.get(frozenset(pair)) or self._cheapest(costs, *pair) for pair in pairs)
        return self._cost(links), links

    def _cheapest(self, costs: Floats, fragment: int, peer: int) -> Pair:
        rows, columns = (slice(self._starts[one], self._starts[one + 1]) for one in (fragment, peer))
        block = costs[rows, columns]
        row, column = np.unravel_index(int(block.argmin()), block.shape)
        a, b = int(row) + int(rows.start), int(column) + int(columns.start)
        return (a, b) if a < b else (b, a)

    def _overfull(self, links: Iterable[Pair]) -> int | None:
        used = Counter(end for pair in links for end in pair)
        over = [(int(number - self._room[end]), -end) for end, number in used.items() if number > self._room[end]]
        return -max(over)[1] if over else None

    def _cost(self, links: Iterable[Pair]) -> float:
        return float(sum(self._costs[pair] for pair in sorted(links)))

    def _greedy(self) -> tuple[Pair, ...]:
        """Return a tree within the caps, built greedily from the cheapest link that leaves enough ends free.

        Two groups of fragments may be joined only if the new group keeps room or contains all fragments.
        """
        room, group = self._room.astype(np.int64), self._fragments.astype(np.intp)
        costs, links = self._costs.copy(), []
        for rest in range(self._count - 2, -1, -1):
            rooms = np.bincount(group, weights=room, minlength=self._count)
            if rest:  # Joining two groups takes two ends; a group without a free end could never be reached.
                dead_end = rooms[group][:, None] + rooms[group][None, :] <= 2
                usable = np.where(dead_end, np.inf, costs)
            else:
                usable = costs
            a, b = (int(end) for end in np.unravel_index(int(usable.argmin()), usable.shape))
            links.append((min(a, b), max(a, b)))
            room[[a, b]] -= 1
            group[group == group[b]] = group[a]
            same = group == group[a]
            costs[np.ix_(same, same)] = np.inf
            for end in (a, b):
                if room[end] == 0:
                    costs[end] = costs[:, end] = np.inf
        return tuple(links)


def _spanning_tree(least: Floats) -> list[Pair] | None:
    """Return the pairs of a minimum spanning tree of a dense graph, or None if it is not connected. Prim, O(m^2)."""
    size = len(least)
    nearest, parent = least[0].copy(), np.zeros(size, dtype=np.intp)
    outside = np.ones(size, dtype=bool)
    outside[0] = False
    pairs = []
    for _ in range(size - 1):
        place = int(np.where(outside, nearest, np.inf).argmin())
        if not outside[place] or nearest[place] == np.inf:
            return None
        pairs.append((int(parent[place]), place))
        outside[place] = False
        closer = outside & (least[place] < nearest)
        nearest[closer], parent[closer] = least[place][closer], place
    return pairs
