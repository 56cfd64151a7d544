"""The cost of an overlay and its breakdown."""

import pytest
from hypothesis import given

from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.tree.overlay_cost import link_crossings, overlay_cost
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from tests.overlay.small_overlays import (
    brokers_named,
    cost_by_delivery_trees,
    inventory_of,
    line_of,
    overlays,
    sets_of,
)


@given(overlays())
def test_the_cost_is_that_of_all_delivery_trees(drawn: tuple[Inventory, list[set[str]], DeliverySets]) -> None:
    """Counting bits gives the same cost as adding up each notification's own delivery tree."""
    inventory, wanted, sets = drawn
    expected = cost_by_delivery_trees(inventory.bootstrap, inventory, wanted) / sets.span_s
    assert overlay_cost(inventory.bootstrap, inventory, sets).total_per_s == pytest.approx(expected)


def test_fig_1_delivery_tree() -> None:
    """A notification from B2 to B5 crosses B3 and B4, which do not want it, and no other broker (Jaeger07, Fig. 1)."""
    brokers = tuple(f"B{number}" for number in range(1, 9))
    links = [("B1", "B3"), ("B2", "B3"), ("B3", "B4"), ("B4", "B5"), ("B4", "B6"), ("B6", "B7"), ("B6", "B8")]
    tree = TreeConfiguration.of(0, brokers, links)
    inventory = inventory_of(tree, dict.fromkeys(tree.links, 1.0))
    sets = sets_of(brokers, [{"B2", "B5"}])
    cost = overlay_cost(tree, inventory, sets)
    assert {broker for broker, per_s in cost.brokers_per_s.items() if per_s} == {"B2", "B3", "B4", "B5"}
    assert {pair for pair, per_s in cost.links_per_s.items() if per_s} == {("B2", "B3"), ("B3", "B4"), ("B4", "B5")}


def test_a_notification_wanted_only_at_home_costs_processing_once() -> None:
    """A notification that only its publisher's broker wants costs p there and crosses no link."""
    tree = line_of(3)
    cost = overlay_cost(tree, inventory_of(tree, {}, processing=7.0), sets_of(tree.brokers, [{"b01"}]))
    assert cost.total_per_s == 7.0
    assert sum(cost.link_notifications_per_s.values()) == 0


def test_cost_is_per_second() -> None:
    """The same notifications over twice the span cost half as much per second."""
    tree = line_of(3)
    inventory = inventory_of(tree, {})
    short = overlay_cost(tree, inventory, sets_of(tree.brokers, [{"b00", "b02"}], span_s=1)).total_per_s
    long = overlay_cost(tree, inventory, sets_of(tree.brokers, [{"b00", "b02"}], span_s=2)).total_per_s
    assert short == 2 * long > 0


def test_no_notification_costs_nothing() -> None:
    """An idle overlay costs 0."""
    tree = line_of(3)
    inventory = inventory_of(tree, {})
    empty = DeliverySets.of(tree.brokers, {}, 1.0)
    assert overlay_cost(tree, inventory, empty).total_per_s == 0


def test_crossings_name_the_notifications_that_both_sides_want() -> None:
    """Of two notifications, only the one that is wanted at both ends crosses the links of the line."""
    tree = line_of(3)
    crossing = link_crossings(tree, sets_of(tree.brokers, [{"b00", "b02"}, {"b02"}]))
    assert {pair: int(words[0]) for pair, words in crossing.items()} == {("b00", "b01"): 1, ("b01", "b02"): 1}


def test_cost_over_other_brokers_is_refused() -> None:
    """Delivery sets over brokers other than the tree's raise an error."""
    tree = line_of(3)
    sets = sets_of(brokers_named(4), [{"b00"}])
    with pytest.raises(ValueError, match="same brokers"):
        overlay_cost(tree, inventory_of(tree, {}), sets)
