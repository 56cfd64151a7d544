"""The tree of cheap links, with which an inventory begins."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.tree.build_tree import cheap_tree
from regraft_lab.yardsticks.yardstick_trees import minimum_spanning_tree
from tests.overlay.small_overlays import brokers_named


@given(st.integers(2, 14), st.integers(2, 5), st.integers(0, 2**32))
def test_cheap_links_make_a_tree_under_the_cap(count: int, degree_max: int, seed: int) -> None:
    """Without a cap it is the minimum spanning tree."""
    costs = np.random.default_rng(seed).random((count, count))
    costs = costs + costs.T
    np.fill_diagonal(costs, 0.0)
    names = brokers_named(count)
    tree = cheap_tree(names, costs, degree_max)
    assert tree.degree_max <= degree_max
    free = cheap_tree(names, costs, count)
    assert free == minimum_spanning_tree(Inventory(names, np.ones(count), costs, count, tree))
