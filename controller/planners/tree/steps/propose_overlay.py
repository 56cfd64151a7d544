"""Propose links and publishers' homes from one search, ordered by what they save, for planners that search both."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from regraft.controller.kinds.tree.tree_state import TreeContext, TreeState
from regraft.controller.planners.tree.steps.price_frailty import FrailtyPrice, OverlayFrailty
from regraft.controller.planners.tree.steps.search_overlay import OverlaySearch
from regraft.controller.planners.tree.steps.search_swaps import Search, descend
from regraft.controller.planners.tree.steps.sequence_changes import ChangeSequence, Step
from regraft.overlay.tree.overlay_costs import OverlayCosts
from regraft.overlay.tree.tree_costs import LinkSwap
from regraft.schemas.plan import ClientMove, Proposal


def overlay_proposals(
    planner: str,
    state: TreeState,
    context: TreeContext,
    rng: random.Random,
    search_words_max: int,
    escape_words_max: int,
) -> list[Proposal]:
    """Return swaps of links and moves of publishers under the name of a planner, grouped if they save only together.

    Source, cost and guarantee are those of :mod:`controller.planners.tree.search_overlay_cost`, which describes the
    search.
    """
    search = _search(state, context, search_words_max)
    present, bounds = search.present, search.search
    chains = [_chain(search, state, context, is_homes_first=first) for first in (True, False)]
    best = search.best([present, *(end for end, _ in chains)])
    bounds.words_left = escape_words_max
    best = search.escape(best, rng)
    order = ChangeSequence(present, best, bounds, search.frailty)
    ways = [(list(order.steps()), order.reached), *((steps, end) for end, steps in chains)]
    steps, _ = min(ways, key=lambda way: search.value_per_s(way[1]))
    return [_proposal(planner, state, present, steps, place) for place in range(len(steps))]


def escape_proposals(
    planner: str, state: TreeState, context: TreeContext, rng: random.Random, words_max: int
) -> list[Proposal]:
    """Return swaps of links and moves of publishers that kicks of the present overlay lead to, grouped likewise.

    Source, cost and guarantee are those of :mod:`controller.planners.tree.escape_overlay_cost`.
    """
    search = _search(state, context, words_max)
    present = search.present
    best = search.escape(present, rng)
    if best is present:
        return []
    steps = list(ChangeSequence(present, best, search.search, search.frailty).steps())
    return [_proposal(planner, state, present, steps, place) for place in range(len(steps))]


def _search(state: TreeState, context: TreeContext, words_max: int) -> OverlaySearch:
    """Return a search within what one plan may change and one planner may propose."""
    present = state.overlay_costs
    bounds = Search(
        words_max,
        len(state.inventory.brokers) if context.degree_max is None else context.degree_max,
        state.inventory.load_max_per_s,
        present=frozenset(present.tree.links),
        links_max=min(context.links_max, context.proposals_max),
    )
    moves_max = min(context.moves_max, context.proposals_max)
    return OverlaySearch(present, bounds, moves_max, OverlayFrailty.of(state, context.frailty_weight))


def _chain(
    search: OverlaySearch, state: TreeState, context: TreeContext, *, is_homes_first: bool
) -> tuple[OverlayCosts, list[Step]]:
    """Return the overlay that links alone and homes alone lead to, one after the other, and the steps."""
    reached = search.present.copy()
    steps: list[Step] = []
    for is_homes in (is_homes_first, not is_homes_first):
        if is_homes:
            before = reached.copy()
            search.rehome(reached)
            order = ChangeSequence(before, reached, search.search, search.frailty)
            steps += list(order.steps())
            reached = order.reached
        else:
            bounds = replace(search.search, frailty=FrailtyPrice.of(state, context.frailty_weight))
            before_per_s = reached.cost_per_s
            for swap in descend(reached.tree, bounds, bounds.links_max):
                steps.append(Step((swap,), (), before_per_s, reached.cost_per_s))
                before_per_s = reached.cost_per_s
            reached.links_changed()
            search.search.words_left = bounds.words_left
    return reached, steps


def _proposal(planner: str, state: TreeState, present: OverlayCosts, steps: Sequence[Step], place: int) -> Proposal:
    step = steps[place]
    names, publishers = state.inventory.brokers, present.sets.publishers
    homes: dict[int, int] = {publisher: int(home) for publisher, home in enumerate(present.homes.tolist())}
    for earlier in steps[:place]:
        homes.update(earlier.moves)
    moves = tuple(ClientMove(publishers[one], names[homes[one]], names[home]) for one, home in step.moves)
    removed, added = _exchanged(step.swaps)
    return Proposal(
        planner,
        removed,
        added,
        step.cost_before_per_s,
        step.cost_after_per_s,
        0.0,
        _reason(step, moves),
        moves=moves,
    )


def _exchanged(swaps: Sequence[LinkSwap]) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    return tuple(swap.removed for swap in swaps), tuple(swap.added for swap in swaps)


def _reason(step: Step, moves: Sequence[ClientMove]) -> str:
    if len(step.swaps) + len(moves) > 1:
        return f"only together do these {len(step.swaps)} links and {len(moves)} homes of publishers save"
    if moves:
        return f"on the tree reached, {moves[0].home_to} is the best home for {moves[0].client}"
    ((a, b), (i, j)) = step.swaps[0].removed, step.swaps[0].added
    return f"on the way to the best overlay found, {i}-{j} for {a}-{b} saves most"
