"""The trees to compare with: minimum spanning tree and maximum interest tree."""

import numpy as np
import pytest
from hypothesis import given

from regraft.api.overlays import DeliverySets, Inventory
from regraft.api.trees import TreeConfiguration
from regraft_lab.psoop.exact_optimum import all_trees
from regraft_lab.yardsticks.yardstick_trees import maximum_interest_tree, minimum_spanning_tree
from tests.overlay.small_overlays import brokers_named, inventory_of, line_of, overlays, sets_of


def summed(tree: TreeConfiguration, inventory: Inventory, weights: np.ndarray) -> float:
    return sum(float(weights[inventory.index[a], inventory.index[b]]) for a, b in tree.links)


def test_fig_2_has_one_tree_of_each_kind() -> None:
    """Jaeger07, Fig. 2: the minimum spanning tree is (a), and if B1 wants 9 of 10, the maximum interest tree is (b)."""
    tree_a = TreeConfiguration.of(0, ("B1", "B2", "B3"), [("B1", "B2"), ("B1", "B3")])
    tree_b = TreeConfiguration.of(0, ("B1", "B2", "B3"), [("B1", "B2"), ("B2", "B3")])
    inventory = inventory_of(tree_b, {("B1", "B2"): 2.0, ("B1", "B3"): 5.0, ("B2", "B3"): 6.0})
    # B3 misses one of the nine, so that B1 shares more with B2 than with B3.
    wanted = [{"B1", "B2"}] + [{"B2", "B3"}] * 2 + [{"B1", "B2", "B3"}] * 8
    interest = sets_of(tree_b.brokers, wanted).interest()
    assert minimum_spanning_tree(inventory) == tree_a
    assert maximum_interest_tree(inventory, interest) == tree_b


@given(overlays(count_max=6))
def test_no_tree_is_lighter_or_has_more_interest(drawn: tuple[Inventory, list[set[str]], DeliverySets]) -> None:
    """Of all trees, none has a smaller sum of link costs, and none a larger sum of common interest."""
    inventory, _, sets = drawn
    interest = sets.interest()
    trees = all_trees(len(inventory.brokers))
    costs = inventory.link_cost[trees.lesser, trees.greater].sum(axis=1)
    shared = interest[trees.lesser, trees.greater].sum(axis=1)
    assert summed(minimum_spanning_tree(inventory), inventory, inventory.link_cost) == pytest.approx(costs.min())
    assert summed(maximum_interest_tree(inventory, interest), inventory, interest) == shared.max()


def test_ties_fall_to_the_first_link_in_broker_order() -> None:
    """If all links cost the same and there is no interest, both trees are the star around the first broker."""
    inventory = inventory_of(line_of(4), {})
    star = tuple(("b00", name) for name in ("b01", "b02", "b03"))
    assert minimum_spanning_tree(inventory).links == star
    assert maximum_interest_tree(inventory, np.zeros((4, 4), dtype=np.int64)).links == star


def test_a_link_that_costs_nothing_is_a_link() -> None:
    """It is used like any other and not treated as missing."""
    inventory = inventory_of(line_of(3), {("b00", "b02"): 0.0, ("b01", "b02"): 0.0})
    free = TreeConfiguration.of(5, brokers_named(3), [("b00", "b02"), ("b01", "b02")])
    assert minimum_spanning_tree(inventory, epoch=5) == free


def test_interest_over_other_brokers_is_refused() -> None:
    """Interest over three brokers makes no tree over four, and the message says what is needed."""
    with pytest.raises(ValueError, match=r"shape \(3, 3\), 4 brokers need \(4, 4\)"):
        maximum_interest_tree(inventory_of(line_of(4), {}), np.zeros((3, 3), dtype=np.int64))
