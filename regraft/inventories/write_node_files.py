"""What each machine with a node needs: its settings, the inventory, and where all nodes listen.

In: an inventory, a table of nodes, settings that all of them share. Out: the text of each file, or SourceError with
every error; pure but for reading the table. Writing them belongs to the command.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regraft.inventories.read_tables import Row, read_table
from regraft.inventories.source_error import SourceError
from regraft.overlay.inventory.inventory import Inventory
from regraft.producers.nodes.connectors.find_connectors import known_names
from regraft.producers.nodes.node_kinds import kind_error
from regraft.producers.nodes.node_setup import address_of
from regraft.schemas.parse_text import parse_json
from regraft.schemas.safe_names import safe_name
from regraft.schemas.texts import name_near
from regraft.settings.named_tables import connector_models
from regraft.settings.read_sources import merged
from regraft.settings.run_settings import SettingsError, load_settings, section_models
from regraft.settings.settings_example import plain_table

INVENTORY, PEERS, SETTINGS = "inventory.json", "peers.json", "node.toml"
REQUIRED = ("broker", "address", "connector")
OWN = ("node", "connectors")  # The tables that may differ from node to node.

Tables = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class NodeRow:
    """One node: the host:port at which others reach it, and its own settings by table."""

    place: str
    broker: str
    address: str
    settings: dict[str, Any]


def read_nodes(file: Path) -> list[NodeRow]:
    """Return the nodes of a table of broker, address, connector and any further settings of [node] or a connector.

    Raises SourceError.
    """
    rows: list[NodeRow] = []
    own = _further_columns()

    def take(row: Row) -> None:
        broker, address, connector = (row.name(name) for name in REQUIRED)
        tables: dict[str, Any] = {"node": {"broker": broker, "connector": connector}}
        for name in own:
            if row.text(name):
                _put(tables, ["node", name] if "." not in name else name.split("."), _value(row, name))
        rows.append(NodeRow(row.place, broker, address, tables))

    read_table(file, REQUIRED, own, take)
    return rows


def _further_columns() -> list[str]:
    """Return the names of optional columns: settings of [node], and full names of connectors' settings."""
    names = [name for name in section_models()["node"].model_fields if name not in REQUIRED]
    for kind, model in connector_models(known_names()).items():
        names += [f"connectors.{kind}.{name}" for name in model.model_fields]
    return names


def _put(tables: dict[str, Any], path: Sequence[str], value: Any) -> None:
    *outer, name = path
    for part in outer:
        tables = tables.setdefault(part, {})
    tables[name] = value


def _value(row: Row, name: str) -> Any:
    """Return a setting as text, or as a list if it is one in JSON."""
    text = row.text(name)
    if not text.startswith("["):
        return text
    try:
        return parse_json(text)
    except ValueError:
        row.errors.append(f'{row.place}: {name} is {text!r}: a list is written as in JSON, such as ["a","b"]')
        return []


def node_files(inventory: Inventory, rows: Sequence[NodeRow], shared: Tables, directory: str) -> dict[str, str]:
    """Return the files by path, a folder for each broker.

    ``shared`` holds settings of all nodes, ``directory`` is where the files will be on each machine.
    Raises SourceError.
    """
    settings = [shared.get("node", {}), *(row.settings.get("node", {}) for row in rows)]
    has_groups = any(each.get("groups_once") for each in settings)
    errors = [*_inventory_errors(inventory, has_groups), *_row_errors(inventory, rows)]
    tables: dict[str, Tables] = {}
    for row in rows:
        try:
            tables[row.broker] = _tables(row, shared, directory)
        except SettingsError as error:
            errors += [f"{row.place}: {error}" for error in error.errors]
    if errors:
        raise SourceError(errors)
    peers = json.dumps({row.broker: row.address for row in rows}, indent=1, ensure_ascii=False) + "\n"
    files: dict[str, str] = {}
    for broker, each in tables.items():
        folder = safe_name(broker)
        started = f"# The node of {broker}: `regraft stage node --settings {directory}/{SETTINGS}` on its machine.\n"
        files[f"{folder}/{SETTINGS}"] = started + "\n".join(plain_table(name, values) for name, values in each.items())
        files |= {f"{folder}/{PEERS}": peers, f"{folder}/{INVENTORY}": inventory.to_json() + "\n"}
    return files


def _inventory_errors(inventory: Inventory, has_groups: bool) -> Iterator[str]:
    if error := kind_error(inventory, has_groups_once=has_groups):
        yield f"the inventory holds {error}"
    elif not inventory.clients_stay:
        yield 'the inventory has no "clients_stay": true: next to real brokers clients stay where they connect'


def _row_errors(inventory: Inventory, rows: Sequence[NodeRow]) -> Iterator[str]:
    brokers, addresses = Counter(row.broker for row in rows), Counter(row.address for row in rows)
    for row in rows:
        if row.broker not in inventory.index:
            hint = name_near(row.broker, inventory.brokers, "add it there, or leave it out")
            yield f"{row.place}: {row.broker} is not a broker of the inventory: {hint}"
        if brokers[row.broker] > 1:
            yield f"{row.place}: {row.broker} is listed {brokers[row.broker]} times"
        if addresses[row.address] > 1:
            yield f"{row.place}: {row.address} is the address of {addresses[row.address]} nodes"
        try:
            address_of(row.address)
        except ValueError as error:
            yield f"{row.place}: address {error}"
    for broker in inventory.brokers:
        if broker not in brokers:
            yield f"{broker} is a broker of the inventory, but has no line: nodes cannot link to it"


def _tables(row: NodeRow, shared: Tables, directory: str) -> Tables:
    """Return what a node's settings file holds, with values of their types. Raises SettingsError."""
    kafka = shared.get("kafka", {})
    run = {**shared.get("run", {}), **row.settings.get("run", {}), "directory": directory}
    given = {"run": run, "kafka": kafka, **merged({name: shared.get(name, {}) for name in OWN}, row.settings)}
    checked = load_settings(given).given
    own = {name: _typed(given[name], checked[name]) for name in OWN if given[name]}
    return {"run": run, "kafka": kafka, **own}


def _typed(given: Mapping[str, Any], checked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are given, in their types."""
    return {
        name: _typed(value, checked[name]) if isinstance(value, Mapping) else checked[name]
        for name, value in given.items()
    }
