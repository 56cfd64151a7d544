"""What each machine with a node gets: settings that are read back, the same peers and inventory everywhere."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from regraft.inventories.source_error import SourceError
from regraft.inventories.write_node_files import node_files, read_nodes
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.read_inventory import parse_inventory
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.producers.nodes.mqtt.connect_mqtt import MqttSettings
from regraft.settings.run_settings import load_settings
from tests.overlay.small_overlays import inventory_of, line_of

INVENTORY: Inventory = replace(inventory_of(line_of(3), {}), clients_stay=True)
TABLE = """broker,address,connector,metrics_port,connectors.mqtt.filters
b00,10.0.0.1:7411,nats://127.0.0.1:7422,9105,
b01,10.0.0.2:7411,mqtt://127.0.0.1:1883,,"[""a/#"",""b""]"
b02,[fd00::3]:7411,amqp://127.0.0.1:5672,,
"""


def table_of(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "nodes.csv"
    file.write_text(text)
    return file


def test_each_broker_gets_a_folder_with_what_its_machine_needs(tmp_path: Path) -> None:
    """Settings of all nodes and of one, with values of their types; peers and inventory are the same for all."""
    shared = {"kafka": {"bootstrap": "kafka:9092", "security": {"tls": True}}, "run": {"sample_share": 0.5}}
    files = node_files(INVENTORY, read_nodes(table_of(tmp_path, TABLE)), shared, "/var/lib/regraft")
    assert sorted(files) == [
        f"{broker}/{name}" for broker in INVENTORY.brokers for name in ("inventory.json", "node.toml", "peers.json")
    ]
    assert {json.dumps(json.loads(files[f"{broker}/peers.json"])) for broker in INVENTORY.brokers} == {
        '{"b00": "10.0.0.1:7411", "b01": "10.0.0.2:7411", "b02": "[fd00::3]:7411"}'
    }
    assert parse_inventory(files["b01/inventory.json"], "test").brokers == INVENTORY.brokers
    assert tomllib.loads(files["b00/node.toml"]) == {
        "run": {"sample_share": 0.5, "directory": "/var/lib/regraft"},
        "kafka": {"bootstrap": "kafka:9092", "security": {"tls": True}},
        "node": {"broker": "b00", "connector": "nats://127.0.0.1:7422", "metrics_port": 9105},
    }
    file = tmp_path / "node.toml"
    file.write_text(files["b01/node.toml"])
    settings = load_settings(file=file)
    assert settings.node.connectors["mqtt"] == MqttSettings(filters=("a/#", "b"))
    assert settings.node.peers_file == Path("/var/lib/regraft/peers.json")


def test_names_of_brokers_make_plain_folders(tmp_path: Path) -> None:
    """A name with a slash cannot write elsewhere."""
    odd = replace(inventory_of(line_of(2), {}), clients_stay=True)
    document = json.loads(odd.to_json()) | {"brokers": ["../b", "a b"], "links": [["../b", "a b"]]}
    inventory = parse_inventory(json.dumps(document), "test")
    table = "broker,address,connector\n../b,h1:7411,nats://h:1\na b,h2:7411,nats://h:1\n"
    files = node_files(inventory, read_nodes(table_of(tmp_path, table)), {}, "/d")
    assert {name.split("/")[0] for name in files} == {"%2E%2E%2Fb", "a%20b"}


def test_all_that_is_wrong_is_listed_with_its_line(tmp_path: Path) -> None:
    """Unknown, missing and repeated brokers, addresses, connectors and settings; nothing is returned."""
    table = "broker,address,connector,metrics_port\nb00,10.0.0.1:7411,nats://127.0.0.1:7422,70000\nb00,10.0.0.1:7411,nats://127.0.0.1:7422,\nb1,10.0.0.2,mqt://127.0.0.1:1883,\n"
    file = table_of(tmp_path, table)
    with pytest.raises(SourceError) as raised:
        node_files(replace(INVENTORY, clients_stay=False), read_nodes(file), {}, "/d")
    errors = [error.removeprefix(f"{file}, ") for error in raised.value.errors]
    for start in (
        'the inventory has no "clients_stay": true',
        "line 2: b00 is listed 2 times",
        "line 3: 10.0.0.1:7411 is the address of 2 nodes",
        "line 4: b1 is not a broker of the inventory: did you mean b01?",
        "line 4: address '10.0.0.2' is not host:port",
        "line 4: node: connector is 'mqt://127.0.0.1:1883'",
        "line 2: node: metrics_port is 70000",
        "b01 is a broker of the inventory, but has no line",
    ):
        assert any(error.startswith(start) for error in errors), (start, errors)


def test_nodes_of_a_ring_are_refused(tmp_path: Path) -> None:
    """Nodes run on trees and on structured cyclic overlays, there without groups that handle each message once."""
    ring = RingConfiguration.hashed(0, 32, INVENTORY.brokers)
    with pytest.raises(SourceError, match="the inventory holds a ring: nodes are brokers of a tree or"):
        node_files(replace(INVENTORY, bootstrap=ring), read_nodes(table_of(tmp_path, TABLE)), {}, "/d")
    scot = replace(INVENTORY, bootstrap=ScotConfiguration(0, (("b00", "b01"), ("b00", "b02")), ((0, 1),)))
    assert node_files(scot, read_nodes(table_of(tmp_path, TABLE)), {}, "/d")
    with pytest.raises(SourceError, match=r"node\.groups_once is set"):
        node_files(scot, read_nodes(table_of(tmp_path, TABLE)), {"node": {"groups_once": ["workers"]}}, "/d")


def test_a_list_that_is_not_one_is_named(tmp_path: Path) -> None:
    """A setting that holds a list is written as in JSON."""
    table = "broker,address,connector,connectors.mqtt.filters\nb00,h:7411,mqtt://h:1,[a/#\n"
    with pytest.raises(SourceError, match=r"line 2: connectors.mqtt.filters is '\[a/#': a list is written as in JSON"):
        read_nodes(table_of(tmp_path, table))


def test_a_column_of_another_connector_is_refused(tmp_path: Path) -> None:
    """As it would be in the settings file of that node."""
    table = TABLE.replace("9105,\n", '9105,"[""c""]"\n')
    with pytest.raises(SourceError, match=r"line 2: connectors.mqtt.filters is c, but it belongs to the connector"):
        node_files(INVENTORY, read_nodes(table_of(tmp_path, table)), {}, "/d")
