"""Costs of overlays with other slots and region links, compared with costing each such overlay as a whole."""

import random

import pytest

from regraft.controller.planners.scot.steps.search_slots import exchanged
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.scot.scot_costs import scot_breakdown
from regraft.overlay.scot.slot_costs import SlotCosts
from regraft.overlay.tree.build_tree import random_tree
from tests.overlay.test_scot_costs import NAMES, OVERLAY, drawn


@pytest.mark.parametrize("seed", range(4))
def test_each_overlay_costs_what_its_breakdown_adds_up_to(seed: int) -> None:
    """After exchanges, one of them of a broker with two slots, and with other links between regions."""
    inventory, sets, homes, _ = drawn(seed)
    draw, regions, links = random.Random(seed), OVERLAY.regions, OVERLAY.region_links
    prices = SlotCosts(inventory, sets, homes)
    for pair in [("b02", "b06"), *(tuple(draw.sample(NAMES, 2)) for _ in range(6))]:
        regions = exchanged(regions, *pair)
        if draw.random() < 0.4:
            drawn_links = random_tree([str(number) for number in range(4)], 3, draw).links
            other = tuple(sorted((int(a), int(b)) for a, b in drawn_links))
            stands_in = next(slots for slots in _slots(regions).values() if len(slots) > 1)
            links = other if tuple(slot for slot, _ in stands_in) in other else links
        overlay = ScotConfiguration(0, regions, links, tuple(sorted(homes.items())))
        expected = scot_breakdown(overlay, inventory, sets).total_per_s
        assert prices.cost_per_s(regions, links) == pytest.approx(expected)


def _slots(regions: tuple[tuple[str, ...], ...]) -> dict[str, list[tuple[int, int]]]:
    return ScotConfiguration(0, regions, OVERLAY.region_links).slots


def test_a_publisher_without_a_home_costs_nothing() -> None:
    """The routes of its notifications are unknown."""
    inventory, sets, homes, _ = drawn(0)
    known = {name: home for name, home in homes.items() if name != "q"}
    prices = SlotCosts(inventory, sets, known)
    overlay = OVERLAY.with_homes(known)
    expected = scot_breakdown(overlay, inventory, sets.of_publishers(known.keys())).total_per_s
    assert prices.cost_per_s(OVERLAY.regions, OVERLAY.region_links) == pytest.approx(expected)
