"""Move single clients of a tree to where they cost least: ours, for clients beside agents next to real brokers."""

from __future__ import annotations

import random
from dataclasses import dataclass

from regraft.controller.kinds.tree.tree_state import TreeContext, TreeState
from regraft.controller.planners.tree.steps.move_single import single_moves
from regraft.controller.settings.planner_settings import PlannerSettings
from regraft.controller.state.planner_interface import PlannerSpec
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.schemas.plan import Proposal

PLANNER = "place_clients_cost"


@dataclass(frozen=True)
class PlaceClientsSettings(PlannerSettings):
    """How far clients may move, and how many."""

    # The longest delay between a client, or the broker that it leaves, and the one it goes to. 40 ms: across a
    # continent, not an ocean; an agent's list of brokers limits it further.
    detour_ms_max: float = 40.0
    # A move that saves less than this share of the cost is not proposed.
    saving_share_min: float = 0.0005
    # Clients moved in one call. Default 8.
    clients_max: int = 8


def place_clients_cost(
    state: TreeState, settings: PlaceClientsSettings, context: TreeContext, rng: random.Random
) -> list[Proposal]:
    """Return moves of single clients, the one that saves most first, each priced on the overlay after the earlier ones.

    A client beside an agent moves with all its subscriptions and all that it publishes; of others, subscribers that
    brokers report separately move (``emulator.subscribers_reported_max``). The price is that of the links, of handing
    over at either broker, and of the client's longer way: the delay between the two for all that it receives and,
    beside an agent, publishes. No move puts a broker above its cap. Source: ours, on the cost of Jaeger07, Eq. 1-2.
    Cost: that of :func:`controller.planners.tree.steps.move_single.single_moves`. Guarantee: each proposal lowers the
    cost; none of the optimum. Deterministic: nothing is drawn from ``rng``. Nothing is proposed unless publishers'
    homes are known.
    """
    if not state.can_move_publishers:
        return []
    count_max = min(settings.clients_max, context.single_max, context.proposals_max)
    moves = single_moves(PLANNER, state, count_max, settings.detour_ms_max, settings.saving_share_min)
    return [proposal for proposal, _ in moves]


SPEC = PlannerSpec(
    PLANNER,
    TreeConfiguration.KIND,
    place_clients_cost,
    PlaceClientsSettings,
    summary="single clients of a tree, such as those beside agents, to where they cost least",
    source="ours, on the cost of Jaeger07, Eq. 1-2",
)
