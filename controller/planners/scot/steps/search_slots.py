"""Search for the exchanges of slots on a structured cyclic overlay that save most of its cost.

Pure.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from regraft.overlay.scot.scot_slots import Regions
from regraft.overlay.scot.slot_costs import RegionLinks, SlotCosts


@dataclass(frozen=True)
class SlotExchange:
    """An exchange of all slots of two brokers: the regions after it, and the cost before and after."""

    one: str
    other: str
    regions: Regions
    before_per_s: float
    after_per_s: float


@dataclass(frozen=True)
class SlotBudget:
    """The limits of a search: overlays priced, exchanges found, and the least share of the cost that each must save."""

    evaluations_max: int
    exchanges_max: int
    gain_share_min: float


def exchanged(regions: Regions, one: str, other: str) -> Regions:
    """Return the regions after two brokers have exchanged all their slots."""
    names = {one: other, other: one}
    return tuple(tuple(names.get(broker, broker) for broker in region) for region in regions)


def search_places(
    prices: SlotCosts, regions: Regions, links: RegionLinks, budget: SlotBudget, rng: random.Random
) -> Iterator[SlotExchange]:
    """Yield exchanges, each saving its share on the overlay after the earlier ones.

    In each round, pairs of brokers are priced in random order within half of the remaining budget; those that save are
    then made best first, each priced again after the earlier ones. It ends when a round finds nothing or the budget is
    used up. A broker exchanges once, so that each exchange is possible without the others: a refused one blocks no
    others.
    """
    brokers = sorted({broker for region in regions for broker in region})
    now_per_s, evaluations_left, best_per_s = prices.cost_per_s(regions, links), budget.evaluations_max, 0
    while evaluations_left > 1 and best_per_s < budget.exchanges_max:
        pairs = list(combinations(brokers, 2))
        tried = rng.sample(pairs, min(len(pairs), max(evaluations_left // 2, 1)))
        evaluations_left -= len(tried)
        gains = [(now_per_s - prices.cost_per_s(exchanged(regions, *pair), links), pair) for pair in tried]
        before = best_per_s
        for gain, pair in sorted(gains, key=lambda one: (-one[0], one[1])):
            floor_per_s = budget.gain_share_min * now_per_s
            if gain <= floor_per_s or evaluations_left == 0 or best_per_s == budget.exchanges_max:
                break
            if not set(pair) <= set(brokers):
                continue
            after = exchanged(regions, *pair)
            after_per_s, evaluations_left = prices.cost_per_s(after, links), evaluations_left - 1
            if now_per_s - after_per_s > floor_per_s:
                yield SlotExchange(*pair, after, now_per_s, after_per_s)
                regions, now_per_s, best_per_s = after, after_per_s, best_per_s + 1
                brokers = [broker for broker in brokers if broker not in pair]
        if best_per_s == before:
            return
