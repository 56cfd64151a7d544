"""Inventories and what is wrong with unusable ones."""

import json
from pathlib import Path

import numpy as np
import pytest

from overlay.inventory import Inventory, InventoryError
from tests.overlay.small_overlays import inventory_of, line_of


def test_inventory_survives_saving_and_loading(tmp_path: Path) -> None:
    """What is loaded is what was saved."""
    saved = inventory_of(line_of(3), {("b00", "b02"): 2.5})
    saved.save(tmp_path / "inventory.json")
    loaded = Inventory.load(tmp_path / "inventory.json")
    assert loaded.brokers == saved.brokers
    assert loaded.bootstrap == saved.bootstrap
    assert loaded.cost_of_link("b02", "b00") == 2.5
    assert np.array_equal(loaded.processing_cost, saved.processing_cost)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"brokers": ["b01", "b00", "b02"]}, "unique and sorted"),
        ({"brokers": ["b00"], "links": []}, "at least 2"),
        ({"processing_cost": [1.0, 1.0]}, "need costs of shape"),
        ({"processing_cost": [1.0, -1.0, 1.0]}, "negative"),
        ({"processing_cost": [1.0, float("nan"), 1.0]}, "not a finite number"),
        ({"link_cost": [[0, 1, 2], [1, 0, 3], [9, 3, 0]]}, "not symmetric"),
        ({"links": [["b00", "b01"]]}, "1 links over 3 brokers"),
        ({"links": None}, "NoneType"),
        ({"degree_max": "many"}, "many"),
    ],
)
def test_unusable_inventory_is_refused(tmp_path: Path, change: dict[str, object], why: str) -> None:
    """The error names the file and the value that is wrong."""
    path = tmp_path / "inventory.json"
    inventory_of(line_of(3), {}).save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InventoryError, match=why):
        Inventory.load(path)


def test_missing_and_broken_files_are_named(tmp_path: Path) -> None:
    """A file that is not there, is not JSON or lacks a key is an inventory error with its path."""
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    with pytest.raises(InventoryError, match=r"broken\.json is not an inventory"):
        Inventory.load(broken)
    broken.write_text("{}")
    with pytest.raises(InventoryError, match="brokers"):
        Inventory.load(broken)
    with pytest.raises(InventoryError, match=r"absent\.json"):
        Inventory.load(tmp_path / "absent.json")
