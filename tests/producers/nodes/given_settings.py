"""Settings of a node from one list of names, those of its connector included."""

from dataclasses import fields
from pathlib import Path
from typing import Any

from regraft.producers.node_settings import NodeSettings
from regraft.producers.nodes.connectors.find_connectors import CONNECTORS, spec_of


def given_settings(directory: Path, broker: str, **given: Any) -> NodeSettings:
    """Return settings of the node of a broker; what is a setting of its connector becomes one there."""
    spec = spec_of(given["connector"]) if "connector" in given else None
    names = {field.name for each in CONNECTORS.values() for field in fields(each.settings)}
    own = {name: given.pop(name) for name in names & given.keys()}
    connectors = {spec.name: spec.settings(**own)} if spec else {}
    files = directory / "inventory.json", directory / "node.json"
    return NodeSettings("none:1", *files, broker=broker, connectors=connectors, **given)
