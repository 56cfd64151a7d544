"""Links between fragments: optimal for a single link, and never more expensive than the present ones."""

from __future__ import annotations

import itertools
import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import link
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.sets.weighted_sets import WeightedSets
from regraft.overlay.tree.build_tree import bootstrap_tree
from regraft.overlay.tree.exchange_joints import exchange_joints
from regraft.overlay.tree.overlay_cost import overlay_cost
from regraft.overlay.tree.tree_configuration import NotATreeError, TreeConfiguration
from tests.overlay.small_overlays import overlays


def _cost(inventory: Inventory, sets: DeliverySets, links: set[tuple[str, str]]) -> float:
    return overlay_cost(TreeConfiguration.of(0, inventory.brokers, links), inventory, sets).total_per_s


def _tried_all(inventory: Inventory, sets: DeliverySets, kept: set[tuple[str, str]], count: int, cap: int) -> float:
    """Return the least cost of a tree with the kept links and ``count`` others that keep the cap of degree."""
    every = [link(a, b) for a, b in itertools.combinations(inventory.brokers, 2)]
    degree = {broker: sum(broker in pair for pair in kept) for broker in inventory.brokers}
    found = []
    for added in itertools.combinations([pair for pair in every if pair not in kept], count):
        more = {broker: sum(broker in pair for pair in added) for broker in inventory.brokers}
        if any(more[broker] and degree[broker] + more[broker] > cap for broker in more):
            continue
        try:
            found.append(_cost(inventory, sets, kept | set(added)))
        except NotATreeError:
            continue
    return min(found)


@settings(max_examples=60, deadline=None)
@given(overlays(count_max=7), st.integers(1, 2), st.integers(2, 6), st.integers(0, 2**32))
def test_a_single_link_is_placed_at_the_least_cost(
    drawn: tuple[Inventory, list[set[str]], DeliverySets], count: int, cap: int, seed: int
) -> None:
    """Two links cost no more than before and no less than the optimum: no exchange of a single one saves."""
    inventory, _, sets = drawn
    tree = bootstrap_tree(inventory)
    joints = set(random.Random(seed).sample(tree.links, min(count, len(tree.links))))
    kept = set(tree.links) - joints
    cap = max(cap, tree.degree_max)
    room = np.array([cap - sum(broker in pair for pair in kept) for broker in tree.brokers])
    found = set(exchange_joints(tree, inventory, WeightedSets.over_all([sets]), joints, room))
    after = TreeConfiguration.of(0, tree.brokers, kept | found)
    cost, best = _cost(inventory, sets, set(after.links)), _tried_all(inventory, sets, kept, len(joints), cap)
    assert after.degree_max <= cap
    assert cost <= _cost(inventory, sets, set(tree.links)) * (1 + 1e-9)
    assert cost >= best * (1 - 1e-9)
    if len(joints) == 1:
        np.testing.assert_allclose(cost, best)
