"""infra/compose_nodes.yml is consistent with docker-compose.yml, which it extends, with itself and with the code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from regraft.infra.local.mosquitto_server import SETTINGS
from regraft.overlay.read_inventory import load_inventory
from regraft.producers.nodes.node_setup import address_of
from regraft.settings.run_settings import section_models

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def fleet() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "infra" / "compose_nodes.yml").read_text())
    return loaded


def nodes(fleet: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: each for name, each in fleet["services"].items() if name.startswith("node-")}


def config(fleet: dict[str, Any], name: str) -> Path:
    """Return a configuration file of the services; its path is relative to the base file."""
    return ROOT / str(fleet["configs"][name]["file"])


def test_fleet_follows_the_schema(fleet: dict[str, Any]) -> None:
    """It is valid alone, and services that it does not define are in the base file."""
    schema = json.loads((Path(__file__).with_name("compose_spec.json")).read_text())
    jsonschema.Draft201909Validator(schema).validate(fleet)
    below = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    own = {name for name, each in fleet["services"].items() if "image" in each or "build" in each}
    assert fleet["services"].keys() - own <= below["services"].keys()
    for service in nodes(fleet).values():
        assert service["depends_on"].keys() <= below["services"].keys() | own
        assert {volume.split(":")[0] for volume in service["volumes"]} <= fleet["volumes"].keys()
    assert {each["source"] for service in fleet["services"].values() for each in service.get("configs", [])} == set(
        fleet["configs"]
    )


def test_each_broker_has_a_node_and_a_connector(fleet: dict[str, Any]) -> None:
    """The inventory loads and keeps clients; brokers, peers and nodes match, each node is next to its own server."""
    inventory = load_inventory(config(fleet, "inventory"))
    assert inventory.clients_stay
    peers = json.loads(config(fleet, "peers").read_text())
    assert sorted(peers) == list(inventory.brokers)
    listen = nodes(fleet)["node-b0"]["environment"]["REGRAFT_NODE__LISTEN"]
    for broker in inventory.brokers:
        host, port = address_of(peers[broker])
        assert port == address_of(listen)[1]
        command = nodes(fleet)[host]["command"]
        assert command == [
            "python", "-m", "regraft", "stage", "node", "--broker", broker, "--connector", f"mqtt://mosquitto-{broker}:1883",
        ]  # fmt: skip
        assert f"mosquitto-{broker}" in fleet["services"]


def test_mosquitto_reports_subscriptions_to_nodes(fleet: dict[str, Any]) -> None:
    """Its settings are those of the demo's brokers, except for who may connect from where."""
    shared = {line for line in SETTINGS.splitlines() if not line.startswith(("listener", "user"))}
    assert shared <= set(config(fleet, "mosquitto").read_text().splitlines())


def test_variables_name_settings(fleet: dict[str, Any]) -> None:
    """Every variable of a stage names a setting."""
    fields = {name: set(model.model_fields) for name, model in section_models().items()}
    for service in fleet["services"].values():
        for variable in service.get("environment", {}):
            if found := re.fullmatch(r"REGRAFT_([A-Z]+)__(.+)", variable):
                assert found[2].lower() in fields[found[1].lower()], variable
