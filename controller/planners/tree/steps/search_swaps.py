"""Search link swaps by true cost: evaluate all swaps at once, and descend over them.

In: the costs of a tree, a budget and limits. Out: swaps, made on the costs. Leaving a local optimum belongs to
:mod:`controller.planners.tree.steps.escape_links`, proposing swaps to the planner.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from regraft.controller.planners.tree.steps.price_frailty import FrailtyPrice
from regraft.overlay.derived_values import LastResult
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import Link, link
from regraft.overlay.tree.tree_configuration import NotATreeError
from regraft.overlay.tree.tree_costs import LinkSwap, TreeCosts
from regraft.overlay.tree.walk_cuts import walk_cuts
from regraft.schemas.arrays import Flags, Floats, Places

TIE_SHARE = 1e-9  # Gains below this share of the cost are rounding of floats.
REUSE_SHARE = 0.5  # A swap is taken from an older evaluation while it gains this share of the best one's gain then.
LINK_WORDS = 10_000  # Words that the array calls for one link cost as much as.
EVALUATION_WORDS_MIN = 200_000  # Words that the other array calls of an evaluation cost as much as.
EVALUATION_WORDS = 50_000_000  # Of one: all links of some 300 brokers, in larger trees only the most expensive.

_PresentPairs = LastResult[tuple[Inventory, frozenset[Link]], Flags]


@dataclass
class Search:
    """The remaining budget of a search, and its limits.

    ``links_max`` bounds how many links may differ from those of ``present``.
    """

    words_left: int
    degree_max: int
    load_max_per_s: NDArray[np.float64] | None
    frailty: FrailtyPrice | None = None
    present: frozenset[Link] = frozenset()
    links_max: int | None = None
    # What a search looks up with every swap: which pairs are present links.
    _pairs: _PresentPairs = field(default_factory=LastResult, init=False, repr=False, compare=False)

    @property
    def is_over(self) -> bool:
        """Return True if the budget is used up."""
        return self.words_left <= 0

    def may_remove(self, costs: TreeCosts, numbers: Places) -> Places:
        """Return which of these links may be exchanged for any other without exceeding ``links_max``."""
        if self.links_max is None:
            return numbers
        is_new = self.are_new(costs.inventory, costs.ends)
        return numbers if int(is_new.sum()) < self.links_max else numbers[is_new[numbers]]

    def has_room(self, costs: TreeCosts, swap: LinkSwap) -> bool:
        """Return True if a swap stays within ``links_max``."""
        if self.links_max is None:
            return True
        change = (swap.added not in self.present) - (swap.removed not in self.present)
        return int(self.are_new(costs.inventory, costs.ends).sum()) + change <= self.links_max

    def are_new(self, inventory: Inventory, ends: Places) -> Flags:
        """Return which links are not among the present ones, shape (...,); ``ends`` are brokers, shape (..., 2)."""
        return ~self.are_present(inventory)[ends[..., 0], ends[..., 1]]

    def are_present(self, inventory: Inventory) -> Flags:
        """Return which pairs of brokers are links of ``present``, shape (brokers, brokers); not to be changed."""
        present = self.present
        return self._pairs.of((inventory, present), lambda: _present_pairs(inventory, present))


def _present_pairs(inventory: Inventory, present: frozenset[Link]) -> Flags:
    """Return which pairs of brokers are links of ``present``, shape (brokers, brokers)."""
    is_present = np.zeros(inventory.link_cost.shape, dtype=np.bool_)
    pairs = [(inventory.index.get(a), inventory.index.get(b)) for a, b in present]
    for a, b in pairs:
        if a is not None and b is not None:  # A link of a broker that is no longer there is in no tree.
            is_present[a, b] = is_present[b, a] = True
    return is_present


def descend(
    costs: TreeCosts, search: Search, swaps_max: int | None = None, near: Places | None = None
) -> Iterator[LinkSwap]:
    """Make the best swaps one by one on ``costs``, yielding each after it was made, until none helps.

    An evaluation covers all links or, if there are too many, the most expensive of those not evaluated since something
    on their cycle changed. With ``near`` only these links, and those that change with them, are evaluated at all.
    """
    everything = np.arange(len(costs.ends), dtype=np.intp)
    left = everything if near is None else near
    made, is_changed = 0, False
    while len(left) and not search.is_over and (swaps_max is None or made < swaps_max):
        chosen = _most_expensive(costs, left)
        queue = best_swaps(costs, search, chosen)
        stale: set[int] = set(left.tolist()) - set(chosen.tolist())
        for swap, touched in _made(costs, search, queue, stale, None if swaps_max is None else swaps_max - made):
            made, is_changed = made + 1, True
            stale.update(touched)
            yield swap
        left = np.array(sorted(stale), dtype=np.intp)
        if near is None and is_changed and (len(chosen) == len(everything) or not len(left)):
            left, is_changed = everything, False


def _made(
    costs: TreeCosts, search: Search, queue: list[tuple[float, LinkSwap]], stale: set[int], swaps_max: int | None
) -> Iterator[tuple[LinkSwap, list[int]]]:
    """Make the best swaps of one evaluation, each repriced first, until the rest warrants a new evaluation.

    Yields each with the links on its cycle. Links with a good swap that is not made are added to ``stale``.
    """
    least_per_s = TIE_SHARE * costs.cost_per_s
    queue = [one for one in queue if -one[0] > least_per_s]
    heapq.heapify(queue)
    worth_per_s = max(-REUSE_SHARE * queue[0][0], least_per_s) if queue else 0.0
    made = 0
    while queue and (swaps_max is None or made < swaps_max):
        old, swap = heapq.heappop(queue)
        if made and -old <= worth_per_s:
            heapq.heappush(queue, (old, swap))
            break
        gain_per_s = _gain_now(costs, search, swap)
        if gain_per_s <= least_per_s:
            continue
        if queue and gain_per_s < -queue[0][0]:  # An earlier swap has taken part of its gain: others are better now.
            heapq.heappush(queue, (-gain_per_s, swap))
            continue
        touched = costs.apply(swap)
        made += 1
        yield swap, touched
    numbers = (costs.number_of(swap.removed) for _, swap in queue)
    stale.update(number for number in numbers if number is not None)


def _most_expensive(costs: TreeCosts, numbers: Places) -> Places:
    """Return the links of one evaluation: all, or if they are too many those whose notifications cost most."""
    count = max(EVALUATION_WORDS // _words_of_link(costs), 1)
    if len(numbers) <= count:
        return numbers
    ends = costs.ends[numbers]
    spent = costs.inventory.link_cost[ends[:, 0], ends[:, 1]] * costs.crossings()[numbers]
    return numbers[np.argsort(-spent, kind="stable")[:count]]


def _words_of_link(costs: TreeCosts) -> int:
    return LINK_WORDS + len(costs.inventory.brokers) * int(costs.sets.words.shape[1])


def best_swaps(costs: TreeCosts, search: Search, numbers: Places) -> list[tuple[float, LinkSwap]]:
    """Return for each of these links the best swap that removes it, as (negated saving per second, swap)."""
    search.words_left -= EVALUATION_WORDS_MIN + _words_of_link(costs) * len(numbers)
    numbers = search.may_remove(costs, numbers)
    is_full = costs.degrees >= search.degree_max
    saved, added = _best_links(costs, numbers, is_full)
    names, length_s = costs.inventory.brokers, float(costs.sets.spans_s.sum())
    swaps = []
    for row in np.flatnonzero(saved > 0).tolist():
        gain = float(saved[row]) / length_s
        if gain > 0:
            i, j = added[row].tolist()
            swaps.append((-gain, LinkSwap(costs.link_at(numbers[row]), link(names[i], names[j]))))
    return swaps


def _best_links(costs: TreeCosts, numbers: Places, is_full: Flags) -> tuple[Floats, Places]:
    """Return for each of these links what the best link in its place saves in total, and that one's ends.

    Shapes (numbers,) and (numbers, 2); 0 where none saves anything. Brokers that are full get no further link.
    """
    link_cost, processing = costs.inventory.link_cost, costs.inventory.processing_cost
    if costs.kernels is not None:
        tree = costs.side, costs.thrice, costs.weighted.whole_weights, costs.crossings_by_span
        return costs.kernels.best_links(costs.ends, numbers, *tree, link_cost, processing, is_full)
    change = np.full((2 * len(numbers), len(processing)), np.inf)
    for rows, places, walked in walk_cuts(costs, np.stack([2 * numbers, 2 * numbers + 1], axis=1).ravel()):
        change[rows, places] = walked
    full, crossings = np.flatnonzero(is_full), costs.crossings()[numbers]
    saved, added = np.zeros(len(numbers)), np.zeros((len(numbers), 2), dtype=np.intp)
    for row, number in enumerate(numbers.tolist()):
        (a, b), count = costs.ends[number].tolist(), crossings[row]
        onto_a, onto_b = change[2 * row + 1], change[2 * row]
        onto_a[full[full != a]] = np.inf
        onto_b[full[full != b]] = np.inf
        now = link_cost[a, b] * count
        # Link costs are not negative: skip what is more expensive even before the new link.
        side_a, side_b = np.flatnonzero(onto_a < now - onto_b.min()), np.flatnonzero(onto_b < now - onto_a.min())
        if not len(side_a) or not len(side_b):
            continue
        after = link_cost[np.ix_(side_a, side_b)] * count
        after += onto_a[side_a][:, None]
        after += onto_b[side_b]
        best = int(after.argmin())
        saved[row] = now - after.flat[best]
        added[row] = side_a[best // len(side_b)], side_b[best % len(side_b)]
    return saved, added


def _gain_now(costs: TreeCosts, search: Search, swap: LinkSwap) -> float:
    """Return what the swap saves on the present tree, 0 if it can no longer be made."""
    try:
        gain_per_s = costs.gain_per_s(swap)
    except NotATreeError:
        return 0.0
    if gain_per_s <= 0 or not keeps_caps(costs, search, swap):
        return 0.0
    if not search.has_room(costs, swap):
        return 0.0
    if search.frailty is None:
        return gain_per_s
    return gain_per_s - search.frailty.rise_per_s(costs.ends, costs.ends_after(swap))


def is_worth_its_frailty(costs: TreeCosts, better: TreeCosts, frailty: FrailtyPrice | None) -> bool:
    """Return True if a tree saves more than its added frailty costs."""
    if frailty is None:
        return True
    return costs.cost_per_s - better.cost_per_s > frailty.rise_per_s(costs.ends, better.ends)


def keeps_caps(costs: TreeCosts, search: Search, swap: LinkSwap) -> bool:
    """Return True if a swap keeps the caps of degree and load; a broker above its load cap may stay there."""
    if costs.degree_after(swap) > search.degree_max:
        return False
    if search.load_max_per_s is None:
        return True
    now = costs.loads_per_s
    # A broker above its cap may get no more load; less is welcome.
    return all(
        load <= max(float(search.load_max_per_s[broker]), float(now[broker]))
        for broker, load in costs.loads_after_per_s(swap).items()
    )
