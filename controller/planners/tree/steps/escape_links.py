"""Leave a local optimum of a tree's links: by annealing them, or by kicks where the loops are not compiled.

In: the costs of a tree that no swap improves, a budget and limits. Out: the costs of a cheaper tree. What a try of the
annealing does is described in :mod:`overlay.tree.compiled_annealing`.
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace

import numpy as np

from regraft.controller.planners.tree.steps.search_swaps import TIE_SHARE, Search, descend, keeps_caps
from regraft.overlay.overlay_configuration import link
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.overlay.tree.tree_costs import LinkSwap, TreeCosts
from regraft.schemas.arrays import Places

# The first threshold, as a share of the mean cost of a link. Of 0.03 to 0.24 the best for 40 and 100 brokers; larger
# trees, of which a budget tries less of each part, end higher the hotter they were.
HEAT_SHARE = 0.24
HEAT_BROKERS = 100  # Above this number of brokers the threshold falls in proportion.
TRIES_PER_PAIR = 300  # Tries for each ordered pair of brokers: a small tree does not need the budget.
DESCENT_PART = 10  # One in this many words of the budget is left for the descent after an annealing.
KICK_SWAPS = (2, 4)  # Random swaps of a kick: a single one is undone at once, many give a random tree.
KICKS_PER_BROKER, KICKS_MIN = 2, 40  # Failed kicks that end the search; with 20 it missed an optimum of six brokers.


def escape(costs: TreeCosts, search: Search, rng: random.Random) -> TreeCosts | None:
    """Return the costs of a cheaper tree that no swap improves, or None if none was found within the budget.

    The caps and the number of links that may differ are kept; frailty is to be checked on the tree returned, as it is
    too expensive for each one tried. Annealing finds more in the same time than kicks, but needs compiled loops.
    """
    search = replace(search, frailty=None)
    if search.is_over or len(costs.ends) < 2:
        return None
    return kicked(costs, search, rng) if costs.kernels is None else anneal(costs, search, rng)


def anneal(costs: TreeCosts, search: Search, rng: random.Random) -> TreeCosts | None:
    """Return the costs of a cheaper tree, one that no swap improves, or None if none was found within the budget.

    The caps and the number of links that may differ from the present ones are kept throughout; frailty is not looked
    at. ``costs`` needs kernels and at least two links. Cost O(path * words) for a try, of which there are as many as
    the budget of words allows, at most ``TRIES_PER_PAIR`` for each pair of brokers. Deterministic for a seed.
    """
    brokers, by_span = len(costs.inventory.brokers), costs.weighted.whole_weights
    length_s = float(costs.sets.spans_s.sum())
    if costs.kernels is None or by_span is None:
        raise ValueError("links are annealed by compiled loops only, and these costs have none")
    caps_per_s = np.full(brokers, np.inf) if search.load_max_per_s is None else search.load_max_per_s
    heat_per_s = HEAT_SHARE * min(1.0, HEAT_BROKERS / brokers) * costs.cost_per_s / len(costs.ends)
    ends, saved, words = costs.kernels.anneal_links(
        *(costs.ends.copy(), costs.side.copy(), costs.thrice.copy()),
        *(costs.crossings()[:, None], costs.loads_per_s[:, None] * length_s),
        *(costs.sets.words, np.ascontiguousarray(by_span.sum(axis=1, dtype=np.uint32)[:, None])),
        *(costs.inventory.link_cost, costs.inventory.processing_cost),
        *(costs.inventory.nearest, search.are_present(costs.inventory), search.degree_max),
        *(sys.maxsize if search.links_max is None else search.links_max, caps_per_s * length_s),
        *(np.uint64(rng.getrandbits(64)), heat_per_s * length_s, TRIES_PER_PAIR * brokers**2),
        search.words_left - search.words_left // DESCENT_PART,
    )
    search.words_left -= words
    if not saved:
        return None
    better = _with_links(costs, ends)
    for _ in descend(better, search):
        pass
    return better if better.cost_per_s < costs.cost_per_s * (1 - TIE_SHARE) else None


def kicked(costs: TreeCosts, search: Search, rng: random.Random) -> TreeCosts | None:
    """Return the costs of a better tree reached by kicks from this one, or None if none was found within the budget.

    After a kick only what it may have changed is evaluated: most of a large tree is unchanged. It ends early after
    twice as many kicks without success as there are brokers, or 40: by then a small tree is explored.
    """
    best, failed = costs, 0
    while not search.is_over and failed < max(KICKS_PER_BROKER * len(costs.degrees), KICKS_MIN):
        trial = best.copy()
        touched = kick(trial, search, rng)
        for _ in descend(trial, search, near=touched):
            pass
        failed += 1
        if trial.cost_per_s < best.cost_per_s * (1 - TIE_SHARE):
            best, failed = trial, 0
    return None if best is costs else best


def kick(costs: TreeCosts, search: Search, rng: random.Random) -> Places:
    """Make some random swaps that keep the caps; return the links whose swaps they may have changed.

    A link is drawn between a broker and one of those nearest to it, because most pairs are too far apart for a good
    tree to join them.
    """
    names = costs.inventory.brokers
    touched: set[int] = set()
    for _ in range(rng.randint(*KICK_SWAPS)):
        broker = rng.randrange(len(names))
        added = link(names[broker], names[rng.choice(costs.inventory.nearest[broker])])
        cycle = costs.cycle(added)
        if added not in cycle:
            swap = LinkSwap(rng.choice(cycle), added)
            if keeps_caps(costs, search, swap) and search.has_room(costs, swap):
                touched.update(costs.apply(swap))
    return np.array(sorted(touched), dtype=np.intp)


def _with_links(costs: TreeCosts, ends: Places) -> TreeCosts:
    """Return the costs of the same brokers and traffic with these links, shape (links, 2)."""
    names = costs.inventory.brokers
    links = [(names[a], names[b]) for a, b in ends.tolist()]
    return TreeCosts(TreeConfiguration.of(0, names, links), costs.inventory, costs.sets)
