"""Place a fleet of nodes on measured hosts: measured delays between them, and almost no time in a broker."""

from __future__ import annotations

import random
from dataclasses import replace

from regraft.overlay.inventory.inventory import Inventory
from regraft.producers.emulator.place_overlay import place_overlay, place_scot

NODE_MS = 0.03  # Per message in a node (benchmarks/bench_node.py).


def place_fleet(broker_count: int, degree_max: int, rng: random.Random) -> Inventory:
    """Return nodes on randomly chosen hosts, with a random initial tree."""
    return replace(place_overlay(broker_count, degree_max, rng, (NODE_MS, NODE_MS)), clients_stay=True)


def place_scot_fleet(broker_count: int, cluster_count: int, rng: random.Random) -> Inventory:
    """Return nodes on such hosts as a structured cyclic overlay; raise ValueError as :func:`place_scot` does."""
    return replace(place_scot(broker_count, cluster_count, rng, (NODE_MS, NODE_MS)), clients_stay=True)
