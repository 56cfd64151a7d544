"""The inner loops of :mod:`overlay.tree.tree_costs` and :mod:`overlay.tree.walk_cuts`, compiled by numba.

In: arrays of a tree, its sets and its inventory. Out: the same numbers, bit for bit: counts are integers, which any
order adds up exactly (``WeightedSets.whole_weights``), and costs are added in the order of the numpy code. Importing
this module compiles it, or loads what an earlier process compiled; :mod:`overlay.tree.compiled_costs` does so. A
directed link is a number as in ``TreeCosts``; ``ends`` has shape (links, 2), ``side`` (directed links, words),
``thrice`` (brokers, words), ``crossings`` (links, spans), ``loads`` (brokers, spans). What a bit stands for is in
``weights`` (words, spans) or, unless these are empty, in ``starts``, ``spans`` and ``counts`` (``WholeCounts``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

from regraft.overlay.tree.kept_code import kept_code
from regraft.schemas.arrays import Flags, Floats, Places, Words

Function = TypeVar("Function", bound=Callable[..., Any])
Weights = NDArray[np.uint32]


def _compiled(*arguments: Any) -> Callable[[Function], Function]:
    """Compile a function for these types of arguments now, or when a compiled one calls it; keep it on disk."""

    def compiled(function: Function) -> Function:
        compiler: Any = njit  # Its overloads do not allow for the types of arguments.
        types_of = [[arguments]] if arguments else []
        try:
            with kept_code():
                kept: Function = compiler(*types_of, cache=True)(function)
        except RuntimeError:  # There is no directory that numba can write to: each process compiles.
            kept = compiler(*types_of)(function)
        return kept

    return compiled


def _read(kind: Any, dimensions: int) -> Any:
    """Return the type of an array that is only read."""
    return types.Array(kind, dimensions, "C", readonly=True)


PLACES, LINKS, COSTS = _read(types.intp, 1), _read(types.intp, 2), _read(types.float64, 2)
BITS, WEIGHTS, COUNTS = _read(types.uint64, 2), _read(types.uint32, 2), _read(types.float64, 1)
NO_LINK = -4  # Way out and way back are neither links nor -1.
SIDES, NUMBERS = types.uint64[:, ::1], types.float64[:, ::1]


@_compiled()
def _bits(word: np.uint64) -> np.uint64:
    """Return how many bits of a word are set; the compiler makes one instruction of it."""
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (word * np.uint64(0x0101010101010101)) >> np.uint64(56)


@_compiled()
def _add_up(row: Words, weights: Weights, starts: Places, spans: Places, counts: Floats, onto: Floats) -> None:
    """Add to ``onto`` (spans,) what the bits of a row stand for."""
    if not len(starts):
        for span in range(weights.shape[1]):
            total = np.uint64(0)
            for word in range(len(row)):
                total += _bits(row[word]) * weights[word, span]
            onto[span] += np.float64(total)
        return
    for word in range(len(row)):
        bits = row[word]
        while bits:
            rest = bits & (bits - np.uint64(1))
            bit = 64 * word + np.intp(_bits((bits ^ rest) - np.uint64(1)))
            for entry in range(starts[bit], starts[bit + 1]):
                onto[spans[entry]] += counts[entry]
            bits = rest


@_compiled()
def _or(row: Words, other: Words) -> None:
    """Set the bits of another row as well; loops over whole rows, such as this one, become vector instructions."""
    for word in range(len(row)):
        row[word] |= other[word]


@_compiled()
def _copy(row: Words, other: Words) -> None:
    """Set a row to another one."""
    for word in range(len(row)):
        row[word] = other[word]


@_compiled()
def _and(row: Words, one: Words, other: Words) -> None:
    """Set a row to what two others have in common."""
    for word in range(len(row)):
        row[word] = one[word] & other[word]


@_compiled()
def _narrow(row: Words, alone: Words, wanted: Words, thrice: Words) -> None:
    """Set a row to what of ``alone`` is wanted behind a link, and in at most one other direction before it."""
    for word in range(len(row)):
        row[word] = alone[word] & wanted[word] & ~thrice[word]


@_compiled()
def _weight(row: Words, weights: Words) -> np.uint64:
    """Return how many notifications the bits of a row stand for."""
    total = np.uint64(0)
    for word in range(len(row)):
        total += _bits(row[word]) * weights[word]
    return total


@_compiled()
def _common_weight(row: Words, other: Words, weights: Words) -> np.uint64:
    """Return the same of what two rows have in common."""
    total = np.uint64(0)
    for word in range(len(row)):
        total += _bits(row[word] & other[word]) * weights[word]
    return total


@_compiled()
def _count_direction(once: Words, twice: Words, thrice: Words, wanted: Words) -> None:
    """Add what is wanted in another direction to what is wanted in at least one, two and three."""
    for word in range(len(once)):
        thrice[word] |= twice[word] & wanted[word]
        twice[word] |= once[word] & wanted[word]
        once[word] |= wanted[word]


@_compiled()
def _set_above(above: Words, once: Words, twice: Words, below: Words) -> None:
    """Set what is wanted above a child: below it only if another direction of its parent wants it as well."""
    for word in range(len(above)):
        above[word] = twice[word] | (once[word] & ~below[word])


@_compiled()
def _grouped(ends: Places, brokers: int) -> tuple[Places, Places]:
    """Return where groups start (and the end), and all directed links grouped by the broker they leave."""
    starts = np.zeros(brokers + 1, dtype=np.intp)
    for number in range(len(ends)):
        starts[ends[number, 0] + 1] += 1
        starts[ends[number, 1] + 1] += 1
    for broker in range(brokers):
        starts[broker + 1] += starts[broker]
    placed, links_of = np.zeros(brokers, dtype=np.intp), np.empty(2 * len(ends), dtype=np.intp)
    for number in range(len(ends)):
        for way in range(2):
            tail = ends[number, way]
            links_of[starts[tail] + placed[tail]] = 2 * number + way
            placed[tail] += 1
    return starts, links_of


@_compiled()
def _walk(
    cut: int, ends: Places, starts: Places, links_of: Places, crossing: Words, count: float, side: Words, thrice: Words,
    weights: Words, link_cost: Floats, processing: Floats, onto: Floats, alone: Words, stack: Places,
    changes: Floats, limit: float,
) -> float:  # fmt: skip
    """Set the change of cost of attaching the moved side at each broker behind a cut, and return the least of them.

    See ``walk_cuts``. The change stays infinite at brokers where it is neither below ``limit`` nor the least. Once
    alpha is at least beta, it falls further out by at most what beta notifications cost at the broker reached: alpha
    only grows outward, beta only shrinks, and costs are not negative. ``alone`` (brokers, words) and ``changes``
    (brokers,) have a row for each depth, ``stack`` (brokers, 2) links to walk and their depths. A set that is empty
    stays so, and is marked by ``living`` being below its depth.
    """
    least = 0.0
    for broker in range(len(onto)):
        onto[broker] = np.inf
    onto[ends[cut >> 1, 1 - (cut & 1)]] = 0.0
    _copy(alone[0], crossing)
    changes[0] = 0.0
    stack[0, 0], stack[0, 1], top, living = cut, 0, 1, 0
    while top:
        top -= 1
        last, depth = stack[top, 0], stack[top, 1]
        tail, head = ends[last >> 1, last & 1], ends[last >> 1, 1 - (last & 1)]
        if depth:
            behind, kept = _common_weight(crossing, side[last], weights), np.uint64(0)
            living = min(living, depth - 1)
            if living == depth - 1:
                _narrow(alone[depth], alone[depth - 1], side[last], thrice[tail])
                kept = _weight(alone[depth], weights)
                if kept:
                    living = depth
            alpha, beta = count - np.float64(behind), np.float64(kept)
            step = (alpha - beta) * link_cost[tail, head] + alpha * processing[head] - beta * processing[tail]
            changes[depth] = changes[depth - 1] + step
            onto[head] = changes[depth]
            least = min(least, changes[depth])
            if alpha >= beta and changes[depth] - beta * processing[head] >= max(limit, least):
                continue
        for place in range(starts[head], starts[head + 1]):
            if links_of[place] != last ^ 1:
                stack[top, 0], stack[top, 1] = links_of[place], depth + 1
                top += 1
    return least


@_compiled()
def _best_pair(
    now: float, count: float, onto_a: Floats, onto_b: Floats, link_cost: Floats, behind: Places
) -> tuple[float, int, int]:
    """Return what the best new link of a cut saves in total, and its ends; 0 if none saves anything."""
    least_a = least_b = best = np.inf
    best_i, best_j, width = -1, -1, 0
    for broker in range(len(onto_a)):
        least_a, least_b = min(least_a, onto_a[broker]), min(least_b, onto_b[broker])
    for j in range(len(onto_b)):
        if onto_b[j] < now - least_a:
            behind[width] = j
            width += 1
    for i in range(len(onto_a)):
        # Link costs are not negative: skip what is more expensive even before the new link.
        if onto_a[i] < now - least_b:
            for place in range(width):
                j = behind[place]
                after = link_cost[i, j] * count + onto_a[i] + onto_b[j]
                if after < best:
                    best, best_i, best_j = after, i, j
    return (now - best if best_i >= 0 else 0.0), best_i, best_j


@_compiled(LINKS, PLACES, BITS, BITS, WEIGHTS, COSTS, COSTS, _read(types.float64, 1), _read(types.boolean, 1))
def best_links(
    ends: Places, numbers: Places, side: Words, thrice: Words, weights: Weights, crossings: Floats, link_cost: Floats,
    processing: Floats, is_full: Flags,
) -> tuple[Floats, Places]:  # fmt: skip
    """Return for each of these links what the best link in its place saves in total, and that one's ends.

    Shapes (numbers,) and (numbers, 2); 0 where none saves anything. Brokers that are full get no further link. Cost
    O(numbers * brokers * words), memory O(brokers * words).
    """
    brokers, length = len(processing), side.shape[1]
    starts, links_of = _grouped(ends, brokers)
    whole = np.zeros(length, dtype=np.uint64)
    for word in range(length):
        for span in range(weights.shape[1]):
            whole[word] += weights[word, span]
    alone, crossing = np.empty((brokers, length), dtype=np.uint64), np.empty(length, dtype=np.uint64)
    onto_a, onto_b, changes = np.empty(brokers), np.empty(brokers), np.empty(brokers)
    stack, behind = np.empty((brokers, 2), dtype=np.intp), np.empty(brokers, dtype=np.intp)
    saved, added = np.zeros(len(numbers)), np.zeros((len(numbers), 2), dtype=np.intp)
    for row in range(len(numbers)):
        number = numbers[row]
        a, b, count = ends[number, 0], ends[number, 1], 0.0
        for span in range(crossings.shape[1]):
            count += crossings[number, span]
        _and(crossing, side[2 * number], side[2 * number + 1])
        now, limit = link_cost[a, b] * count, -np.inf
        for way in (1, 0, 1):  # The first time only for the least change, which bounds what helps on the other side.
            cut, onto, end = 2 * number + way, (onto_a if way else onto_b), (a if way else b)
            limit = now - _walk(
                cut, ends, starts, links_of, crossing, count, side, thrice, whole, link_cost, processing, onto, alone,
                stack, changes, limit,
            )  # fmt: skip
            for broker in range(brokers):
                if is_full[broker] and broker != end:
                    onto[broker] = np.inf
        saved[row], added[row, 0], added[row, 1] = _best_pair(now, count, onto_a, onto_b, link_cost, behind)
    return saved, added


@_compiled(LINKS, types.intp, PLACES, types.intp, BITS, WEIGHTS, PLACES, PLACES, COUNTS, BITS, BITS, COSTS, COSTS)
def count_steps(
    ends: Places, number: int, outward: Places, near: int, words: Words, weights: Weights, starts: Places,
    spans: Places, counts: Floats, side: Words, thrice: Words, loads: Floats, crossings: Floats,
) -> tuple[Floats, Floats]:  # fmt: skip
    """Return alpha and beta of each step of both walks outward from a cut link, shape (steps, spans).

    ``outward`` (steps,) are the directed links of both walks, the first ``near`` of them those of the first one.
    """
    length, width = side.shape[1], crossings.shape[1]
    alpha, beta = np.empty((len(outward), width)), np.zeros((len(outward), width))
    behind = np.empty(width)
    crossing, beyond, alone = np.empty((3, length), dtype=np.uint64)
    _and(crossing, side[2 * number], side[2 * number + 1])
    for step in range(len(outward)):
        last, before = outward[step], crossing if step == 0 or step == near else alone
        behind[:] = 0.0
        _and(beyond, crossing, side[last])
        _add_up(beyond, weights, starts, spans, counts, behind)
        _narrow(alone, before, side[last], thrice[ends[last >> 1, last & 1]])
        _add_up(alone, weights, starts, spans, counts, beta[step])
        for span in range(width):
            alpha[step, span] = crossings[number, span] - behind[span]
    return alpha, beta


@_compiled()
def _count_directions(own: Words, outward: Places, side: Words, once: Words, twice: Words, thrice: Words) -> None:
    """Set what at least one, two and three directions of a broker want, ``own`` being what it wants itself."""
    for word in range(len(own)):
        once[word], twice[word], thrice[word] = own[word], 0, 0
    for number in outward:
        _count_direction(once, twice, thrice, side[number])


@_compiled(LINKS, PLACES, PLACES, BITS, WEIGHTS, PLACES, PLACES, COUNTS, SIDES, SIDES, NUMBERS, NUMBERS)
def fill_tree(
    ends: Places, order: Places, parents: Places, words: Words, weights: Weights, starts: Places, spans: Places,
    counts: Floats, side: Words, thrice: Words, loads: Floats, crossings: Floats,
) -> None:  # fmt: skip
    """Compute everything from what brokers want, in place; ``side``, ``loads`` and ``crossings`` are to be 0.

    ``order`` (brokers,) has the root first and each parent before its children. Cost O(brokers * words).
    """
    begins, links_of = _grouped(ends, len(words))
    down, root = np.full(len(words), NO_LINK, dtype=np.intp), order[0]  # From each broker's parent to it.
    for number in range(len(ends)):
        for way in range(2):
            head = ends[number, 1 - way]
            if head != root and parents[head] == ends[number, way]:
                down[head] = 2 * number + way
    for place in range(len(order) - 1, 0, -1):
        broker = order[place]
        _or(side[down[broker]], words[broker])
        if parents[broker] != root:
            _or(side[down[parents[broker]]], side[down[broker]])
    once, twice = np.empty((2, words.shape[1]), dtype=np.uint64)
    for broker in order:
        outward, above = links_of[begins[broker] : begins[broker + 1]], down[broker] ^ 1
        _count_directions(words[broker], outward, side, once, twice, thrice[broker])
        for number in outward:
            if number != above:
                _set_above(side[number ^ 1], once, twice, side[number])
        _or(twice, words[broker])
        _add_up(twice, weights, starts, spans, counts, loads[broker])
    for number in range(len(ends)):
        _and(once, side[2 * number], side[2 * number + 1])
        _add_up(once, weights, starts, spans, counts, crossings[number])


@_compiled(LINKS, PLACES, PLACES, BITS, WEIGHTS, PLACES, PLACES, COUNTS, SIDES, SIDES, NUMBERS, NUMBERS)
def update_line(
    ends: Places, line: Places, onward: Places, words: Words, weights: Weights, starts: Places, spans: Places,
    counts: Floats, side: Words, thrice: Words, loads: Floats, crossings: Floats,
) -> None:  # fmt: skip
    """Recompute, in place, everything that changes with the links of a line of brokers, ``onward`` along it."""
    begins, links_of = _grouped(ends, len(words))
    is_on_line = np.zeros(2 * len(ends), dtype=np.bool_)
    for number in onward:
        is_on_line[number] = is_on_line[number ^ 1] = True
    branches = np.empty((len(line), words.shape[1]), dtype=np.uint64)  # Wanted at each broker or off the line.
    before = np.zeros((len(line) + 1, words.shape[1]), dtype=np.uint64)  # Wanted before each broker of the line.
    for place in range(len(line)):
        broker = line[place]
        _copy(branches[place], words[broker])
        for at in range(begins[broker], begins[broker + 1]):
            if not is_on_line[links_of[at]]:
                _or(branches[place], side[links_of[at]])
        _copy(before[place + 1], branches[place])
        _or(before[place + 1], before[place])
    after, both = np.zeros((2, words.shape[1]), dtype=np.uint64)
    for place in range(len(line) - 1, 0, -1):
        number = onward[place - 1]
        _or(after, branches[place])
        _copy(side[number], after)
        _copy(side[number ^ 1], before[place])
        _and(both, after, before[place])
        crossings[number >> 1, :] = 0.0
        _add_up(both, weights, starts, spans, counts, crossings[number >> 1])
    once, twice = np.empty((2, words.shape[1]), dtype=np.uint64)
    for broker in line:
        _count_directions(
            words[broker], links_of[begins[broker] : begins[broker + 1]], side, once, twice, thrice[broker]
        )
        _or(twice, words[broker])
        loads[broker, :] = 0.0
        _add_up(twice, weights, starts, spans, counts, loads[broker])
