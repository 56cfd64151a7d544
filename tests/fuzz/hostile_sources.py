"""Spoiled sources of inventories: tables, networks and nodes' status files, each used or refused with sentences.

In: a seed and a count. Out: how many gave an inventory and how many were refused. Any other error is an error.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from regraft.inventories.build_inventory import Wishes, build_inventory, combined, read_prices
from regraft.inventories.found_brokers import FoundBrokers
from regraft.inventories.read_brokers import read_brokers, read_round_trips
from regraft.inventories.read_topology import read_topology
from regraft.inventories.source_error import SourceError
from regraft.inventories.write_node_files import node_files, read_nodes
from regraft.overlay.inventory.inventory import InventoryError
from regraft.overlay.read_inventory import parse_inventory

BROKERS = "broker,latitude,longitude,processing_cost,load_max_per_s,agent,region\n" + "".join(
    f"b{number},{number},{-number},0.1,50,west,eu\n" for number in range(4)
)
ROUND_TRIPS = "from,to,rtt_ms\nb0,b1,3\nb1,b2,4.5\nb2,b3,8\nb3,b0,1e2\n"
PRICES = "from,to,price_per_gb\neu,eu,0.02\neu,clients,0.09\n"
NODES = "broker,address,connector,metrics_port,connectors.mqtt.filters\n" + "".join(
    f'b{number},10.0.0.{number}:7411,mqtt://127.0.0.1:1883,910{number},"[""a/#""]"\n' for number in range(4)
)
STATUS = '{"broker": "b0", "peers": {"b1": {"kept": 0, "rtt_ms": 5.5}, "b2": {"rtt_ms": null}}}'
GML = """graph [
  node [ id 0 label "b0" Longitude 8.5 Latitude 47.4 ]
  node [ id 1 label "b1" Longitude 2.3 Latitude 48.9 ]
  node [ id 2 label "b1" Longitude 2.4 Latitude 48.8 ]
  edge [ source 0 target 1 weight 3 ]
  edge [ source 1 target 2 weight 4.5 ]
]
"""
GRAPHML = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="w" for="edge" attr.name="weight" attr.type="double"/>
<graph edgedefault="undirected"><node id="b0"/><node id="b1"/>
<edge source="b0" target="b1"><data key="w">3.5</data></edge></graph></graphml>
"""
PARTS = (
    "",
    ",",
    '"',
    "\n",
    "-1",
    "nan",
    "inf",
    "1e999",
    "b0",
    "null",
    "[",
    "]",
    "{",
    "\x00",
    "\u202e",
    "x" * 400,
    "é",
    "<",
)


def feed_sources(rng: random.Random, count: int, folder: Path) -> Counter[str]:
    """Make inventories and nodes' files of spoiled sources; what is made can be read."""
    readers: tuple[tuple[str, str, Callable[[Path], FoundBrokers | dict[str, str]]], ...] = (
        ("brokers.csv", BROKERS, lambda file: read_brokers(str(file))),
        ("rtt.csv", ROUND_TRIPS, lambda file: read_round_trips([file])),
        ("node.json", STATUS, lambda file: read_round_trips([file])),
        ("net.gml", GML, read_topology),
        ("net.graphml", GRAPHML, read_topology),
        ("prices.csv", PRICES, _priced),
        ("nodes.csv", NODES, _prepared),
    )
    found: Counter[str] = Counter()
    for _ in range(count):
        name, text, read = rng.choice(readers)
        file = folder / name
        file.write_bytes(_spoiled(rng, text).encode("utf-8", "replace"))
        try:
            made = read(file)
            if isinstance(made, FoundBrokers):
                inventory, _notes = build_inventory(made, Wishes(8, clients_stay=True))
                parse_inventory(inventory.to_json(), "made")
        except (SourceError, InventoryError) as error:
            found["refused"] += bool(str(error))
        else:
            found["used"] += 1
    return found


def _priced(file: Path) -> FoundBrokers:
    """Build with the prices, which must cover the brokers."""
    made = FoundBrokers(["b0", "b1"], {("b0", "b1"): 1.0}, region_of={"b0": "eu", "b1": "eu"})
    build_inventory(made, Wishes(8, clients_stay=True, prices=read_prices(file, "USD", 500.0)))
    return made


def _prepared(file: Path) -> dict[str, str]:
    made = combined([FoundBrokers([f"b{number}" for number in range(4)])])
    inventory, _ = build_inventory(made, Wishes(8, clients_stay=True))
    return node_files(inventory, read_nodes(file), {}, "/var/lib/regraft")


def _spoiled(rng: random.Random, text: str) -> str:
    """Replace, remove or repeat a few characters or lines."""
    for _ in range(rng.choice((0, 1, 1, 2, 5))):
        place = rng.randrange(len(text) + 1)
        text = text[:place] + rng.choice(PARTS) + text[place + rng.choice((0, 1, 3, 20)) :]
    return text
