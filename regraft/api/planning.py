"""What a planner gets, returns and is found by.

A planner is a pure function (state, settings, context, rng) -> proposals, offered by an entry point of the group
``regraft.planners`` (docs/tutorial.md, part 5).
"""

from regraft.controller.decide.decide_plan import decide_plan
from regraft.controller.decide.judge_proposals import Situation
from regraft.controller.kinds.ring.ring_state import PAPER_RATE_FILTER, RingContext, RingState, RingTraffic
from regraft.controller.kinds.tree.tree_state import TreeContext, TreeState
from regraft.controller.planners.planner_registry import planner_of, planner_spec, planners_of
from regraft.controller.planners.shared_settings import HorizonSettings, Order, OrderSettings, SessionSettings
from regraft.controller.settings.controller_settings import (
    TERM_FIRST,
    AssemblyLimits,
    ControllerSettings,
    TransitionLimits,
)
from regraft.controller.settings.decision_settings import DecisionSettings
from regraft.controller.settings.member_settings import MemberSettings
from regraft.controller.settings.planner_settings import PlannerSettings
from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.state.plan_log import PlanLog
from regraft.controller.state.planner_interface import AnyPlannerSpec, Planner, PlannerSpec

__all__ = [
    "PAPER_RATE_FILTER",
    "TERM_FIRST",
    "AnyPlannerSpec",
    "AssemblyLimits",
    "ClosedWindow",
    "ControllerSettings",
    "DecisionSettings",
    "HorizonSettings",
    "MemberSettings",
    "Order",
    "OrderSettings",
    "PlanLog",
    "Planner",
    "PlannerSettings",
    "PlannerSpec",
    "RingContext",
    "RingState",
    "RingTraffic",
    "SessionSettings",
    "Situation",
    "TransitionLimits",
    "TreeContext",
    "TreeState",
    "decide_plan",
    "planner_of",
    "planner_spec",
    "planners_of",
]
