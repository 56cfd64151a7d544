"""Threshold accepting over a tree, compiled by numba: random swaps and exchanges, worse ones too while it is hot.

In: a tree as arrays of :mod:`overlay.tree.tree_costs`, limits, a budget. Out: the links of the cheapest tree it passed.
The arrays are those of :mod:`overlay.tree.compiled_tree`. Source: Dueck and Scheuer, Threshold accepting, J. Comput.
Phys. 90 (1990); the price of a swap is that of :mod:`overlay.tree.tree_costs`, exchanges of brokers are in
:mod:`overlay.tree.compiled_exchanges`. Choosing budget and limits does not belong here.
"""

from __future__ import annotations

import numpy as np
from numba import types

from regraft.overlay.sets.weighted_sets import NO_ENTRIES
from regraft.overlay.tree.compiled_exchanges import Room, try_exchange
from regraft.overlay.tree.compiled_kernels import (
    BITS,
    COSTS,
    LINKS,
    WEIGHTS,
    Weights,
    _bits,
    _compiled,
    _read,
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
from regraft.schemas.arrays import Flags, Floats, Places, Words

TRIES_AT_ONCE = 64  # Tries between two looks at the budget.
ANY_OF_1000 = 200  # Tries, of 1,000, that join any two brokers instead of one and one of those nearest to it.
EXCHANGES_OF_1000 = 200  # Tries, of 1,000, that exchange two brokers near to each other.
COOLING = 3  # Power of the budget's share left by which the threshold falls: few hot tries, many cold ones.

NO_PLACES, _, NO_COUNTS = NO_ENTRIES  # The annealed sets are of one span: words have weights.


@_compiled()
def _walk_cost(tree: Tree, prices: Prices, cycle: Cycle, cut: int, end: int, way: int, crossings: float) -> float:
    """Return by how much attaching at place ``end``, instead of at the cut, raises the cost of that side of the cycle.

    ``way`` is the step from place to place outward from ``cut``.
    """
    change, place, is_living = 0.0, cut, True
    while place != end:
        tail, head = cycle.brokers[place], cycle.brokers[place + way]
        last, is_first = _link_from(tree, tail, head), place == cut
        behind, kept = np.uint64(0), np.uint64(0)
        for word in range(len(cycle.crossing)):
            beyond, weight = cycle.crossing[word] & tree.side[last, word], prices.weights[word, 0]
            behind += _bits(beyond) * weight
            if is_living:
                narrowed = (beyond if is_first else cycle.alone[word] & beyond) & ~tree.thrice[tail, word]
                cycle.alone[word] = narrowed
                kept += _bits(narrowed) * weight
        alpha, beta, is_living = crossings - np.float64(behind), np.float64(kept), bool(kept)
        place += way
        cycle.alpha[place], cycle.beta[place] = alpha, beta
        change += (alpha - beta) * prices.link_cost[tail, head]
        change += alpha * prices.processing[head] - beta * prices.processing[tail]
    return change


@_compiled()
def _change(tree: Tree, prices: Prices, cycle: Cycle, count: int, cut: int) -> float:
    """Return by how much the swap raises the cost that removes the link after place ``cut`` of the cycle."""
    first, last = cycle.brokers[0], cycle.brokers[count - 1]
    a, b = cycle.brokers[cut], cycle.brokers[cut + 1]
    number = _link_from(tree, a, b) >> 1
    crossings = float(tree.crossings[number, 0])
    for word in range(len(cycle.crossing)):
        cycle.crossing[word] = tree.side[2 * number, word] & tree.side[2 * number + 1, word]
    change = float(prices.link_cost[first, last] - prices.link_cost[a, b]) * crossings
    for side in range(2):
        change += _walk_cost(tree, prices, cycle, cut + side, side * (count - 1), 2 * side - 1, crossings)
    return change


@_compiled()
def _keeps_loads(tree: Tree, limits: Limits, cycle: Cycle, count: int, cut: int) -> bool:
    """Return True if no broker on the cycle gets above its cap, or further above it."""
    for place in range(count):
        broker = cycle.brokers[place]
        rise = 0.0
        if place != cut and place != cut + 1:
            rise += cycle.alpha[place]
        if place <= cut and place > 0:
            rise -= cycle.beta[place - 1]
        elif place > cut and place < count - 1:
            rise -= cycle.beta[place + 1]
        if rise > 0 and tree.loads[broker, 0] + rise > limits.loads_max[broker]:
            return False
    return True


@_compiled()
def _make_swap(tree: Tree, prices: Prices, cycle: Cycle, count: int, cut: int) -> None:
    """Make the swap: the link after place ``cut`` becomes that between the cycle's first and last broker."""
    first, last = cycle.brokers[0], cycle.brokers[count - 1]
    a, b = cycle.brokers[cut], cycle.brokers[cut + 1]
    number = _link_from(tree, a, b) >> 1
    is_b_loose = tree.above[b] == a
    loose, above = (last, first) if is_b_loose else (first, last)
    end = b if is_b_loose else a
    tree.ends[number, 0], tree.ends[number, 1] = min(first, last), max(first, last)
    upward = 2 * number + (0 if loose < above else 1)
    while True:  # Turn round the way up of those who lose it.
        former, downward = tree.above[loose], tree.upward[loose] ^ 1
        tree.above[loose], tree.upward[loose] = above, upward
        if loose == end:
            break
        loose, above, upward = former, loose, downward
    tree.degrees[a] -= 1
    tree.degrees[b] -= 1
    tree.degrees[first] += 1
    tree.degrees[last] += 1
    line, onward = np.empty(count, dtype=np.intp), np.empty(count - 1, dtype=np.intp)
    for place in range(count):
        line[place] = cycle.brokers[cut - place if place <= cut else count + cut - place]
    for place in range(count - 1):
        onward[place] = _link_from(tree, line[place], line[place + 1])
    update_line(
        tree.ends, line, onward, prices.words, prices.weights, NO_PLACES, NO_PLACES, NO_COUNTS, tree.side, tree.thrice,
        tree.loads, tree.crossings,
    )  # fmt: skip


@_compiled()
def _copy_links(ends: Places, copied: Places) -> None:
    """Copy the ends of all links, without the checks of shapes that take long to compile."""
    for number in range(len(ends)):
        copied[number, 0], copied[number, 1] = ends[number, 0], ends[number, 1]


@_compiled()
def _try(
    tree: Tree, prices: Prices, limits: Limits, cycle: Cycle, state: Words, stamp: int, threshold: float
) -> tuple[float, int]:
    """Try one random swap; return by how much it raised the cost, 0 if it was not made, and the words it took."""
    first = _drawn(state, len(tree.above))
    if _drawn(state, 1000) < ANY_OF_1000:
        last = _drawn(state, len(tree.above))
    else:
        last = limits.nearest[first, _drawn(state, limits.nearest.shape[1])]
    if first == last or tree.above[first] == last or tree.above[last] == first:
        return 0.0, TRY_WORDS
    count = _follow(tree, cycle, first, last, stamp)
    cut = _drawn(state, count - 1)
    a, b = cycle.brokers[cut], cycle.brokers[cut + 1]
    is_first_full, is_last_full = tree.degrees[first] >= limits.degree_max, tree.degrees[last] >= limits.degree_max
    if (is_first_full and a != first) or (is_last_full and b != last):
        return 0.0, TRY_WORDS
    fresh = int(limits.is_present[a, b]) - int(limits.is_present[first, last])
    if tree.fresh[0] + fresh > limits.links_max:
        return 0.0, TRY_WORDS
    change, words = _change(tree, prices, cycle, count, cut), count * len(cycle.crossing)
    if change > threshold or not _keeps_loads(tree, limits, cycle, count, cut):
        return 0.0, TRY_WORDS + words
    _make_swap(tree, prices, cycle, count, cut)
    tree.fresh[0] += fresh
    return change, TRY_WORDS + (1 + MAKE_WORDS) * words


@_compiled(
    types.intp[:, ::1], types.uint64[:, ::1], types.uint64[:, ::1], types.float64[:, ::1], types.float64[:, ::1],
    BITS, WEIGHTS, COSTS, _read(types.float64, 1),
    LINKS, _read(types.boolean, 2), types.intp, types.intp, _read(types.float64, 1),
    types.uint64, types.float64, types.intp, types.intp,
)  # fmt: skip
def anneal_links(
    ends: Places, side: Words, thrice: Words, crossings: Floats, loads: Floats,
    words: Words, weights: Weights, link_cost: Floats, processing: Floats,
    nearest: Places, is_present: Flags, degree_max: int, links_max: int, loads_max: Floats,
    seed: int, threshold: float, tries_max: int, words_max: int,
) -> tuple[Places, float, int]:  # fmt: skip
    """Return the links of the cheapest tree passed, shape (links, 2), what it saves in total, and the words taken.

    A try is made unless it raises the cost by more than a limit, which falls from ``threshold`` to 0 with the budget.
    The first five arrays are changed in place. Cost O(path * words) for a try, and O(brokers) more for a swap made.
    """
    brokers = len(processing)
    places = np.empty(brokers, dtype=np.intp), np.empty(brokers, dtype=np.intp), np.empty(brokers, dtype=np.intp)
    tree = Tree(ends, side, thrice, crossings, loads, *places, np.zeros(1, dtype=np.intp))
    prices = Prices(words, weights, link_cost, processing)
    limits = Limits(nearest, is_present, degree_max, links_max, loads_max)
    counts, bits = np.empty((2, brokers)), np.empty((2, words.shape[1]), dtype=np.uint64)
    marks = np.full(brokers, -1, dtype=np.intp)
    cycle = Cycle(np.empty(brokers, dtype=np.intp), marks, counts[0], counts[1], bits[0], bits[1])
    rows = np.empty((brokers + 4, words.shape[1]), dtype=np.uint64)
    room = Room(rows[4:], rows[0], rows[1], rows[2], rows[3])
    _root(tree, is_present)
    best, saved, cost, taken, state = ends.copy(), 0.0, 0.0, 0, np.array([seed], dtype=np.uint64)
    limit = threshold
    for number in range(tries_max):
        if number % TRIES_AT_ONCE == 0:
            done = max(number / tries_max, taken / words_max)
            if done >= 1.0:
                break
            limit = threshold * (1.0 - done) ** COOLING
        if _drawn(state, 1000) < EXCHANGES_OF_1000:
            change, spent = try_exchange(tree, prices, limits, cycle, room, state, number, limit)
        else:
            change, spent = _try(tree, prices, limits, cycle, state, number, limit)
        cost, taken = cost + change, taken + spent
        if cost < -saved:
            saved = -cost
            _copy_links(tree.ends, best)
    return best, saved, taken
