"""Search of link swaps by true cost: looks at all swaps at once, a descent over them, kicks out of local optima.

In: the costs of a tree, a budget and limits. Out: swaps, made on the costs. What is proposed of it is the planner's
affair.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from controller.planners.steps.price_frailty import FrailtyPrice
from overlay.configuration import NotATreeError, link
from overlay.overlay_configuration import Link
from overlay.tree_costs import LinkSwap, TreeCosts
from overlay.walk_cuts import walk_cuts

TIE_SHARE = 1e-9  # Gains below this share of the cost are rounding of floats.
REUSE_SHARE = 0.5  # A found swap is taken from an older look while it gains this share of what the best then did.
KICK_SWAPS = (2, 4)  # Random swaps of a kick: one is undone at once, many are a random tree.
LINK_WORDS = 10_000  # What a look takes for each link besides its words, in words: it is a few array calls.


@dataclass
class Search:
    """What a search may still look at, and its limits."""

    words_left: int
    degree_max: int
    load_max_per_s: NDArray[np.float64] | None
    look_words: int = 0  # What the last look took: another one is begun only when it can be paid.
    frailty: FrailtyPrice | None = None

    @property
    def is_over(self) -> bool:
        """Tell whether no further look can be paid."""
        return self.words_left < self.look_words or self.words_left <= 0


def descend(costs: TreeCosts, search: Search, swaps_max: int | None = None) -> Iterator[LinkSwap]:
    """Make the best swaps one by one on ``costs``, yielding each after it was made, until none helps."""
    made = 0
    while not search.is_over and (swaps_max is None or made < swaps_max):
        least_per_s = TIE_SHARE * costs.cost_per_s
        queue = [(-gain_per_s, swap) for gain_per_s, swap in best_swaps(costs, search) if gain_per_s > least_per_s]
        if not queue:
            return
        heapq.heapify(queue)
        worth_per_s = max(-REUSE_SHARE * queue[0][0], least_per_s)
        made_before = made
        while queue and (swaps_max is None or made < swaps_max):
            stale, swap = heapq.heappop(queue)
            if made > made_before and -stale <= worth_per_s:
                break
            gain_per_s = _gain_now(costs, search, swap)
            if gain_per_s <= least_per_s:
                continue
            if queue and gain_per_s < -queue[0][0]:  # An earlier swap has taken a part of it: others are better now.
                heapq.heappush(queue, (-gain_per_s, swap))
                continue
            costs.apply(swap)
            made += 1
            yield swap
        if made == made_before:
            return


def best_swaps(costs: TreeCosts, search: Search) -> list[tuple[float, LinkSwap]]:
    """Return for each link of the tree the best swap that removes it, with what it saves per second."""
    inventory = costs.inventory
    count = len(inventory.brokers)
    change = np.full((2 * (count - 1), count), np.inf)
    search.look_words = LINK_WORDS * (count - 1)
    for cut, place, walked in walk_cuts(costs):
        change[cut, place] = walked
        search.look_words += len(cut) * costs.sets.words.shape[1]
    search.words_left -= search.look_words
    full = costs.degrees >= search.degree_max
    crossings = costs.crossings()
    found = []
    for number, (a, b) in enumerate(costs.ends):
        onto_a, onto_b = change[2 * number + 1], change[2 * number]
        side_a, side_b = np.flatnonzero(np.isfinite(onto_a)), np.flatnonzero(np.isfinite(onto_b))
        onto_a, onto_b = (
            np.where(full & (np.arange(count) != end), np.inf, onto) for end, onto in ((a, onto_a), (b, onto_b))
        )
        after = inventory.link_cost[np.ix_(side_a, side_b)] * crossings[number]
        after += onto_a[side_a][:, None]
        after += onto_b[side_b]
        best = int(after.argmin())
        i, j = side_a[best // len(side_b)], side_b[best % len(side_b)]
        gain = inventory.link_cost[a, b] * crossings[number] - after.flat[best]
        if gain > 0:
            names = inventory.brokers
            swap = LinkSwap(costs.link_at(number), link(names[i], names[j]))
            found.append((float(gain / costs.sets.spans_s.sum()), swap))
    return found


def escape(costs: TreeCosts, search: Search, rng: random.Random) -> TreeCosts | None:
    """Return the costs of a better tree that kicks from this one led to, None when none was found in the budget."""
    best = costs
    search = replace(search, frailty=None)  # Of all that is tried only the tree that is found is asked for it.
    while not search.is_over and len(costs.ends) > 2:
        trial = best.copy()
        for _ in range(rng.randint(*KICK_SWAPS)):
            _kick(trial, search, rng)
        for _ in descend(trial, search):
            pass
        if trial.cost_per_s < best.cost_per_s * (1 - TIE_SHARE):
            best = trial
    return None if best is costs else best


def _kick(costs: TreeCosts, search: Search, rng: random.Random) -> None:
    """Make one random swap, unless the pair drawn is joined already or the swap breaks a cap."""
    added: Link = link(*rng.sample(costs.inventory.brokers, 2))
    cycle = costs.cycle(added)
    if added not in cycle:
        swap = LinkSwap(rng.choice(cycle), added)
        if _keeps_caps(costs, search, swap):
            costs.apply(swap)


def _gain_now(costs: TreeCosts, search: Search, swap: LinkSwap) -> float:
    """Return what the swap saves on the tree as it is now, 0 when it cannot be made any more."""
    try:
        gain_per_s = costs.gain_per_s(swap)
    except NotATreeError:
        return 0.0
    if gain_per_s <= 0 or not _keeps_caps(costs, search, swap):
        return 0.0
    if search.frailty is None:
        return gain_per_s
    links = costs.links
    after = [*(pair for pair in links if pair != swap.removed), swap.added]
    return gain_per_s - search.frailty.rise_per_s(links, after)


def is_worth_its_frailty(costs: TreeCosts, better: TreeCosts, frailty: FrailtyPrice | None) -> bool:
    """Tell whether a tree saves more than it counts that it is frailer."""
    if frailty is None:
        return True
    return costs.cost_per_s - better.cost_per_s > frailty.rise_per_s(costs.links, better.links)


def _keeps_caps(costs: TreeCosts, search: Search, swap: LinkSwap) -> bool:
    if costs.degree_after(swap) > search.degree_max:
        return False
    if search.load_max_per_s is None:
        return True
    now = costs.loads_per_s
    # A broker that is above its cap already may not get more; less is welcome.
    return all(
        load <= max(float(search.load_max_per_s[broker]), float(now[broker]))
        for broker, load in costs.loads_after_per_s(swap).items()
    )
