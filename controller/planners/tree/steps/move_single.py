"""Move single subscribers to where they cost least, if windows report their deliveries separately.

In: the state of a tree, how many may move and how far. Out: proposals, each with the state after it. Which subscribers
are reported separately is the brokers' choice (:mod:`schemas.part_blocks`); moving all of a broker's subscribers
belongs to the planner.
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

    It ends when none saves ``saving_share_min`` of the cost or ``count_max`` have moved, each once. No move puts a
    broker above its cap. Cost O(subscribers reported separately * brokers * degree * words) for each.
    """
    moved: set[str] = set()
    while len(moved) < count_max:
        names = [name for name in sorted(state.single) if name not in moved]
        if not names:
            return
        cost_per_s = state.tree_costs.cost_per_s + float(state.access_by_span_per_s.mean())
        changes = _changes_per_s(state, names, detour_ms_max)
        best = _best(state, names, changes, -saving_share_min * cost_per_s)
        if best is None:
            return
        move, change_per_s, after = best
        delay = f"{state.inventory.delay_ms[_at(state, move.home_from), _at(state, move.home_to)]:.3g} ms away"
        reason = (
            f"{move.client} of {move.home_from} receives many notifications and costs least at {move.home_to}, {delay}"
        )
        yield moving_proposal(planner, (move,), cost_per_s, cost_per_s + change_per_s, reason), after
        moved.add(move.client)
        state = after


def _changes_per_s(state: TreeState, names: list[str], detour_ms_max: float) -> Floats:
    """Return the cost change of each move, shape (names, brokers); infinite to the present home or too far away."""
    inventory, apart = state.inventory, [state.split_single(name) for name in names]
    homes = [state.single[name] for name in names]
    parts = [(home, going, staying) for home, (going, staying, _) in zip(homes, apart, strict=True)]
    changes = part_move_changes_per_s(state.configuration, inventory, state.sets, state.configuration.home_of, parts)
    for row, (home, (_, _, handed_per_s)) in enumerate(zip(homes, apart, strict=True)):
        at = inventory.index[home]
        changes[row] += handed_per_s * inventory.delay_cost[at]
        if inventory.prices is not None:
            access = inventory.prices.access_money
            changes[row] += handed_per_s * (access - access[at])
        changes[row, inventory.delay_ms[at] > detour_ms_max] = np.inf
        changes[row, at] = np.inf
    return changes


def _best(
    state: TreeState, names: list[str], changes: Floats, change_max_per_s: float
) -> tuple[ClientMove, float, TreeState] | None:
    """Return the move that saves most and keeps the caps, its cost change and the state after it; None if none does."""
    caps, brokers = state.inventory.load_max_per_s, state.inventory.brokers
    for place in np.argsort(changes, axis=None, kind="stable").tolist():
        row, end = divmod(place, len(brokers))
        change_per_s = float(changes[row, end])
        if not change_per_s <= change_max_per_s:
            return None
        move = ClientMove(names[row], state.single[names[row]], brokers[end])
        after = state.with_single_moved({move.client: move.home_to})
        if caps is None:
            return move, change_per_s, after
        limits = np.maximum(caps, state.tree_costs.loads_per_s) * (1 + ROUNDING_SHARE)
        if (after.tree_costs.loads_per_s <= limits).all():
            return move, change_per_s, after
    return None


def _at(state: TreeState, broker: str) -> int:
    return state.inventory.index[broker]
