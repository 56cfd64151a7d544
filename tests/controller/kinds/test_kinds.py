"""Every kind of overlay is supported everywhere, and the tables agree on the kinds."""

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from regraft.controller.kinds import find_kind
from regraft.controller.kinds.find_kind import kind_of
from regraft.controller.kinds.ring.ring_kind import RingKind
from regraft.controller.kinds.tree.tree_kind import TreeKind
from regraft.controller.planners.planner_registry import PLANNERS
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.known_kinds import KINDS, read_configuration
from regraft.overlay.read_inventory import parse_inventory
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.producers.emulated_kinds import EMULATED_KINDS
from regraft.producers.emulator.starting_point import CORES
from regraft.report_page.kind_pages import KIND_PAGES
from regraft.run_records.summary import MOVED_FIGURES
from regraft.settings.scenarios import SCENARIOS
from tests.controller.published_windows import window_of
from tests.controller.scripted_ring import ring_inventory
from tests.overlay.small_overlays import inventory_of, line_of, publishers_of

TABLES = {
    "controller": find_kind.KINDS,
    "planners": {spec.kind for spec in PLANNERS.values()},
    "broker cores": CORES,
    "emulator": EMULATED_KINDS,
    "report": KIND_PAGES,
    "summary": MOVED_FIGURES,
}
SCOT = ScotConfiguration(0, (("b00", "b01"), ("b02", "b03")), ((0, 1),))
INVENTORIES = [
    inventory_of(line_of(5), {}),
    ring_inventory(),
    replace(inventory_of(line_of(4), {}), bootstrap=SCOT),
]


@pytest.mark.parametrize("table", sorted(TABLES))
def test_each_table_has_all_kinds(table: str) -> None:
    """A kind missing from a table would only fail at run time."""
    assert sorted(TABLES[table]) == sorted(KINDS)


def test_each_kind_can_be_seen_in_a_demo() -> None:
    """At least one scenario runs it."""
    assert {scenario.kind for scenario in SCENARIOS.values()} == set(KINDS)


@pytest.mark.parametrize("inventory", INVENTORIES, ids=lambda one: one.bootstrap.KIND)
def test_a_stored_inventory_is_loaded_as_the_same_kind(inventory: Inventory) -> None:
    """A stored overlay shows its kind."""
    back = parse_inventory(inventory.to_json(), "test").bootstrap
    assert back == inventory.bootstrap
    shown = {"links": back.links, **back.shown_fields()}
    assert back.with_homes({"c": back.brokers[0]}).reshaped(shown) == back


def test_a_shadow_overlay_is_costed_at_its_own_places() -> None:
    """Links alone do not say who shares a cluster; a view from before places existed shows the overlay itself."""
    inventory = INVENTORIES[2]
    other = replace(SCOT, regions=(("b00", "b03"), ("b02", "b01")))
    shown = json.loads(msgspec.json.encode({"links": other.links, **other.shown_fields()}))
    sets = publishers_of(SCOT.brokers, {"p": ("b00", [{"b03"}] * 3)})
    homes = {"p": "b00"}
    kind = kind_of(inventory, ControllerSettings(bootstrap="x:1", inventory_path=Path("i")))
    window = window_of(0, sets, homes)
    costs = [kind.cost_per_s(one.with_homes(homes), window) for one in (SCOT.reshaped(shown), other, SCOT)]
    assert costs[0] == costs[1] < costs[2]
    assert SCOT.with_homes(homes).reshaped({"links": SCOT.links, "regions": ()}) == SCOT


def test_an_overlay_of_an_unknown_kind_is_refused() -> None:
    """The message names the known kinds."""
    with pytest.raises(ValueError, match="no overlay of a known kind: ring, scot, tree"):
        read_configuration(["b00", "b01"], {"mesh": []})


def test_weights_and_caps_come_from_the_settings() -> None:
    """Otherwise they come from the inventory; callers do not pass them."""
    tree, ring = INVENTORIES[:2]
    settings = ControllerSettings(
        bootstrap="x:1", inventory_path=Path("i"), degree_max=5, ring_delay_weight=0.25, user_load_max=3.0
    )
    capped = kind_of(tree, settings)
    assert isinstance(capped, TreeKind)
    assert capped.degree_max == 5
    found = kind_of(ring, settings)
    assert isinstance(found, RingKind)
    assert (found.delay_weight, found.user_load_max) == (0.25, 3.0)
    plain = kind_of(tree, ControllerSettings(bootstrap="x:1", inventory_path=Path("i")))
    assert isinstance(plain, TreeKind)
    assert plain.degree_max == tree.degree_max
