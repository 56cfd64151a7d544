"""All trees of a small overlay, their costs and the cheapest one."""

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regraft.api.overlays import DeliverySets, Inventory
from regraft.api.trees import TreeConfiguration, overlay_cost
from regraft_lab.psoop.exact_optimum import (
    BROKERS_MAX,
    DegreeError,
    TooManyTreesError,
    all_trees,
    exact_optimum,
    tree_at,
    tree_costs_per_s,
)
from regraft_lab.yardsticks.yardstick_trees import maximum_interest_tree, minimum_spanning_tree
from tests.overlay.small_overlays import brokers_named, inventory_of, line_of, overlays, sets_of

FIG_2_COSTS = {("B1", "B2"): 2.0, ("B1", "B3"): 5.0, ("B2", "B3"): 6.0}
FIG_2A = TreeConfiguration.of(0, ("B1", "B2", "B3"), [("B2", "B1"), ("B1", "B3")])
FIG_2B = TreeConfiguration.of(0, ("B1", "B2", "B3"), [("B1", "B2"), ("B2", "B3")])
FIG_2C = TreeConfiguration.of(0, ("B1", "B2", "B3"), [("B1", "B3"), ("B2", "B3")])

Drawn = tuple[Inventory, list[set[str]], DeliverySets]


@pytest.mark.parametrize("count", range(2, 7))
def test_there_are_n_to_the_n_minus_2_trees(count: int) -> None:
    """Cayley's formula: n^(n-2) trees, each of them once, each with its recorded degrees."""
    names = brokers_named(count)
    trees = [tree_at(names, position) for position in range(len(all_trees(count).side))]
    assert len({tree.links for tree in trees}) == len(trees) == count ** (count - 2)
    assert [tree.degree_max for tree in trees] == all_trees(count).degree_max.tolist()


def test_trees_are_in_the_order_of_their_pruefer_sequences() -> None:
    """The first tree over four brokers is the star around the first, the last the star around the last."""
    names = brokers_named(4)
    assert tree_at(names, 0).neighbours["b00"] == names[1:]
    assert tree_at(names, 15).neighbours["b03"] == names[:3]


@settings(deadline=None)  # The first use of eight brokers creates all their trees.
@given(st.integers(2, BROKERS_MAX), st.integers(0, 2**32))
def test_side_of_a_link_is_what_is_reached_without_it(count: int, seed: int) -> None:
    """The recorded side holds the smaller end and the brokers whose path to the larger end uses that link."""
    trees = all_trees(count)
    position = random.Random(seed).randrange(len(trees.side))
    names = brokers_named(count)
    tree = tree_at(names, position)
    links = zip(trees.lesser[position], trees.greater[position], trees.side[position], strict=True)
    for lesser, greater, side in links:
        hops = tree.next_hops_from(names[lesser])
        near = {names[lesser]} | {broker for broker, hop in hops.items() if hop != names[greater]}
        assert {names[bit] for bit in range(count) if int(side) >> bit & 1} == near


@pytest.mark.parametrize(
    ("wanted", "costs", "optimum"),
    [
        ([{"B2", "B3"}] * 10, {FIG_2A.links: 100, FIG_2B.links: 80, FIG_2C.links: 80}, 80),
        # (c): ten times 1 + 6 + 1 for B2 and B3, nine times 5 + 1 more for B1.
        ([{"B2", "B3"}] + [{"B1", "B2", "B3"}] * 9, {FIG_2A.links: 100, FIG_2B.links: 107, FIG_2C.links: 134}, 100),
    ],
)
def test_fig_2_optimum(wanted: list[set[str]], costs: dict[tuple[tuple[str, str], ...], float], optimum: float) -> None:
    """Jaeger07, Fig. 2: (a) costs 100 and (b) 80 or 107, so (b) is optimal when B1 wants nothing and (a) otherwise."""
    inventory, sets = inventory_of(FIG_2A, FIG_2_COSTS), sets_of(FIG_2A.brokers, wanted)
    priced = tree_costs_per_s(inventory, sets)
    assert {tree_at(FIG_2A.brokers, position).links: priced[position] for position in range(3)} == pytest.approx(costs)
    assert overlay_cost(exact_optimum(inventory, sets), inventory, sets).total_per_s == optimum


@settings(deadline=None)
@given(overlays(count_max=8), st.integers(0, 2**32))
def test_every_tree_costs_the_same_as_by_overlay_cost(drawn: Drawn, seed: int) -> None:
    """A tree's cost counted by cuts equals ``overlay_cost``, and no tree costs less than the optimum."""
    inventory, _, sets = drawn
    costs = tree_costs_per_s(inventory, sets)
    optimum = exact_optimum(inventory, sets)
    least_per_s = overlay_cost(optimum, inventory, sets).total_per_s
    assert least_per_s == pytest.approx(costs.min())
    for position in random.Random(seed).sample(range(len(costs)), min(len(costs), 10)):
        tree = tree_at(inventory.brokers, position)
        assert costs[position] == pytest.approx(overlay_cost(tree, inventory, sets).total_per_s)
    for tree in (
        inventory.bootstrap,
        minimum_spanning_tree(inventory),
        maximum_interest_tree(inventory, sets.interest()),
    ):
        assert overlay_cost(tree, inventory, sets).total_per_s >= least_per_s * (1 - 1e-9)


@given(overlays(count_max=7))
def test_a_cap_on_links_costs_more_or_nothing(drawn: Drawn) -> None:
    """The tighter the cap, the more expensive the optimum under it, which keeps the cap; a cap of n - 1 is none."""
    inventory, _, sets = drawn
    count = len(inventory.brokers)
    optima = [exact_optimum(inventory, sets, cap) for cap in range(2, count)]
    costs = [overlay_cost(tree, inventory, sets).total_per_s for tree in optima]
    assert all(tree.degree_max <= cap for cap, tree in enumerate(optima, start=2))
    assert all(tight >= loose * (1 - 1e-9) for tight, loose in pairwise(costs))
    assert optima[-1] == exact_optimum(inventory, sets)


def test_a_hub_is_best_without_a_cap_and_forbidden_with_one() -> None:
    """Four brokers whose links to b00 cost 1, all others 10: the star costs 7, two links each 1 + 1 + 10 + 4 = 16."""
    inventory = inventory_of(line_of(4), {("b00", name): 1.0 for name in ("b01", "b02", "b03")})
    sets = sets_of(inventory.brokers, [set(inventory.brokers)])
    assert overlay_cost(exact_optimum(inventory, sets), inventory, sets).total_per_s == 7
    assert overlay_cost(exact_optimum(inventory, sets, degree_max=2), inventory, sets).total_per_s == 16


def test_nothing_published_costs_nothing_on_any_tree() -> None:
    """Without a notification every tree costs 0, and one of them is returned."""
    inventory = inventory_of(line_of(4), {})
    empty = DeliverySets.of(inventory.brokers, {}, 1.0)
    assert tree_costs_per_s(inventory, empty).tolist() == [0.0] * 16
    assert exact_optimum(inventory, empty).brokers == inventory.brokers


def test_overlays_too_large_for_all_trees_are_refused() -> None:
    """Nine brokers have 4.8 million trees: the message says how many, what the limit is and what to do instead."""
    inventory = inventory_of(line_of(9), {})
    sets = sets_of(inventory.brokers, [{"b00", "b08"}])
    with pytest.raises(TooManyTreesError, match=r"9 brokers have 4,782,969 trees.*up to 8.*yardstick_trees"):
        exact_optimum(inventory, sets)


def test_a_cap_that_no_tree_keeps_is_refused() -> None:
    """No tree over three brokers has at most one link at each."""
    inventory = inventory_of(line_of(3), {})
    with pytest.raises(DegreeError, match="degree_max is 1: a tree over 3 brokers needs at least 2"):
        exact_optimum(inventory, sets_of(inventory.brokers, [{"b00"}]), degree_max=1)


def test_sets_over_other_brokers_are_refused() -> None:
    """Delivery sets over brokers other than the inventory's raise an error."""
    with pytest.raises(ValueError, match="same brokers"):
        tree_costs_per_s(inventory_of(line_of(3), {}), sets_of(brokers_named(4), [{"b00"}]))
