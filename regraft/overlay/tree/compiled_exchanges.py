"""Tries that exchange the places of two brokers in a tree, compiled by numba: each gets the links of the other.

In: a tree and prices of :mod:`overlay.tree.compiled_tree`. Out: the change of its cost. Single swaps of links rarely
let another broker of a region relay for it: all links of the present one would have to move, over trees that cost more.
How long is annealed does not belong here.

The effect: the shape of the tree remains, so off the path between the two brokers only the costs of their links differ.
Each link and broker on it gets what is wanted before and after it with the ends exchanged.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from regraft.overlay.sets.weighted_sets import NO_ENTRIES
from regraft.overlay.tree.compiled_kernels import (
    _bits,
    _compiled,
    _copy,
    _count_direction,
    _grouped,
    _or,
    update_line,
)
from regraft.overlay.tree.compiled_tree import (
    MAKE_WORDS,
    TRY_WORDS,
    Cycle,
    Limits,
    Prices,
    Tree,
    _drawn,
    _follow,
    _link_from,
    _root,
)
from regraft.schemas.arrays import Places, Words

NO_PLACES, _, NO_COUNTS = NO_ENTRIES


class Room(NamedTuple):
    """Room for what is counted along a path, by its places: ``onward`` (brokers, words) is wanted there or further.

    ``before`` (words,) is wanted before a place, ``once``, ``twice`` and ``thrice`` (words,) in as many directions.
    """

    onward: Words
    before: Words
    once: Words
    twice: Words
    thrice: Words


@_compiled()
def _comer(path: Places, place: int) -> int:
    """Return the broker at a place of the path once its ends are exchanged."""
    is_inside = 0 < place < len(path) - 1
    return int(path[place] if is_inside else path[len(path) - 1 - place])


@_compiled()
def _is_off(tree: Tree, path: Places, place: int, number: int) -> bool:
    """Return True if a directed link leads from a place of the path off it."""
    peer = tree.ends[number >> 1, 1 - (number & 1)]
    is_back = place > 0 and peer == path[place - 1]
    return not is_back and not (place < len(path) - 1 and peer == path[place + 1])


@_compiled()
def _common(row: Words, other: Words, prices: Prices) -> float:
    """Return how many notifications the bits stand for that two rows have in common."""
    total = np.uint64(0)
    for word in range(len(row)):
        total += _bits(row[word] & other[word]) * prices.weights[word, 0]
    return np.float64(total)


@_compiled()
def _off(
    tree: Tree, prices: Prices, limits: Limits, path: Places, starts: Places, links_of: Places
) -> tuple[float, int]:
    """Return by how much the exchange raises the cost of links off the path, and the number of fresh links."""
    change, fresh = 0.0, 0
    for end in range(2):
        broker, other = path[-end], path[end - 1]
        for at in range(starts[broker], starts[broker + 1]):
            number = links_of[at]
            peer = tree.ends[number >> 1, 1 - (number & 1)]
            if peer != other:
                fresh += int(limits.is_present[broker, peer]) - int(limits.is_present[other, peer])
            if _is_off(tree, path, end * (len(path) - 1), number):
                dearer = prices.link_cost[other, peer] - prices.link_cost[broker, peer]
                change += dearer * tree.crossings[number >> 1, 0]
    return change, fresh


@_compiled()
def _spent_along(tree: Tree, prices: Prices, path: Places) -> float:
    """Return what the links and brokers of the path cost now."""
    spent = 0.0
    for place in range(len(path)):
        spent += tree.loads[path[place], 0] * prices.processing[path[place]]
        if place < len(path) - 1:
            number = _link_from(tree, path[place], path[place + 1]) >> 1
            spent += tree.crossings[number, 0] * prices.link_cost[path[place], path[place + 1]]
    return spent


@_compiled()
def _count_onward(tree: Tree, prices: Prices, room: Room, path: Places, starts: Places, links_of: Places) -> None:
    """Set what is wanted at each place of the path, or further, after the exchange."""
    for place in range(len(path) - 1, -1, -1):
        row, broker = room.onward[place], path[place]
        _copy(row, prices.words[_comer(path, place)])
        if place < len(path) - 1:
            _or(row, room.onward[place + 1])
        for at in range(starts[broker], starts[broker + 1]):
            if _is_off(tree, path, place, links_of[at]):
                _or(row, tree.side[links_of[at]])


@_compiled()
def _load(tree: Tree, prices: Prices, room: Room, path: Places, place: int, starts: Places, links_of: Places) -> float:
    """Return the load of a place of the path after the exchange; ``room.before`` is advanced to the next place."""
    broker, comer = path[place], _comer(path, place)
    for word in range(len(room.once)):
        room.once[word], room.twice[word] = prices.words[comer, word], 0
    for at in range(starts[broker], starts[broker + 1]):
        if _is_off(tree, path, place, links_of[at]):
            _count_direction(room.once, room.twice, room.thrice, tree.side[links_of[at]])
    if place:
        _count_direction(room.once, room.twice, room.thrice, room.before)
    _copy(room.before, room.once)
    if place < len(path) - 1:
        _count_direction(room.once, room.twice, room.thrice, room.onward[place + 1])
    _or(room.twice, prices.words[comer])
    return _common(room.twice, room.twice, prices)


@_compiled()
def _spent_after(
    tree: Tree, prices: Prices, limits: Limits, room: Room, path: Places, starts: Places, links_of: Places, limit: float
) -> float:
    """Return what the links and brokers of the path cost after the exchange; any number above ``limit`` if more.

    Infinite if a broker gets above its cap, or further above it.
    """
    _count_onward(tree, prices, room, path, starts, links_of)
    spent = 0.0
    for place in range(len(path)):
        comer, load = _comer(path, place), _load(tree, prices, room, path, place, starts, links_of)
        if load > tree.loads[comer, 0] and load > limits.loads_max[comer]:
            return np.inf
        spent += load * prices.processing[comer]
        if place < len(path) - 1:
            crossing = _common(room.before, room.onward[place + 1], prices)
            spent += crossing * prices.link_cost[comer, _comer(path, place + 1)]
        if spent > limit:
            break
    return spent


@_compiled()
def _exchange_ends(tree: Tree, first: int, last: int) -> None:
    """Let the links of each of two brokers end at the other one; what is wanted off the path between them stays."""
    for number in range(len(tree.ends)):
        for way in range(2):
            end = tree.ends[number, way]
            if end in (first, last):
                tree.ends[number, way] = last if end == first else first
        a, b = tree.ends[number, 0], tree.ends[number, 1]
        if a > b:
            tree.ends[number, 0], tree.ends[number, 1] = b, a
            for word in range(tree.side.shape[1]):
                ahead, back = tree.side[2 * number, word], tree.side[2 * number + 1, word]
                tree.side[2 * number, word], tree.side[2 * number + 1, word] = back, ahead


@_compiled()
def _exchange(tree: Tree, prices: Prices, limits: Limits, path: Places) -> None:
    """Exchange the places of the first and the last broker of the path, and recompute what changes. O(brokers) more."""
    _exchange_ends(tree, path[0], path[-1])
    path[0], path[-1] = path[-1], path[0]
    _root(tree, limits.is_present)
    onward = np.empty(len(path) - 1, dtype=np.intp)
    for place in range(len(onward)):
        onward[place] = _link_from(tree, path[place], path[place + 1])
    update_line(
        tree.ends, path, onward, prices.words, prices.weights, NO_PLACES, NO_PLACES, NO_COUNTS, tree.side, tree.thrice,
        tree.loads, tree.crossings,
    )  # fmt: skip


@_compiled()
def try_exchange(
    tree: Tree, prices: Prices, limits: Limits, cycle: Cycle, room: Room, state: Words, stamp: int, threshold: float
) -> tuple[float, int]:
    """Try to exchange a random broker and one near it; return like a try of a swap.

    Cost O(brokers + path * degree * words).
    """
    first = _drawn(state, len(tree.above))
    last = limits.nearest[first, _drawn(state, limits.nearest.shape[1])]
    count = _follow(tree, cycle, first, last, stamp)
    are_twins = count <= 3 and tree.degrees[first] == 1 and tree.degrees[last] == 1  # Leaves of one broker.
    if are_twins or max(tree.degrees[first], tree.degrees[last]) > limits.degree_max:
        return 0.0, TRY_WORDS
    path, spent, degrees = cycle.brokers[:count], TRY_WORDS + 2 * len(tree.above), 0
    starts, links_of = _grouped(tree.ends, len(tree.above))
    change, fresh = _off(tree, prices, limits, path, starts, links_of)
    change -= _spent_along(tree, prices, path)
    if change > threshold or tree.fresh[0] + fresh > limits.links_max:
        return 0.0, spent
    for broker in path:
        degrees += tree.degrees[broker]
    words = 2 * degrees * len(room.before)
    change += _spent_after(tree, prices, limits, room, path, starts, links_of, threshold - change)
    if change > threshold:
        return 0.0, spent + words
    _exchange(tree, prices, limits, path)
    return change, spent + (1 + MAKE_WORDS) * words
