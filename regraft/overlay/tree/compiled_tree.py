"""The tree that an annealing changes, and the paths in it, compiled by numba.

In: a tree as arrays of :mod:`overlay.tree.tree_costs`. Out: parents, degrees, the brokers between two of them, and what
passes each. The arrays are those of :mod:`overlay.tree.compiled_kernels`, with all spans as one: ``weights`` (words,
1), ``crossings`` (links, 1), ``loads`` (brokers, 1). What a try changes does not belong here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from regraft.overlay.tree.compiled_kernels import BITS, COUNTS, LINKS, PLACES, Weights, _compiled, _grouped
from regraft.schemas.arrays import Flags, Floats, Places, Words

TRY_WORDS = 100  # Words that a try costs as much as before anything is counted.
MAKE_WORDS = 4  # Words that a word of a swap that is made costs as much as.


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


@_compiled(LINKS, types.intp, PLACES, PLACES, COUNTS)
def passing_each(ends: Places, brokers: int, sources: Places, targets: Places, counts: Floats) -> Floats:
    """Return how much passes each broker on the way from another one to a third, shape (brokers,).

    ``counts[k]`` go from ``sources[k]`` to ``targets[k]``. Cost O(brokers + pairs * path).
    """
    starts, links_of = _grouped(ends, brokers)
    parents, depths = np.zeros(brokers, dtype=np.intp), np.zeros(brokers, dtype=np.intp)
    order, seen = np.zeros(brokers, dtype=np.intp), 1
    for place in range(brokers):
        broker = order[place]
        for number in links_of[starts[broker] : starts[broker + 1]]:
            peer = ends[number >> 1, 1 - (number & 1)]
            if place == 0 or peer != parents[broker]:
                parents[peer], depths[peer] = broker, depths[broker] + 1
                order[seen] = peer
                seen += 1
    passing = np.zeros(brokers)
    for pair in range(len(counts)):
        here, there = sources[pair], targets[pair]
        while here != there:
            if depths[here] < depths[there]:
                here, there = there, here
            here = parents[here]
            passing[here] += counts[pair]
        if sources[pair] != targets[pair]:  # Both ways up have counted where they met, or one has counted an end.
            passing[here] -= counts[pair]
    return passing


@_compiled(PLACES, PLACES, BITS)
def sides_of(order: Places, parents: Places, words: Words) -> tuple[Words, Words]:
    """Return what is wanted below and above each broker, as :func:`overlay.tree.link_sides.link_sides` does.

    ``order`` (brokers,) has the root first and each parent before its children.
    """
    below, above, once, twice = words.copy(), np.zeros_like(words), words.copy(), np.zeros_like(words)
    for place in range(len(order) - 1, 0, -1):
        broker = order[place]
        parent = parents[broker]  # All that is below this broker is known.
        for word in range(words.shape[1]):
            wanted = below[broker, word]
            below[parent, word] |= wanted
            twice[parent, word] |= once[parent, word] & wanted
            once[parent, word] |= wanted
    for place in range(1, len(order)):
        broker = order[place]
        parent = parents[broker]
        for word in range(words.shape[1]):
            others = twice[parent, word] | (once[parent, word] & ~below[broker, word])
            above[broker, word] = above[parent, word] | others
    return below, above
