"""Turn swaps that a planner of the paper wants into independent proposals, each costed after the earlier ones.

The paper's brokers act as messages happen to arrive, so it gives no order. In the order of true gain (the default), a
swap that only looks good locally cannot block a good one; in random order the planner is what its authors had.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from regraft.controller.kinds.tree.tree_state import TreeContext, TreeState
from regraft.controller.planners.shared_settings import Order
from regraft.overlay.overlay_configuration import Link
from regraft.overlay.tree.tree_costs import LinkSwap
from regraft.schemas.plan import Proposal


def rank_swaps(
    state: TreeState,
    order: Order,
    context: TreeContext,
    planner: str,
    reasons: Mapping[LinkSwap, str],
    rng: random.Random,
) -> list[Proposal]:
    """Return proposals for the swaps (keys of ``reasons``), at most ``proposals_max``, in the given ``order``.

    No proposal removes a link of another's cycle, so any subset of them, in any order, leaves a tree. Swaps that break
    ``degree_max``, alone or after the earlier ones, are left out. Cost: one pricing of each swap if they are ranked by
    gain, and one for each proposal.
    """
    costs = state.tree_costs.copy()
    taken: list[tuple[Link, frozenset[Link]]] = []
    proposals: list[Proposal] = []
    for swap in _ordered(state, order, reasons, rng):
        if len(proposals) == context.proposals_max:
            break
        cycle = frozenset(costs.cycle(swap.added))
        if any(removed in cycle or swap.removed in other for removed, other in taken):
            continue
        if context.degree_max is not None and costs.degree_after(swap) > context.degree_max:
            continue
        taken.append((swap.removed, cycle))
        before_per_s = costs.cost_per_s
        costs.apply(swap)
        proposals.append(
            Proposal(
                planner=planner,
                links_removed=(swap.removed,),
                links_added=(swap.added,),
                cost_before_per_s=before_per_s,
                cost_after_per_s=costs.cost_per_s,
                price_per_s=0.0,
                reason=reasons[swap],
            )
        )
    return proposals


def _ordered(state: TreeState, order: Order, reasons: Mapping[LinkSwap, str], rng: random.Random) -> list[LinkSwap]:
    swaps = sorted(reasons)
    if order == "arrival":
        rng.shuffle(swaps)
        return swaps
    return sorted(swaps, key=lambda swap: (-state.tree_costs.gain_per_s(swap), swap))
