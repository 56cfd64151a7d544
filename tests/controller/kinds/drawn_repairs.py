"""Random overlays with brokers that die, leave, return and join."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np

from regraft.controller.kinds.repair import RepairTask
from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import BrokerChange
from regraft.overlay.tree.build_tree import random_tree
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from tests.overlay.small_overlays import brokers_named, publishers_of


@dataclass(frozen=True)
class DrawnRepair:
    """A tree over some brokers of a fleet, and what happens to it."""

    present: TreeConfiguration
    task: RepairTask
    degree_max: int


def drawn_change(present: tuple[str, ...], fleet: tuple[str, ...], rng: random.Random) -> BrokerChange:
    """Return a change in which some die, some of these return, some leave, some join; at least two brokers remain."""
    fates = {broker: rng.choice(["stays", "stays", "stays", "lost", "back", "left"]) for broker in present}
    strangers = [broker for broker in fleet if broker not in present]
    joined = {broker for broker, fate in fates.items() if fate == "back"}
    joined |= set(rng.sample(strangers, rng.randint(0, len(strangers))))
    lost = {broker for broker, fate in fates.items() if fate in ("lost", "back")}
    left = {broker for broker, fate in fates.items() if fate == "left"}
    while len(set(present) - lost - left | joined) < 2:
        lost -= {rng.choice(present)} - joined
        left -= {rng.choice(present)}
    return BrokerChange(frozenset(joined), frozenset(left), frozenset(lost))


def drawn_repair(rng: random.Random, brokers_max: int = 9) -> DrawnRepair:
    """Return a repair with integer costs, so that their sums are exact, and publishers with known homes."""
    names = brokers_named(rng.randint(2, brokers_max))
    present = tuple(sorted(rng.sample(names, rng.randint(max(2, len(names) - 3), len(names)))))
    degree_max = rng.randint(2, 4)
    tree = random_tree(present, rng.randint(2, 4), rng)
    cost = np.array([[float(rng.randint(1, 20)) for _ in names] for _ in names])
    cost = np.triu(cost, 1) + np.triu(cost, 1).T
    processing = np.array([float(rng.randint(0, 5)) for _ in names])
    fleet = Inventory(names, processing, cost, degree_max, random_tree(names, len(names), rng))
    homes = {f"p{number}": rng.choice(present) for number in range(rng.randint(0, 4))}
    windows = []
    for at in range(rng.randint(0, 2)):
        published = {
            name: (home, [set(rng.sample(present, rng.randint(0, len(present)))) for _ in range(rng.randint(1, 9))])
            for name, home in homes.items()
        }
        drawn = publishers_of(present, published)
        sets = replace(drawn, columns=tuple((name, block + 9 * at) for name, block in drawn.columns))
        windows.append(ClosedWindow(1000 * at, 1000 * at + 1000, sets, epoch_min=4, epoch_max=4, homes=homes))
    present_tree = tree.at_epoch(4).with_homes(homes)
    return DrawnRepair(present_tree, RepairTask(drawn_change(present, names, rng), fleet, windows), degree_max)
