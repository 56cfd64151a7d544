"""Move single subscribers to where they cost least, if windows report their deliveries separately.

In: the state of a tree, how many may move and how far. Out: proposals, each with the state after it. A client beside an
agent moves as one, with all its subscriptions and what it publishes. Which are reported separately is the brokers'
choice (:mod:`schemas.part_blocks`); moving all of a broker's subscribers belongs to the planner.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from regraft.controller.kinds.tree.tree_state import TreeState
from regraft.controller.state.planner_interface import moving_proposal
from regraft.overlay.tree.group_moves import part_move_changes_per_s
from regraft.overlay.tree.publisher_placement import ROUNDING_SHARE
from regraft.schemas.arrays import Floats
from regraft.schemas.plan import ClientMove, Proposal


def single_moves(
    planner: str, state: TreeState, count_max: int, detour_ms_max: float, saving_share_min: float
) -> Iterator[tuple[Proposal, TreeState]]:
    """Yield the move of a single subscriber that saves most, priced exactly, then the next on the state after it.

    A client's way is priced, too, as the delay from the broker that is nearest to it, if that is known, else from the
    one that it leaves, for all that it receives and publishes. It ends when none saves ``saving_share_min`` of the cost
    or ``count_max`` have moved, each once. No move puts a broker above its cap. Cost O(subscribers reported separately
    * brokers * degree * words) for each.
    """
    moved: set[str] = set()
    while len(moved) < count_max:
        names = [name for name in sorted(state.movers) if name not in moved]
        if not names:
            return
        cost_per_s = state.cost_per_s
        changes = _changes_per_s(state, names, detour_ms_max)
        best = _best(state, names, changes, -saving_share_min * cost_per_s)
        if best is None:
            return
        name, home_to, after = best
        home = state.movers[name]
        moves = tuple(ClientMove(one, home, home_to) for one in state.subscriptions_of(name))
        delay = f"{state.inventory.delay_ms[_at(state, home), _at(state, home_to)]:.3g} ms away"
        what = "publishes and receives" if state.publishers_of(name, home) else "receives"
        reason = f"{name} of {home} {what} many notifications and costs least at {home_to}, {delay}"
        yield moving_proposal(planner, moves, cost_per_s, after.cost_per_s, reason), after
        moved.add(name)
        state = after


def _changes_per_s(state: TreeState, names: list[str], detour_ms_max: float) -> Floats:
    """Return the cost change of each move, shape (names, brokers); infinite to the present home or too far away."""
    inventory, apart = state.inventory, [state.split_single(name) for name in names]
    homes = [state.movers[name] for name in names]
    parts = [(home, going, staying) for home, (going, staying, _) in zip(homes, apart, strict=True)]
    changes = part_move_changes_per_s(state.configuration, inventory, state.sets, state.configuration.home_of, parts)
    for row, (home, (_, _, handed_per_s)) in enumerate(zip(homes, apart, strict=True)):
        at = inventory.index[home]
        near = inventory.index.get(state.newest.nearest.get(names[row], ""), at)
        way = inventory.delay_cost[near] - inventory.delay_cost[near, at]  # How much longer than to its home.
        changes[row] += handed_per_s * way
        for publisher in state.publishers_of(names[row], home):
            changes[row] += _publishing_changes_per_s(state, publisher, at, way)
        if inventory.prices is not None:
            access = inventory.prices.access_money
            changes[row] += handed_per_s * (access - access[at])
        changes[row, inventory.delay_ms[near] > detour_ms_max] = np.inf
        if reached := state.newest.reaches.get(names[row]):
            changes[row, [broker not in reached for broker in inventory.brokers]] = np.inf
        changes[row, at] = np.inf
    return changes


def _publishing_changes_per_s(state: TreeState, publisher: str, at: int, way: Floats) -> Floats | float:
    """Return the cost change if a publisher at a broker publishes at each, with its way there; 0 if it was silent."""
    costs = state.publisher_costs
    if publisher not in costs.publishers:
        return 0.0
    row = costs.place_of(publisher)
    return np.asarray(costs.costs_per_s[row] - costs.costs_per_s[row, at] + costs.published_per_s[row] * way)


def _best(
    state: TreeState, names: list[str], changes: Floats, change_max_per_s: float
) -> tuple[str, str, TreeState] | None:
    """Return what to move where so that most is saved within the caps, and the state after it; None if nothing is."""
    caps, brokers = state.inventory.load_max_per_s, state.inventory.brokers
    for place in np.argsort(changes, axis=None, kind="stable").tolist():
        row, end = divmod(place, len(brokers))
        if not float(changes[row, end]) <= change_max_per_s:
            return None
        name, home_to = names[row], brokers[end]
        after = state.with_single_moved({name: home_to})
        if caps is None:
            return name, home_to, after
        limits = np.maximum(caps, state.tree_costs.loads_per_s) * (1 + ROUNDING_SHARE)
        if (after.tree_costs.loads_per_s <= limits).all():
            return name, home_to, after
    return None


def _at(state: TreeState, broker: str) -> int:
    return state.inventory.index[broker]
