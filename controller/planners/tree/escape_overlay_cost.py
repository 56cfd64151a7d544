"""Kick links and publishers' homes together where neither alone helps: ours, the end of a chain of planners."""

from __future__ import annotations

import random
from dataclasses import dataclass

from regraft.controller.kinds.tree.tree_state import TreeContext, TreeState
from regraft.controller.planners.tree.steps.propose_overlay import escape_proposals
from regraft.controller.settings.planner_settings import PlannerSettings
from regraft.controller.state.planner_interface import PlannerSpec
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.schemas.plan import Proposal

PLANNER = "escape_overlay_cost"


@dataclass(frozen=True)
class EscapeSettings(PlannerSettings):
    """How much is evaluated, in 64-bit words of delivery sets."""

    # Bounds the kicks. 1e7, some 20 ms at 40 brokers: an overlay is kicked again in each window.
    escape_words_max: int = 10_000_000


def escape_overlay_cost(
    state: TreeState, settings: EscapeSettings, context: TreeContext, rng: random.Random
) -> list[Proposal]:
    """Return swaps of links and moves of publishers that save together where no link and no home alone saves.

    Where the home of a publisher relays between its own subscribers, no swap helps while it is there, and no move helps
    on the present links. So random kicks of the links are followed by descents over both, within what one plan may
    change and the caps; of up to six brokers without caps of load every tree is priced with the cheapest homes on it.
    This does not wait until no single change helps: on real traffic some always do, by less than luck. The best result
    is split into ordered changes as by :mod:`controller.planners.tree.search_overlay_cost`, of which this is the last
    part. Source: the cost is Eq. 1-2 of Jaeger07. Cost: the budget. Guarantee: the proposals together lower cost plus
    frailty; for up to six brokers without caps of load and frailty to the least that one plan may reach, else none of
    the optimum. Deterministic: the budget is counted in words evaluated, kicks are drawn from ``rng``. Nothing is
    proposed unless publishers can move.
    """
    if not state.can_move_publishers:
        return []
    return escape_proposals(PLANNER, state, context, rng, settings.escape_words_max)


SPEC = PlannerSpec(
    PLANNER,
    TreeConfiguration.KIND,
    escape_overlay_cost,
    EscapeSettings,
    summary="links of a tree and publishers' homes together, after planners of either, by true cost",
    source="ours, on the cost of Jaeger07, Eq. 1-2",
)
