"""The compared ways to place publishers: the paper's POP and GRAPE in all its settings, and ours.

In: windows of a placement. Out: the homes that a planner wants. Proposals are carried out as they come, without the
controller's judge: so does the paper, and so all are treated alike.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from controller.decide.planner_table import PLANNERS
from controller.kinds.tree.tree_state import TreeState
from controller.state.closed_window import ClosedWindow
from controller.state.planner_interface import PlannerSettings
from overlay.configuration import Configuration
from overlay.inventory import Inventory

ROUNDS_MAX = 3  # POP goes on moving however long it is left to (its averages remember few traces); GRAPE rarely.
WEIGHTS = (100, 75, 50, 25, 1)


@dataclass(frozen=True, slots=True)
class Way:
    """One way to place publishers: a planner and what it is told; without a planner they stay where they started."""

    label: str
    planner: str
    changes: Mapping[str, Any]


def grape(priority: Literal["load", "delay"], weight: int, link_delays: bool) -> Way:
    """Return GRAPE as section 5.2 writes it: load75 prioritises load with 75 %."""
    label = f"{priority}{weight}, with links" if link_delays else f"{priority}{weight}"
    changes = {"grape_priority": priority, "grape_weight": weight, "link_delays": link_delays}
    return Way(label, "relocate_publisher_grape", changes)


# The paper's delays are those at brokers; "_links" adds what links take, which dominates on PlanetLab.
WAYS: Mapping[str, Way] = {
    "baseline": Way("baseline", "", {}),
    **{f"load{weight}": grape("load", weight, False) for weight in WEIGHTS},
    **{f"delay{weight}": grape("delay", weight, False) for weight in WEIGHTS},
    "delay100_links": grape("delay", 100, True),
    "pop": Way("POP", "relocate_publisher_pop", {}),
    "ours": Way("Regraft", "relocate_publishers_joint", {}),
    "ours_both": Way(
        "Regraft, cost and delay", "relocate_publishers_joint", {"delay_weight": 0.5, "link_delays": True}
    ),
}


def decide_homes(
    way: Way, settings: PlannerSettings, inventory: Inventory, windows: Sequence[ClosedWindow], rng: random.Random
) -> dict[str, str]:
    """Return the homes that a way wants after windows in which publishers were at the windows' homes."""
    homes = dict(windows[-1].homes)
    if not way.planner:
        return homes
    tree = Configuration.of(0, inventory.brokers, inventory.bootstrap_tree.links, homes)
    state = TreeState(tree, inventory, tuple(windows))
    for proposal in PLANNERS[way.planner](state, replace(settings, **way.changes), rng):
        for move in proposal.moves:
            homes[move.client] = move.home_to
    return homes


def settle_homes(
    homes: Mapping[str, str], decide: Callable[[Mapping[str, str]], Mapping[str, str]], rounds_max: int = ROUNDS_MAX
) -> tuple[dict[str, str], int]:
    """Return the homes at which nothing is to move, or those of the last round, and how many rounds moved any."""
    present = dict(homes)
    for rounds in range(rounds_max):
        wanted = dict(decide(present))
        if wanted == present:
            return present, rounds
        present = wanted
    return present, rounds_max
