"""Inventories, and the errors of unusable ones."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from regraft.overlay.inventory.inventory import Inventory, InventoryError
from regraft.overlay.inventory.members import extended
from regraft.overlay.read_inventory import load_inventory, parse_inventory
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.tree.build_tree import bootstrap_tree
from regraft.schemas.member import BrokerFacts
from tests.overlay.small_overlays import inventory_of, line_of


def test_inventory_survives_saving_and_loading(tmp_path: Path) -> None:
    """What is loaded is what was saved."""
    saved = inventory_of(line_of(3), {("b00", "b02"): 2.5})
    saved.save(tmp_path / "inventory.json")
    loaded = load_inventory(tmp_path / "inventory.json")
    assert loaded.brokers == saved.brokers
    assert loaded.bootstrap == saved.bootstrap
    assert loaded.cost_of_link("b02", "b00") == 2.5
    assert np.array_equal(loaded.processing_cost, saved.processing_cost)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"brokers": ["b01", "b00", "b02"]}, "brokers has b01 before b00: sort the names"),
        ({"brokers": ["b00"], "links": []}, "processing_cost has 3 entries, 1 are needed"),
        ({"processing_cost": [1.0, 1.0]}, "processing_cost has 2 entries, 3 are needed"),
        ({"processing_cost": [1.0, -1.0, 1.0]}, "processing_cost of b01 is -1.0: it must be finite, and at least 0"),
        ({"processing_cost": [1.0, float("nan"), 1.0]}, "processing_cost of b01 is nan: it must be finite"),
        ({"link_cost": [[0, 1, 2], [1, 0, 3], [9, 3, 0]]}, "not symmetric: 2 from b00 to b02, 9 from b02 to b00"),
        ({"link_cost": [[0, 1, None], [1, 0, 3], [None, 3, 0]]}, "link_cost of b00 and b02 is missing: give"),
        (
            {"link_cost": [[0, 1, None], [1, 0, 3], [2, 3, 0]]},
            "b00 and b02 is missing in one direction: give 2 as from",
        ),
        ({"link_cost": [[None, 1, 2], [1, 0, 3], [2, 3, 0]]}, "link_cost of b00 to itself is missing: give 0"),
        ({"link_cost": [[0, True, 2], [1, 0, 3], [2, 3, 0]]}, "link_cost from b00 to b01 is true: it must be a number"),
        ({"brokers": ["b00", "b01", "b01"]}, "brokers has b01 twice"),
        ({"proccessing_cost": []}, "proccessing_cost is not a field: did you mean processing_cost?"),
        ({"owner": "ana"}, "owner is not a field: known are brokers, processing_cost"),
        ({"clients_stay": "yes"}, "clients_stay is 'yes': it must be true or false"),
        ({"prices": {"currency": "USD"}}, "prices has no link_per_gb"),
        ({"prices": {"currency": 5}}, r"prices\.currency cannot be read: expected str, got int"),
        ({"prices": {"curency": "USD"}}, r"prices\.curency is not a field: did you mean currency\?"),
        ({"link_cost": [[0, 1, 2], [1, 0], [2, 3, 0]]}, "link_cost of b01 has 2 entries, 3 are needed"),
        ({"degree_max": 1e999}, "degree_max is inf"),
        ({"brokers": ["b00", None, "b02"]}, "brokers has null"),
        ({"agents": 5}, "agents is 5: it must be an object"),
        ({"links": [["b00", "b01"]]}, "1 links over 3 brokers"),
        ({"links": None}, "links cannot be read: expected array, got null"),
        ({"links": [["b00", "b01"], ["b01", 2]]}, r"links\[1\]\[1\] cannot be read: expected str, got int"),
        ({"links": [["b00", "b01"], ["b01", "b09"]]}, "links name brokers that are not in the overlay: b09"),
        ({"ring": {"bits": 8}}, "ring cannot be read: object missing required field ids"),
        ({"regions": [["b00", "b01", "b02"]]}, "regions and region_links go together"),
        ({"degree_max": "many"}, "many"),
    ],
)
def test_unusable_inventory_is_refused(tmp_path: Path, change: dict[str, object], why: str) -> None:
    """The error names the file and the wrong value."""
    path = tmp_path / "inventory.json"
    inventory_of(line_of(3), {}).save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InventoryError, match=why):
        load_inventory(path)


def test_all_errors_are_listed_at_once() -> None:
    """One reading shows everything that is wrong: fields, numbers, pairs, the overlay and agents."""
    document = {
        "brokers": ["b01", "b02", "b03"],
        "processing_cost": [1, -1, 1],
        "link_cost": [[0, 2, None], [2, 0, 4], [None, 4, 0]],
        "degre_max": 8,
        "links": [["b01", "b02"]],
        "agents": {"b04": "west"},
    }
    with pytest.raises(InventoryError) as raised:
        parse_inventory(json.dumps(document), "mine.json")
    starts = [
        "degre_max is not a field: did you mean degree_max?",
        "degree_max is missing: maximum number of links per broker",
        "1 links over 3 brokers",
        "processing_cost of b02 is -1: it must be finite",
        "link_cost of b01 and b03 is missing: give what a notification costs on that link",
        "agents names 'b04'",
    ]
    assert len(raised.value.errors) == len(starts)
    for error, start in zip(raised.value.errors, starts, strict=True):
        assert error.startswith(start)
    assert str(raised.value).endswith("; and 1 more")


def test_an_inventory_may_name_its_schema() -> None:
    """Editors find the schema by that field."""
    document = json.loads(inventory_of(line_of(3), {}).to_json())
    parse_inventory(json.dumps({"$schema": "inventory.schema.json"} | document), "test")


def test_missing_and_broken_files_are_named(tmp_path: Path) -> None:
    """A file that is missing, is not JSON or lacks a key raises an inventory error with its path."""
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    with pytest.raises(InventoryError, match=r"broken\.json is not an inventory"):
        load_inventory(broken)
    broken.write_text("{}")
    with pytest.raises(InventoryError, match="brokers"):
        load_inventory(broken)
    with pytest.raises(InventoryError, match=r"absent\.json is not an inventory: it does not exist"):
        load_inventory(tmp_path / "absent.json")


def test_a_ring_is_saved_and_read_back(tmp_path: Path) -> None:
    """A ring has IDs instead of links; whatever requires a tree says so."""
    ring = RingConfiguration.hashed(0, 32, ["b1", "b2", "b3"])
    inventory = Inventory(ring.brokers, np.ones(3), np.ones((3, 3)) - np.eye(3), 2, ring)
    inventory.save(tmp_path / "inventory.json")
    assert load_inventory(tmp_path / "inventory.json").bootstrap == ring
    with pytest.raises(InventoryError, match="is a ring, a tree is needed"):
        _ = bootstrap_tree(inventory)


def test_a_ring_with_a_repeated_id_is_refused(tmp_path: Path) -> None:
    """The message names the ID."""
    file = tmp_path / "inventory.json"
    document = {"brokers": ["a", "b"], "processing_cost": [1, 1], "link_cost": [[0, 1], [1, 0]], "degree_max": 2}
    file.write_text(json.dumps(document | {"ring": {"bits": 8, "ids": [7, 7]}}))
    with pytest.raises(InventoryError, match="ring ID 7"):
        load_inventory(file)


def test_positions_are_optional(tmp_path: Path) -> None:
    """Positions are saved and loaded if given, and refused if they do not fit the brokers."""
    file = tmp_path / "inventory.json"
    inventory = inventory_of(line_of(3), {})
    inventory.save(file)
    assert load_inventory(file).positions is None
    placed = replace(inventory, positions=np.array([[8.5, 47.4], [2.3, 48.9], [13.4, 52.5]]))
    placed.save(file)
    assert np.array_equal(load_inventory(file).positions, placed.positions)
    for wrong in ([[1.0, 2.0]], [[1.0, 2.0], [3.0, 4.0], [5.0, float("nan")]], [1.0, 2.0, 3.0]):
        with pytest.raises(InventoryError, match="positions must be 3 pairs"):
            replace(inventory, positions=np.array(wrong))


def test_clients_stay_survives_saving_and_derived_inventories(tmp_path: Path) -> None:
    """The clients of brokers next to real ones cannot move: the file says so, and so does every derived inventory."""
    file = tmp_path / "inventory.json"
    inventory = replace(inventory_of(line_of(3), {}), clients_stay=True)
    inventory.save(file)
    assert load_inventory(file).clients_stay
    assert inventory.restricted_to(inventory.brokers[:2]).clients_stay
    assert extended(inventory, {"b09": BrokerFacts(1.0)}).clients_stay


def test_agents_are_kept_and_give_topics(tmp_path: Path) -> None:
    """A broker that is not listed has no agent; an inventory without agents omits them."""
    plain = inventory_of(line_of(3), {})
    assert "agents" not in json.loads(plain.to_json())
    assert plain.broker_topics("live").agents == ("",)
    replace(plain, agent_of={"b00": "west"}).save(tmp_path / "inventory.json")
    loaded = load_inventory(tmp_path / "inventory.json")
    assert loaded.broker_topics("live").agent_of == {"b00": "west", "b01": "", "b02": ""}


@pytest.mark.parametrize(
    ("agents", "why"),
    [
        ({"b09": "west"}, "'b09', which is not a broker"),
        ({"b00": ""}, "the agent of b00 is ''"),
        ({"b00": "west.1"}, r"the agent of b00 is 'west\.1'"),
        ({"b00": 7}, "the agent of b00 is 7"),
        ({"b00": "a" * 65}, "1 to 64 letters"),
        (["west"], "is not an inventory"),
    ],
)
def test_agents_that_give_no_valid_topic_are_refused(agents: object, why: str) -> None:
    """The error names the broker and the reason."""
    document = json.loads(inventory_of(line_of(3), {}).to_json()) | {"agents": agents}
    with pytest.raises(InventoryError, match=why):
        parse_inventory(json.dumps(document), "test")
