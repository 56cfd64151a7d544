"""Search links and publishers' homes together by true cost: ours, in the place of one planner after the other.

In: the state over a horizon. Out: a sequence of proposals, any prefix of which is worth doing. Whether a gain is worth
its price does not belong here.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from regraft.controller.kinds.tree.tree_state import TreeContext, TreeState
from regraft.controller.planners.steps.order_changes import ChangeOrder, Step
from regraft.controller.planners.steps.price_frailty import FrailtyPrice, OverlayFrailty
from regraft.controller.planners.steps.search_overlay import OverlaySearch
from regraft.controller.planners.steps.search_swaps import Search, descend
from regraft.controller.state.planner_interface import PlannerSettings, PlannerSpec
from regraft.overlay.configuration import Configuration
from regraft.overlay.overlay_costs import OverlayCosts
from regraft.overlay.tree_costs import LinkSwap
from regraft.schemas.plan import ClientMove, Proposal

PLANNER = "search_overlay_cost"


@dataclass(frozen=True)
class OverlaySearchSettings(PlannerSettings):
    """How much is looked at, in 64-bit words of delivery sets.

    ``search_words_max``: bounds the descents from all starts, in 64-bit words of delivery sets. Default 1e9, about a
    second.
    ``escape_words_max``: the same for kicks after them. Default 1e8, some 300 ms.
    """

    search_words_max: int = 1_000_000_000
    escape_words_max: int = 100_000_000

    def faults(self) -> list[str]:
        """Return what is wrong with the settings, one sentence each."""
        found = super().faults()
        if self.search_words_max < 1:
            found.append(f"search_words_max is {self.search_words_max}: at least 1, or nothing is searched")
        if self.escape_words_max < 0:
            found.append(f"escape_words_max is {self.escape_words_max}: at least 0")
        return found


def search_overlay_cost(
    state: TreeState, settings: OverlaySearchSettings, context: TreeContext, rng: random.Random
) -> list[Proposal]:
    """Return swaps of links and moves of publishers in the order of what they save, some only together.

    Descents move publishers to their best homes and swap links, in turn until neither helps: from the present overlay,
    from where links alone and where homes alone lead first, then from kicks of the best found. All stay within what one
    plan may change (``links_max``, ``moves_max``) and within the caps of degree and load. What becomes of the best is
    put in order, each change priced on the overlay that the earlier ones leave; what counts against it when one death
    cuts off more (``context.frailty_weight``) is taken from its gain.
    ``proposals_max`` bounds links and moves each, as it does for two planners in turn.
    Source: the cost is Eq. 1-2 of Jaeger07. Cost O(brokers^2 * words) for a look at all links of up to some 300
    brokers, O(brokers * words) for one at all homes; a larger overlay is looked at where it costs most first.
    Guarantee: with links alone, then homes alone, or the other way round, within the same limits, no lower value is
    reached; none of the optimum. Deterministic: budgets are counted in words looked at, kicks drawn from ``rng``.
    Any-time: what was found when a budget ends is returned.
    """
    present = state.overlay_costs
    degree_max = len(state.inventory.brokers) if context.degree_max is None else context.degree_max
    bounds = Search(
        settings.search_words_max,
        degree_max,
        state.inventory.load_max_per_s,
        present=frozenset(present.tree.links),
        links_max=min(context.links_max, context.proposals_max),
    )
    search = OverlaySearch(
        present,
        bounds,
        min(context.moves_max, context.proposals_max),
        OverlayFrailty.of(state, context.frailty_weight),
    )
    chains = [_chain(search, state, context, is_homes_first=first) for first in (True, False)]
    best = search.best([present, *(end for end, _ in chains)])
    bounds.words_left = settings.escape_words_max
    best = search.escape(best, rng)
    order = ChangeOrder(present, best, bounds, search.frailty)
    ways = [(list(order.steps()), order.reached), *((steps, end) for end, steps in chains)]
    steps, _ = min(ways, key=lambda way: search.value_per_s(way[1]))
    return [_proposal(state, present, steps, place) for place in range(len(steps))]


def _chain(
    search: OverlaySearch, state: TreeState, context: TreeContext, *, is_homes_first: bool
) -> tuple[OverlayCosts, list[Step]]:
    """Return where links alone and homes alone lead, one after the other, and the steps."""
    reached = search.present.copy()
    steps: list[Step] = []
    for is_homes in (is_homes_first, not is_homes_first):
        if is_homes:
            before = reached.copy()
            search.rehome(reached)
            order = ChangeOrder(before, reached, search.search, search.frailty)
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


def _proposal(state: TreeState, present: OverlayCosts, steps: Sequence[Step], place: int) -> Proposal:
    step = steps[place]
    names, publishers = state.inventory.brokers, present.sets.publishers
    homes: dict[int, int] = {publisher: int(home) for publisher, home in enumerate(present.homes.tolist())}
    for earlier in steps[:place]:
        homes.update(earlier.moves)
    moves = tuple(ClientMove(publishers[one], names[homes[one]], names[home]) for one, home in step.moves)
    removed, added = _exchanged(step.swaps)
    return Proposal(
        PLANNER,
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


SPEC = PlannerSpec(
    PLANNER,
    Configuration.KIND,
    search_overlay_cost,
    OverlaySearchSettings,
    summary="links of a tree and publishers' homes together, by true cost",
    source="ours, on the cost of Jaeger07, Eq. 1-2",
)
