"""Threshold accepting over the links of a tree, compiled by numba: random swaps, worse ones too while it is hot.

In: a tree as arrays of :mod:`overlay.tree.tree_costs`, limits, a budget. Out: the links of the cheapest tree it passed.
The arrays are those of :mod:`overlay.tree.compiled_kernels`, with all spans as one: ``weights`` (words, 1),
``crossings`` (links, 1), ``loads`` (brokers, 1). Source: Dueck and Scheuer, Threshold accepting, J. Comput. Phys. 90
(1990); the price of a swap is that of :mod:`overlay.tree.tree_costs`. Choosing budget and limits does not belong here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from regraft.overlay.sets.weighted_sets import NO_ENTRIES
from regraft.overlay.tree.compiled_kernels import (
    BITS,
    COSTS,
    LINKS,
    WEIGHTS,
    Weights,
    _bits,
    _compiled,
    _grouped,
    _read,
    update_line,
)
from regraft.schemas.arrays import Flags, Floats, Places, Words

TRY_WORDS = 100  # Words that a try costs as much as before anything is counted.
MAKE_WORDS = 4  # Words that a word of a swap that is made costs as much as.
TRIES_AT_ONCE = 64  # Tries between two looks at the budget.
ANY_OF_1000 = 200  # Tries, of 1,000, that join any two brokers instead of one and one of those nearest to it.
COOLING = 3  # Power of the budget's share left by which the threshold falls: few hot tries, many cold ones.

NO_PLACES, _, NO_COUNTS = NO_ENTRIES  # The annealed sets are of one span: words have weights.


class Tree(NamedTuple):
    """A tree, changed in place. ``above`` is each broker's parent, -1 at the root, ``upward`` the directed link there.

    ``fresh`` (1,) counts its links that are not present ones.
    """

    ends: Places
    side: Words
    thrice: Words
    crossings: Floats
    loads: Floats
    above: Places
    upward: Places
    degrees: Places
    fresh: Places


class Prices(NamedTuple):
    """Traffic, and what it costs."""

    words: Words
    weights: Weights
    link_cost: Floats
    processing: Floats


class Limits(NamedTuple):
    """What the tree must keep; ``loads_max`` (brokers,) are totals, of which a broker above its own may keep its load.

    ``nearest`` (brokers, few) are the brokers that a try usually joins to each one.
    """

    nearest: Places
    is_present: Flags
    degree_max: int
    links_max: int
    loads_max: Floats


class Cycle(NamedTuple):
    """The cycle of a try, and room for what is counted along it.

    ``brokers`` are those on it from one end of the new link to the other; ``alpha`` and ``beta`` are by their place.
    ``marks`` (brokers,) says in which try a broker was last seen.
    """

    brokers: Places
    marks: Places
    alpha: Floats
    beta: Floats
    crossing: Words
    alone: Words


@_compiled()
def _drawn(state: Words, below: int) -> int:
    """Return a number from 0 to below ``below`` (splitmix64); ``state`` (1,) is advanced."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    mixed = state[0]
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed = (mixed ^ (mixed >> np.uint64(31))) >> np.uint64(32)
    return int(np.intp((mixed * np.uint64(below)) >> np.uint64(32)))


@_compiled()
def _root(tree: Tree, is_present: Flags) -> None:
    """Fill in what the tree keeps for each broker, rooted at the first one."""
    brokers = len(tree.above)
    starts, links_of = _grouped(tree.ends, brokers)
    order = np.zeros(brokers, dtype=np.intp)
    for broker in range(brokers):
        tree.above[broker] = -2  # Not reached yet.
        tree.degrees[broker] = starts[broker + 1] - starts[broker]
    tree.above[0], width = -1, 1
    for place in range(brokers):
        broker = order[place]
        for at in range(starts[broker], starts[broker + 1]):
            number = links_of[at]
            other = tree.ends[number >> 1, 1 - (number & 1)]
            if tree.above[other] == -2:
                tree.above[other], tree.upward[other] = broker, number ^ 1
                order[width] = other
                width += 1
    tree.fresh[0] = 0
    for number in range(len(tree.ends)):
        if not is_present[tree.ends[number, 0], tree.ends[number, 1]]:
            tree.fresh[0] += 1


@_compiled()
def _follow(tree: Tree, cycle: Cycle, source: int, target: int, stamp: int) -> int:
    """Set the brokers from source to target, and return how many they are."""
    broker = source
    while broker >= 0:
        cycle.marks[broker] = stamp
        broker = tree.above[broker]
    top, behind = target, 0
    while cycle.marks[top] != stamp:
        top, behind = tree.above[top], behind + 1
    broker, count = source, 0
    while broker != top:
        cycle.brokers[count] = broker
        broker, count = tree.above[broker], count + 1
    cycle.brokers[count] = top
    count += 1 + behind
    broker = target
    for place in range(behind):
        cycle.brokers[count - 1 - place] = broker
        broker = tree.above[broker]
    return count


@_compiled()
def _link_from(tree: Tree, tail: int, head: int) -> int:
    """Return the directed link between two neighbours."""
    return int(tree.upward[tail] if tree.above[tail] == head else tree.upward[head] ^ 1)


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
def _exchange(tree: Tree, prices: Prices, cycle: Cycle, count: int, cut: int) -> None:
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
    _exchange(tree, prices, cycle, count, cut)
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

    A swap is made unless it raises the cost by more than a limit, which falls from ``threshold`` to 0 with the budget.
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
    _root(tree, is_present)
    best, saved, cost, taken, state = ends.copy(), 0.0, 0.0, 0, np.array([seed], dtype=np.uint64)
    limit = threshold
    for number in range(tries_max):
        if number % TRIES_AT_ONCE == 0:
            done = max(number / tries_max, taken / words_max)
            if done >= 1.0:
                break
            limit = threshold * (1.0 - done) ** COOLING
        change, spent = _try(tree, prices, limits, cycle, state, number, limit)
        cost, taken = cost + change, taken + spent
        if cost < -saved:
            saved = -cost
            _copy_links(tree.ends, best)
    return best, saved, taken
