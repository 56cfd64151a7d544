"""One round of one way to adapt the overlay: proposals, their execution, and its cost.

In: the state that the caches show on the present tree. Out: the next tree and the costs of the messages. Traffic and
the clock of the experiment do not belong here.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from regraft.api.overlays import Inventory
from regraft.api.planners import local_knowledge, wanting_paths
from regraft.api.planning import TreeContext, TreeState, planner_of
from regraft.api.records import Proposal
from regraft.api.trees import Paths, TreeConfiguration, paths_within
from regraft_lab.planners import swap_links_lmit, swap_links_lmst
from regraft_lab.psoop.message_costs import (
    broadcast_cost,
    exchange_cost,
    report_cost,
    request_cost,
    transition_cost,
)
from regraft_lab.yardsticks.yardstick_trees import maximum_interest_tree, minimum_spanning_tree

Kind = Literal["static", "mst", "mit", "paper", "central"]
CENTRAL_DEGREE_MAX = 8  # CI without a cap ends with 7 to 9 links at the busiest broker; a higher cap would favour ours.
CENTRAL_EXCHANGES_MAX = 16
CENTRAL_ESCAPE_WORDS_MAX = 0  # Random kicks take ten times as long and save at most another hundredth.


@dataclass(frozen=True)
class Variant:
    """One way to adapt; planners are named as in ``controller.planners.planner_registry``.

    ``kind``: "static" keeps the first tree, "mst" and "mit" rebuild with global knowledge at no message cost, "paper"
    lets the paper's brokers adapt, which know ``horizon_hops`` around them, "central" is our controller. The variant
    acts at the end of every ``every_rounds``-th round.
    """

    name: str
    kind: Kind
    horizon_hops: int = 4
    every_rounds: int = 1


@dataclass(frozen=True)
class Round:
    """The outcome of one round: the next tree, and the costs of messages by kind."""

    configuration: TreeConfiguration
    broadcast: float = 0.0
    request: float = 0.0
    exchange: float = 0.0
    exchanges: int = 0


RANDOM_TREE = Variant("random_tree", "static")
MST = Variant("minimum_spanning_tree", "mst")
MIT = Variant("maximum_interest_tree", "mit", every_rounds=4)
CI = Variant("swap_links_ci", "paper")
LMST = Variant(swap_links_lmst.PLANNER, "paper")
LMIT = Variant(swap_links_lmit.PLANNER, "paper")
OURS = Variant("swap_links_cost", "central")


def adapt(
    variant: Variant, state: TreeState, members: NDArray[np.int64], payback_ticks: float, rng: random.Random
) -> Round:
    """Return the variant's round in this state.

    ``payback_ticks``: the time in which an exchange of ours must pay off. Costs of ``state`` are per tick.
    """
    present = state.configuration
    if variant.kind == "mst":
        return Round(_renumbered(_spanning_tree(state.inventory), present))
    if variant.kind == "mit":
        return Round(_renumbered(maximum_interest_tree(state.inventory, state.interest), present))
    if variant.kind == "paper":
        return _adapt_by_brokers(variant, state, members, rng)
    if variant.kind == "central":
        return _adapt_centrally(variant, state, members, payback_ticks, rng)
    return Round(present)


@lru_cache(maxsize=4)
def _spanning_tree(inventory: Inventory) -> TreeConfiguration:
    """Return the minimum spanning tree, cached because costs rarely change between rounds."""
    return minimum_spanning_tree(inventory)


def _renumbered(tree: TreeConfiguration, present: TreeConfiguration) -> TreeConfiguration:
    return present if tree.links == present.links else TreeConfiguration(present.epoch + 1, tree.brokers, tree.links)


def _adapt_by_brokers(variant: Variant, state: TreeState, members: NDArray[np.int64], rng: random.Random) -> Round:
    paths = paths_within(state.configuration, variant.horizon_hops)
    broadcast = broadcast_cost(paths, state.inventory)
    if variant.horizon_hops == 1:  # A broker knows only its neighbours.
        return Round(state.configuration, broadcast)
    planner = planner_of(variant.name, horizon_hops=variant.horizon_hops, order="arrival")
    request = sum(request_cost(asking, state.inventory) for asking in asking_paths(variant.name, paths, state))
    configuration, exchange = state.configuration, 0.0
    proposals = planner(state, TreeContext(), rng)
    for proposal in proposals:
        exchange += exchange_cost(configuration, state.inventory, proposal, members)
        configuration = _exchanged(configuration, proposal)
    return Round(configuration, broadcast, request, exchange, len(proposals))


def asking_paths(planner: str, paths: Mapping[int, Paths], state: TreeState) -> list[Paths]:
    """Return the paths along which brokers ask for a direct link, each broker by its own evaluation.

    With CI either end may ask, or both. lMST and lMIT evaluate the same at both ends, so one request per pair is
    counted. Requests that consensus refuses are included. Source: Jaeger07, sections 4.1 and 4.3.2.
    """
    longer = [path for hops, path in paths.items() if hops > 1]
    if planner == CI.name:
        known = local_knowledge(state, paths)
        return [wanting_paths(path, known) for path in longer]
    asking = []
    weights = state.inventory.link_cost if planner == swap_links_lmst.PLANNER else -state.interest
    for path in longer:
        ascending = path[path[:, 0] < path[:, -1]]
        heaviest = weights[ascending[:, :-1], ascending[:, 1:]].max(axis=1)
        asking.append(ascending[heaviest > weights[ascending[:, 0], ascending[:, -1]]])
    return asking


def _adapt_centrally(
    variant: Variant, state: TreeState, members: NDArray[np.int64], payback_ticks: float, rng: random.Random
) -> Round:
    """Execute the longest prefix of proposals in which every exchange pays off in time, if they pay off together."""
    inventory = state.inventory
    planner = planner_of(variant.name, escape_words_max=CENTRAL_ESCAPE_WORDS_MAX)
    context = TreeContext(proposals_max=CENTRAL_EXCHANGES_MAX, degree_max=CENTRAL_DEGREE_MAX)
    report = report_cost(state.configuration, inventory)
    configuration, exchange, gain_per_tick, accepted = state.configuration, 0.0, 0.0, 0
    for proposal in planner(state, context, rng):
        cost = exchange_cost(configuration, inventory, proposal, members)
        if proposal.gain_per_s * payback_ticks <= cost:
            break
        exchange += cost
        gain_per_tick += proposal.gain_per_s
        accepted += 1
        configuration = _exchanged(configuration, proposal)
    exchange += transition_cost(state.configuration, inventory)
    if not accepted or gain_per_tick * payback_ticks <= exchange:
        return Round(state.configuration, report)
    return Round(configuration, report, 0.0, exchange, accepted)


def _exchanged(configuration: TreeConfiguration, proposal: Proposal) -> TreeConfiguration:
    return configuration.replaced(configuration.epoch + 1, proposal.links_removed, proposal.links_added)
