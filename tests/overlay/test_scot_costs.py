"""Costs of notifications on a structured cyclic overlay, compared with each notification's own path."""

import random
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest

from regraft.controller.kinds.scot.scot_state import scot_cut_off
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import link
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.scot.scot_costs import ScotCosts, scot_breakdown
from regraft.overlay.sets.delivery_sets import DeliverySets
from tests.overlay.small_overlays import brokers_named, inventory_of, line_of

NAMES = brokers_named(11)
# Three clusters over four regions; b02 has two slots of the last cluster.
OVERLAY = ScotConfiguration(0, (NAMES[0:3], (*NAMES[3:5], "b02"), NAMES[5:8], NAMES[8:11]), ((0, 1), (1, 2), (1, 3)))


def drawn(seed: int) -> tuple[Inventory, DeliverySets, dict[str, str], list[tuple[str, set[str]]]]:
    """Return costs, notifications, homes and each notification's publisher and brokers."""
    draw = random.Random(seed)
    costs = {pair: draw.uniform(1, 20) for pair in OVERLAY.links}
    inventory = replace(inventory_of(line_of(11), costs), bootstrap=OVERLAY)
    homes = {name: draw.choice(NAMES) for name in ("p", "q", "r")}
    published = [(draw.choice(sorted(homes)), set(draw.sample(NAMES, draw.randrange(0, 6)))) for _ in range(60)]
    words, delivered = (np.zeros((11, 3), dtype=np.uint64) for _ in range(2))
    for number, (name, wanted) in enumerate(published):
        column, bit = sorted(homes).index(name), np.uint64(1) << np.uint64(number)
        for broker in wanted:
            delivered[NAMES.index(broker), column] |= bit
        words[NAMES.index(homes[name]), column] |= bit
    columns = tuple((name, 0) for name in sorted(homes))
    return inventory, DeliverySets(NAMES, columns, words | delivered, 4.0, delivered), homes, published


def by_paths(inventory: Inventory, homes: dict[str, str], published: list[tuple[str, set[str]]]) -> float:
    """Return the cost per second of sending each notification along the static paths to all its brokers."""
    total = 0.0
    for name, wanted in published:
        routes = [OVERLAY.static_route(homes[name], broker) for broker in {homes[name], *wanted}]
        links = {link(*pair) for way in routes for pair in pairwise(way)}
        brokers = {broker for way in routes for broker in way}
        total += sum(inventory.cost_of_link(*pair) for pair in links)
        total += sum(float(inventory.processing_cost[inventory.index[broker]]) for broker in brokers)
    return total / 4.0


@pytest.mark.parametrize("seed", range(5))
def test_costs_are_those_of_all_paths(seed: int) -> None:
    """By breakdown and by publisher, at the present homes and at any others."""
    inventory, sets, homes, published = drawn(seed)
    expected = by_paths(inventory, homes, published)
    assert scot_breakdown(OVERLAY.with_homes(homes), inventory, sets).total_per_s == pytest.approx(expected)
    costs = ScotCosts(OVERLAY, inventory, [sets])
    assert costs.at_homes(homes)[0] == pytest.approx(expected)
    elsewhere = {name: random.Random(seed + 100).choice(NAMES) for name in homes}
    assert costs.at_homes(elsewhere)[0] == pytest.approx(by_paths(inventory, elsewhere, published))


@pytest.mark.parametrize("seed", range(3))
def test_a_death_cuts_off_what_passes_the_broker(seed: int) -> None:
    """By each static path; what the broker itself publishes or delivers does not count."""
    draw = random.Random(seed)
    handed = np.array([[draw.choice((0.0, 0.0, draw.random())) for _ in NAMES] for _ in NAMES])
    expected = dict.fromkeys(NAMES, 0.0)
    for home, broker in product(NAMES, NAMES):
        for passed in OVERLAY.static_route(home, broker)[1:-1]:
            expected[passed] += handed[NAMES.index(home), NAMES.index(broker)]
    found = scot_cut_off(OVERLAY, handed)
    assert dict(zip(found.brokers, found.per_s, strict=True)) == pytest.approx(expected)
    assert found.total_per_s == pytest.approx(handed.sum())


def test_a_static_tree_has_exactly_the_links_of_static_paths() -> None:
    """From each home to all brokers."""
    for home in NAMES:
        routes = [OVERLAY.static_route(home, broker) for broker in NAMES]
        used = {link(*pair) for way in routes for pair in pairwise(way)}
        assert used == set(OVERLAY.static_tree(home).links)
