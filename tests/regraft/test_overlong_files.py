"""That files which people edit are refused by name if they nest too deeply or have too long numbers."""

from collections.abc import Callable
from pathlib import Path

import pytest

from regraft.alerts.read_rules import load_rules
from regraft.commands.parse_assignments import parse_flag
from regraft.infra.orders.order_keys import read_trusted_keys
from regraft.infra.process.stack_error import StackError
from regraft.inventories.read_brokers import read_round_trips
from regraft.inventories.write_node_files import read_nodes
from regraft.overlay.inventory.inventory import InventoryError
from regraft.overlay.read_inventory import load_inventory
from regraft.producers.node_settings import NodeSettings
from regraft.producers.nodes.node_setup import read_peers
from regraft.producers.run_agent import read_brokers
from regraft.settings.run_settings import SettingsError, load_settings
from regraft.stages.observe_run import read_status


def _settings(peers: Path) -> NodeSettings:
    return load_settings({"node": {"broker": "b01", "connector": "nats://h:1", "peers_path": str(peers)}}).node


DEPTH, DIGITS = 50_000, 5_000
DEEP = "[" * DEPTH
TOML = {"deep": f"a = {DEEP}", "long": f"a = {'9' * DIGITS}", "hexadecimal": f"a = 0x{'f' * DIGITS}"}
JSON = {"deep": DEEP, "long": f'{{"a": {"9" * DIGITS}}}'}
READERS: dict[str, tuple[str, dict[str, str], Callable[[Path], object]]] = {
    "settings": ("s.toml", TOML, lambda file: load_settings(file=file)),
    "rules": ("r.toml", TOML, load_rules),
    "trusted keys": ("t.toml", TOML, read_trusted_keys),
    "inventory": ("i.json", JSON, load_inventory),
    "brokers of an agent": ("b.json", JSON, lambda file: read_brokers(file, None)),
    "peers of a node": ("p.json", JSON, lambda file: read_peers(_settings(file), "b01")),
    "status of a node": ("node-b01.json", JSON, lambda file: read_round_trips([file])),
    "table of nodes": (
        "n.csv",
        {"deep": f"broker,address,connector,groups_once\nb01,h:1,nats://h:1,{DEEP}\n"},
        read_nodes,
    ),
}


@pytest.mark.parametrize(("which", "how"), [(which, how) for which, (_, texts, _) in READERS.items() for how in texts])
def test_what_no_reader_takes_is_refused_with_the_name_of_the_file(which: str, how: str, tmp_path: Path) -> None:
    """A traceback would name neither the file nor what to do."""
    name, texts, read = READERS[which]
    file = tmp_path / name
    file.write_text(texts[how], encoding="utf-8")
    with pytest.raises((StackError, SettingsError, InventoryError)) as refusal:
        read(file)
    assert str(file) in str(refusal.value)


def test_a_status_file_of_any_text_gives_a_document_or_none(tmp_path: Path) -> None:
    """A disk may damage it."""
    file = tmp_path / "streaming.json"
    file.write_text(DEEP, encoding="utf-8")
    assert read_status(file) is None


def test_a_value_that_is_no_toml_is_a_text_whatever_its_depth() -> None:
    """The setting's own check then says what it must be."""
    assert parse_flag(f"run.seed={DEEP}") == ("run", "seed", DEEP)
