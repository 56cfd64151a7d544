"""Moving all subscribers of a broker to another: priced for all pairs at once as for each pair separately."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regraft.overlay.tree.build_tree import random_tree
from regraft.overlay.tree.group_moves import group_move_changes_per_s
from regraft.overlay.tree.overlay_cost import overlay_cost
from tests.overlay.small_overlays import brokers_named, inventory_of, publishers_of


@given(seed=st.integers(0, 2**32))
@settings(max_examples=60)
def test_each_pair_costs_what_the_moved_sets_cost(seed: int) -> None:
    """Publishers stay; links off the path between the two brokers have the same traffic as before."""
    rng = random.Random(seed)
    brokers = brokers_named(rng.randint(2, 8))
    tree = random_tree(brokers, len(brokers), rng)
    costs = {(a, b): float(rng.randint(1, 20)) for a in brokers for b in brokers if a < b}
    inventory = replace(inventory_of(tree, costs), processing_cost=np.zeros(len(brokers)))
    published = {
        f"p{number}": (rng.choice(brokers), [set(rng.sample(brokers, rng.randint(0, len(brokers)))) for _ in range(9)])
        for number in range(rng.randint(1, 4))
    }
    homes = {name: home for name, (home, _) in published.items()}
    sets = publishers_of(brokers, published, span_s=2.0)
    found = group_move_changes_per_s(tree, inventory, sets, homes)
    before = overlay_cost(tree, inventory, sets).total_per_s
    for row, start in enumerate(brokers):
        for column, end in enumerate(brokers):
            moved = sets.with_subscribers_moved({start: end}, homes) if start != end else sets
            change = overlay_cost(tree, inventory, moved).total_per_s - before
            assert found[row, column] == pytest.approx(change, abs=1e-9)
