"""What is odd about an inventory is found, with the worst case; a plain one has nothing odd."""

from dataclasses import replace

import numpy as np
import pytest

from regraft.inventories import find_oddities as module
from regraft.inventories.find_oddities import find_oddities
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.ring.ring_configuration import RingConfiguration
from tests.overlay.small_overlays import inventory_of, line_of

PLAIN = inventory_of(line_of(3), {("b00", "b01"): 9.0})


def test_nothing_is_odd_about_a_plain_inventory() -> None:
    """Costs that differ, no detour that pays, a cap above the overlay's links."""
    assert find_oddities(PLAIN) == []


def test_a_link_that_a_detour_undercuts_is_named() -> None:
    """The worst one, with the detour."""
    odd = inventory_of(line_of(4), {("b00", "b03"): 100.0, ("b00", "b02"): 3.0, ("b02", "b03"): 4.0})
    assert find_oddities(odd) == [
        "a detour over one broker costs at least 10% less for 1 link of 6: most so for b00-b03, 100 directly and 7 "
        "over b02"
    ]


def test_free_links_are_named() -> None:
    """A cost of 0 between two brokers is rarely meant."""
    assert find_oddities(inventory_of(line_of(3), {("b01", "b02"): 0.0})) == ["the cost is 0 for 1 link: b01-b02"]


def test_equal_costs_are_placeholders() -> None:
    """The setting that lets plans wait for measurements is named."""
    [odd] = find_oddities(inventory_of(line_of(3), {}))
    assert odd.startswith("all links cost 10: if these are placeholders, set controller.links.estimate_unmeasured")


def test_brokers_above_the_cap_are_named() -> None:
    """The initial overlay may have more links than the cap allows; no plan adds to them."""
    [odd] = find_oddities(replace(PLAIN, degree_max=1))
    assert odd.startswith("degree_max is 1, but the initial overlay has up to 2 links at a broker: b01 get no further")


def test_brokers_without_agents_among_others_are_named() -> None:
    """They share topics."""
    assert find_oddities(replace(PLAIN, agent_of={"b01": "west"})) == [
        "2 of 3 brokers have no agent and share topics: b00, b02"
    ]


def test_nodes_run_on_no_ring() -> None:
    """Clients that stay are those of nodes."""
    ring = RingConfiguration.hashed(0, 32, ["b1", "b2", "b3"])
    costs = np.array([[0.0, 1, 2], [1, 0, 3], [2, 3, 0]])
    assert find_oddities(Inventory(ring.brokers, np.ones(3), costs, 2, ring, clients_stay=True)) == [
        "clients_stay is true on a ring: nodes are brokers of a tree or of a structured cyclic overlay (scot)"
    ]


def test_a_cost_to_itself_is_noted() -> None:
    """It is not used."""
    costs = PLAIN.link_cost.copy()
    costs[1, 1] = 5.0
    assert find_oddities(replace(PLAIN, link_cost=costs)) == ["link_cost of b01 to itself is not 0: it is not used"]


def test_what_takes_too_long_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is named, so that nobody takes silence for a result."""
    monkeypatch.setattr(module, "TRIANGLE_BROKERS_MAX", 2)
    assert find_oddities(PLAIN) == ["detours are not checked: there are 3 brokers, but at most 2 are checked"]
