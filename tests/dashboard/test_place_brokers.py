"""Places on the map: the real ones if known, otherwise brokers that are near in delay are near on the page."""

import random
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr

from regraft.dashboard.place_brokers import MAP_HEIGHT, MAP_WIDTH, place_brokers
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.emulator.place_overlay import place_overlay


def test_brokers_near_in_delay_are_near_on_the_map() -> None:
    """For measured hosts, distances on the map correlate well with delays."""
    inventory = place_overlay(60, 8, random.Random(2))
    places = place_brokers(inventory)
    apart = np.linalg.norm(places[:, None] - places[None], axis=2)
    pairs = np.triu_indices(60, 1)
    assert spearmanr(apart[pairs], inventory.link_cost[pairs]).statistic > 0.6


def test_the_same_inventory_has_the_same_map_and_it_fits() -> None:
    """Nothing is random, all places are inside the box, and no two brokers coincide."""
    inventory = place_overlay(200, 8, random.Random(3))
    places = place_brokers(inventory)
    assert np.array_equal(places, place_brokers(inventory))
    assert places.min() >= 0
    assert (places <= np.array([MAP_WIDTH, MAP_HEIGHT]) + 1e-6).all()
    apart = np.linalg.norm(places[:, None] - places[None], axis=2) + np.eye(200) * 1e9
    assert apart.min() > 10


def test_known_positions_are_kept_with_north_up() -> None:
    """If the inventory has positions, the map only scales them."""
    inventory = place_overlay(3, 2, random.Random(1))
    known = replace(inventory, positions=np.array([[0.0, 0.0], [10.0, 0.0], [10.0, 5.0]]))
    assert place_brokers(known).tolist() == [[0, 500], [1000, 500], [1000, 0]]


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_even_the_smallest_overlays_have_places(count: int) -> None:
    """Few brokers, and brokers that all have the same position, are drawn apart."""
    names = tuple(f"b{number}" for number in range(count))
    line = TreeConfiguration.of(0, names, [(names[at], names[at + 1]) for at in range(count - 1)])
    inventory = Inventory(names, np.ones(count), np.zeros((count, count)), count, line)
    places = place_brokers(inventory)
    assert np.isfinite(places).all()
    assert len({tuple(place) for place in places.round(1).tolist()}) == count
