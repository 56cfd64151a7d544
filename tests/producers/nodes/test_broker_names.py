"""Brokers whose names have dots, slashes, spaces or any letters: what is named after them."""

from __future__ import annotations

from pathlib import Path

from regraft.producers.node_settings import NodeSettings
from regraft.schemas.safe_names import safe_name

ODD = ["eu.west/1 b", "k\u00fchlhaus \u6771\u4eac 1 #", "\u6771" * 256]


def test_safe_names_stay_different() -> None:
    """Plain names stay as they are; others become short and plain, and no two become the same."""
    names = ["b01", "b-0_1~", "a.b", "a%2Eb", "a b", "a/b", "..", "東京", "東" * 255, "東" * 256, "x" * 121, "\udc80"]
    safe = [safe_name(name) for name in names]
    assert safe[:2] == names[:2]
    assert len(set(safe)) == len(names)
    assert all(len(each) <= 120 and each.isascii() and not set(each) & set(" ./\\*>#+") for each in safe)


def test_files_of_a_node_are_in_its_directory() -> None:
    """No name leads to another directory, or is too long for a file."""
    for name in [*ODD, "../b01", "b" * 256]:
        settings = NodeSettings("kafka", Path("inventory.json"), Path("run/node.json"), broker=name)
        files = [settings.own_status_file, settings.life_file, settings.interest_file]
        assert len(set(files)) == 3
        assert all(file.parent == Path("run") and len(file.name) < 200 for file in files)
