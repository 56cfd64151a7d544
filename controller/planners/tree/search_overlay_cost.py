"""Search links and publishers' homes together by true cost: ours, in place of one planner after the other."""

from __future__ import annotations

import random
from dataclasses import dataclass

from regraft.controller.kinds.tree.tree_state import TreeContext, TreeState
from regraft.controller.planners.tree.steps.propose_overlay import overlay_proposals
from regraft.controller.settings.planner_settings import PlannerSettings
from regraft.controller.state.planner_interface import PlannerSpec
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.schemas.plan import Proposal

PLANNER = "search_overlay_cost"


@dataclass(frozen=True)
class OverlaySearchSettings(PlannerSettings):
    """How much is evaluated, in 64-bit words of delivery sets."""

    # Bounds the descents from all starts, in 64-bit words of delivery sets. Default 1e9, about a second.
    search_words_max: int = 1_000_000_000
    # The same for kicks after them. Default 1e8, some 100 ms compiled, 600 ms with numpy.
    escape_words_max: int = 100_000_000


def search_overlay_cost(
    state: TreeState, settings: OverlaySearchSettings, context: TreeContext, rng: random.Random
) -> list[Proposal]:
    """Return swaps of links and moves of publishers ordered by what they save, grouped if they save only together.

    Descents alternate between moving publishers to their best homes and swapping links until neither helps. They start
    at the present overlay and at where links alone and homes alone lead, then at kicks of the best overlay found. All
    stay within what one plan may change (``links_max``, ``moves_max``) and within the caps of degree and load. The best
    result is split into ordered changes, each priced on the overlay after the earlier ones; the penalty for a single
    death cutting off more (``context.frailty_weight``) is subtracted from their gain. ``proposals_max`` bounds links
    and moves separately, as it does for two planners in turn. Source: the cost is Eq. 1-2 of Jaeger07. Cost O(brokers^2
    * words) for an evaluation of all links of up to some 300 brokers, O(brokers * words) for one of all homes; in a
    larger overlay the most expensive links are evaluated first. Guarantee: links alone followed by homes alone, or the
    other way round, reach no lower value within the same limits; the optimum for up to six brokers without caps of load
    and frailty, where every tree is priced instead of kicks, else none. Deterministic: budgets are counted in words
    evaluated, kicks drawn from ``rng``. Any-time: when a budget ends, the best found so far is
    returned.
    """
    return overlay_proposals(PLANNER, state, context, rng, settings.search_words_max, settings.escape_words_max)


SPEC = PlannerSpec(
    PLANNER,
    TreeConfiguration.KIND,
    search_overlay_cost,
    OverlaySearchSettings,
    summary="links of a tree and publishers' homes together, by true cost",
    source="ours, on the cost of Jaeger07, Eq. 1-2",
)
