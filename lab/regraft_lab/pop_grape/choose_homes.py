"""The ways to place publishers that are compared: the paper's POP, GRAPE with all its settings, and ours.

All proposals are executed, without the controller's judge: the paper has none, and this treats all ways alike.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from regraft.api.overlays import Inventory
from regraft.api.planners import JointSettings
from regraft.api.planning import (
    AnyPlannerSpec,
    ClosedWindow,
    PlannerSettings,
    SessionSettings,
    TreeContext,
    TreeState,
    planner_spec,
)
from regraft.api.trees import TreeConfiguration, bootstrap_tree
from regraft_lab.planners import relocate_publisher_grape, relocate_publisher_pop
from regraft_lab.planners.relocate_publisher_grape import PrioritySettings
from regraft_lab.planners.relocate_publisher_pop import TraceSettings
from regraft_lab.pop_grape.observe_placement import WINDOW_MS

ROUNDS_MAX = 3  # POP never settles (its averages remember few traces); GRAPE nearly always does.
WEIGHTS = (100, 75, 50, 25, 1)


@dataclass(frozen=True, slots=True)
class Way:
    """One way to place publishers: a planner and its settings; without a planner they stay at their first homes."""

    label: str
    planner: AnyPlannerSpec | None = None
    settings: PlannerSettings = field(default_factory=PlannerSettings)

    def with_sessions(self, length: int) -> Way:
        """Return the way with trace sessions of this length, unchanged if it has no trace sessions."""
        if not isinstance(self.settings, SessionSettings):
            return self
        return replace(self, settings=replace(self.settings, grape_notifications_min=length))


def grape(priority: Literal["load", "delay"], weight: int, link_delays: bool) -> Way:
    """Return GRAPE in the notation of section 5.2: load75 prioritises load with 75 %."""
    label = f"{priority}{weight}, with links" if link_delays else f"{priority}{weight}"
    settings = PrioritySettings(grape_priority=priority, grape_weight=weight, link_delays=link_delays)
    return Way(label, relocate_publisher_grape.SPEC, settings)


# The paper counts delays at brokers only; "_links" adds those of links, which dominate on PlanetLab.
WAYS: Mapping[str, Way] = {
    "baseline": Way("baseline"),
    **{f"load{weight}": grape("load", weight, False) for weight in WEIGHTS},
    **{f"delay{weight}": grape("delay", weight, False) for weight in WEIGHTS},
    "delay100_links": grape("delay", 100, True),
    # W is the length of the window that represents it.
    "pop": Way("POP", relocate_publisher_pop.SPEC, TraceSettings(pop_window_s=WINDOW_MS / 1_000)),
    "ours": Way("Regraft", planner_spec("relocate_publishers_joint"), JointSettings()),
    "ours_both": Way(
        "Regraft, cost and delay",
        planner_spec("relocate_publishers_joint"),
        JointSettings(delay_weight=0.5, link_delays=True),
    ),
}


def decide_homes(way: Way, inventory: Inventory, windows: Sequence[ClosedWindow], rng: random.Random) -> dict[str, str]:
    """Return the homes that a way wants, given windows with publishers at the windows' homes."""
    homes = dict(windows[-1].homes)
    if way.planner is None:
        return homes
    tree = TreeConfiguration.of(0, inventory.brokers, bootstrap_tree(inventory).links, homes)
    state = TreeState(tree, inventory, tuple(windows))
    for proposal in way.planner.plan(state, way.settings, TreeContext(), rng):
        for move in proposal.moves:
            homes[move.client] = move.home_to
    return homes


def settle_homes(
    homes: Mapping[str, str], decide: Callable[[Mapping[str, str]], Mapping[str, str]], rounds_max: int = ROUNDS_MAX
) -> tuple[dict[str, str], int]:
    """Return homes from which no publisher moves, or those of the last round, and the number of rounds with moves."""
    present = dict(homes)
    for rounds in range(rounds_max):
        wanted = dict(decide(present))
        if wanted == present:
            return present, rounds
        present = wanted
    return present, rounds_max
