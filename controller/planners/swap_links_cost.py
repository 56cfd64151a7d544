"""Swap links of the tree by true cost: ours, in the place of the local estimate of Jaeger07.

In: the state over a horizon. Out: a sequence of proposals, each costed on the tree after the earlier ones, so that any
prefix is worth doing. Whether a gain is worth its price does not belong here.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from controller.kinds.tree.tree_state import TreeContext, TreeState
from controller.state.planner_interface import PlannerSettings, PlannerSpec
from overlay.configuration import Configuration, NotATreeError, link
from overlay.cut_off import tree_cut_off
from overlay.overlay_configuration import Link
from overlay.tree_costs import LinkSwap, TreeCosts
from schemas.plan import Proposal

PLANNER = "swap_links_cost"
TIE_SHARE = 1e-9  # Gains below this share of the cost are rounding of floats.
REUSE_SHARE = 0.5  # A found swap is taken from an older look while it gains this share of what the best then did.
KICK_SWAPS = (2, 4)  # Random swaps of a kick: one is undone at once, many are a random tree.
LINK_WORDS = 10_000  # What a look takes for each link besides its words, in words: it is a few array calls.


@dataclass
class FrailtyPrice:
    """What it counts that the worst single death cuts off more after a swap: ``per_share`` for all deliveries."""

    brokers: tuple[str, ...]
    deliveries_per_s: NDArray[np.float64]
    per_share: float
    _last: tuple[tuple[Link, ...], float] = ((), 0.0)  # The tree that the last swaps were tried on.

    @classmethod
    def of(cls, state: TreeState, weight: float) -> FrailtyPrice | None:
        """Return the price at the traffic of a state; None where nothing counts, or is known of deliveries."""
        if not weight or not state.local_deliveries:
            return None
        return cls(state.inventory.brokers, state.deliveries_per_s, weight * state.tree_costs.cost_per_s)

    def rise_per_s(self, before: tuple[Link, ...], after: Iterable[Link]) -> float:
        """Return what a change of links counts, 0 for one that makes the tree no frailer. O(brokers^2)."""
        if self._last[0] != before:
            self._last = before, self._worst_share(before)
        return self.per_share * max(self._worst_share(after) - self._last[1], 0.0)

    def _worst_share(self, links: Iterable[Link]) -> float:
        return tree_cut_off(Configuration.of(0, self.brokers, links), self.deliveries_per_s).worst_share


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


@dataclass(frozen=True)
class SearchSettings(PlannerSettings):
    """How much is looked at, in 64-bit words of delivery sets.

    ``search_words_max``: bounds the search for swaps in 64-bit words of delivery sets. Default 4e9, some seconds.
    ``escape_words_max``: the same once no single swap helps. Default 3e6, some 30 ms.
    """

    search_words_max: int = 4_000_000_000
    escape_words_max: int = 3_000_000

    def faults(self) -> list[str]:
        """Return what is wrong with the settings, one sentence each."""
        found = super().faults()
        if self.search_words_max < 1:
            found.append(f"search_words_max is {self.search_words_max}: at least 1, or nothing is searched")
        if self.escape_words_max < 0:
            found.append(f"escape_words_max is {self.escape_words_max}: at least 0")
        return found


def swap_links_cost(
    state: TreeState, settings: SearchSettings, context: TreeContext, rng: random.Random
) -> list[Proposal]:
    """Return swaps in the order of a steepest descent on the true cost, under the caps of degree and load.

    Each look prices every swap of the tree at once (:meth:`TreeCosts.walks`) and takes the best for each link that
    could go; they are then made best first, each priced anew before, until what is left is worth a new look. Where no
    single swap helps, random kicks with a descent after each look for a better tree; the whole way to it is then one
    proposal of several links, since no part of it need pay.
    From a gain is taken what it counts that the worst single death cuts off more (``context.frailty_weight``); what
    kicks find is asked for that as a whole.
    Source: the cost is Eq. 1-2 of Jaeger07; the neighbourhood is all link swaps, not those within a horizon.
    Cost O(brokers^2 * words) for a look, about one look for each few swaps. Guarantee: each proposal lowers the true
    cost over the horizon; without one left and the budget not used up, the tree is optimal among all trees one swap
    away, under a cap of load among those that are the best for a link. Deterministic: the budgets are counted in words
    looked at, not in time, and kicks are drawn from ``rng``. Any-time: what was found when a budget ends is returned.
    """
    costs = state.tree_costs.copy()
    degree_max = len(state.inventory.brokers) if context.degree_max is None else context.degree_max
    search = Search(settings.search_words_max, degree_max, state.inventory.load_max_per_s)
    search.frailty = FrailtyPrice.of(state, context.frailty_weight)
    proposals = []
    before_per_s = costs.cost_per_s
    for swap in descend(costs, search, context.proposals_max):
        (a, b), (i, j) = swap.removed, swap.added
        reason = f"of all swaps of the tree, {i}-{j} for {a}-{b} saves most"
        proposals.append(_proposal([swap.removed], [swap.added], before_per_s, costs.cost_per_s, reason))
        before_per_s = costs.cost_per_s
    if len(proposals) < context.proposals_max and not search.is_over:
        search.words_left = settings.escape_words_max
        better = escape(costs, search, rng)
        if better is not None and _is_worth_its_frailty(costs, better, search.frailty):
            removed, added = sorted(set(costs.links) - set(better.links)), sorted(set(better.links) - set(costs.links))
            reason = f"no single swap helps, these {len(added)} together do"
            proposals.append(_proposal(removed, added, before_per_s, better.cost_per_s, reason))
    return proposals


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
    for cut, place, walked in costs.walks():
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


def _is_worth_its_frailty(costs: TreeCosts, better: TreeCosts, frailty: FrailtyPrice | None) -> bool:
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


def _proposal(removed: list[Link], added: list[Link], before_per_s: float, after_per_s: float, why: str) -> Proposal:
    return Proposal(PLANNER, tuple(removed), tuple(added), before_per_s, after_per_s, 0.0, why)


SPEC = PlannerSpec(
    PLANNER,
    Configuration.KIND,
    swap_links_cost,
    SearchSettings,
    summary="links of a tree, by true cost",
    source="ours, on the cost of Jaeger07, Eq. 1-2",
)
