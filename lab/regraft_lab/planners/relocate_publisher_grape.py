"""Move publishers by GRAPE (Cheung09, section 4): least message rate, least delivery delay, or a mix of both.

Collecting traces belongs to :mod:`controller.planners.tree.steps.trace_publishers`, the selection to
:mod:`controller.planners.tree.steps.select_home_grape`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from regraft.api.planners import GrapeSelection, Priority
from regraft.api.planning import OrderSettings, PlannerSpec, SessionSettings, TreeContext, TreeState
from regraft.api.records import ClientMove, Proposal, figure
from regraft.api.trees import TreeConfiguration
from regraft_lab.planners.rank_moves import rank_moves

PLANNER = "relocate_publisher_grape"


@dataclass(frozen=True)
class PrioritySettings(SessionSettings, OrderSettings):
    """What GRAPE minimises."""

    # The metric that it minimises first, "load" (messages) or "delay". Load, since plans are judged by messages and
    # their cost.
    grape_priority: Priority = "load"


def relocate_publisher_grape(
    state: TreeState, settings: PrioritySettings, context: TreeContext, rng: random.Random
) -> list[Proposal]:
    """Return a move for each publisher that GRAPE wants elsewhere, independently of the others.

    ``grape_priority`` and ``grape_weight`` are its metric and weight; a trace session is the newest
    ``grape_notifications_min`` notifications, and a publisher with fewer in the horizon is skipped. Source: Cheung09,
    sections 4.1 and 4.2, Algorithms 1-3. Cost O(brokers) for each publisher, where the paper's is O(brokers^2).
    Guarantee: none for the overlay's cost, which GRAPE does not consider; with priority load and weight 100 the message
    rate of each publisher by itself is least. Departures: the session is cut out of the windows instead of being
    requested; the present broker is a candidate, too; delays of links count if ``link_delays`` is set; the ping from
    the publisher is left out, because the location of a publisher is unknown. Caps of load are not enforced, as in the
    paper.
    """
    if not state.can_move_publishers:
        return []
    reasons = {}
    for choice in GrapeSelection(state, settings).choices(settings.grape_priority, settings.grape_weight):
        if choice.home_to != choice.home_from:
            reasons[ClientMove(choice.publisher, choice.home_from, choice.home_to)] = (
                f"{figure(choice.messages_to)} instead of {figure(choice.messages_from)} messages per notification, "
                f"mean delay {figure(choice.delay_ms_to)} instead of {figure(choice.delay_ms_from)} ms "
                f"({settings.grape_priority} first, weight {settings.grape_weight})"
            )
    return rank_moves(state, settings.order, context, PLANNER, reasons, rng)


SPEC = PlannerSpec(
    PLANNER,
    TreeConfiguration.KIND,
    relocate_publisher_grape,
    PrioritySettings,
    summary="a publisher's home, by message rate and delivery delay",
    source="Cheung09, section 4",
)
