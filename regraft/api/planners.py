"""The built-in planners' algorithms and the steps that they share, for comparisons with others.

Their results are what the papers cited at each function describe; the steps may change with the planners.
"""

from regraft.controller.kinds.tree.describe_moves import move_gain_per_s, present_cost_per_s
from regraft.controller.planners.ring.place_users_dynatops import PlacementSettings, place_users_dynatops
from regraft.controller.planners.ring.steps.assign_ring_ids import assign_ids
from regraft.controller.planners.ring.steps.place_users import (
    AskingUsers,
    BrokerStates,
    OwnPart,
    PlacementRules,
    choose_homes,
    place_in_turn,
)
from regraft.controller.planners.ring.steps.search_ring_ids import (
    ImprovementPath,
    Reassignment,
    best_on_path,
    improve_greedily,
    swaps_of,
)
from regraft.controller.planners.tree.relocate_publishers_joint import JointSettings, relocate_publishers_joint
from regraft.controller.planners.tree.steps.escape_links import escape
from regraft.controller.planners.tree.steps.price_frailty import FrailtyPrice
from regraft.controller.planners.tree.steps.search_swaps import Search, descend
from regraft.controller.planners.tree.steps.select_home_grape import GrapeSelection, Priority, select
from regraft.controller.planners.tree.steps.trace_publishers import columns_by_publisher, subscribers_mean
from regraft.controller.planners.tree.swap_links_ci import (
    LocalKnowledge,
    agreed_swaps,
    cycle_costs,
    indirect_costs,
    local_knowledge,
    mean_common_interest,
    rank_swaps,
    wanted_links,
    wanting_paths,
)
from regraft.controller.state.planner_interface import moving_proposal

__all__ = [
    "AskingUsers",
    "BrokerStates",
    "FrailtyPrice",
    "GrapeSelection",
    "ImprovementPath",
    "JointSettings",
    "LocalKnowledge",
    "OwnPart",
    "PlacementRules",
    "PlacementSettings",
    "Priority",
    "Reassignment",
    "Search",
    "agreed_swaps",
    "assign_ids",
    "best_on_path",
    "choose_homes",
    "columns_by_publisher",
    "cycle_costs",
    "descend",
    "escape",
    "improve_greedily",
    "indirect_costs",
    "local_knowledge",
    "mean_common_interest",
    "move_gain_per_s",
    "moving_proposal",
    "place_in_turn",
    "place_users_dynatops",
    "present_cost_per_s",
    "rank_swaps",
    "relocate_publishers_joint",
    "select",
    "subscribers_mean",
    "swaps_of",
    "wanted_links",
    "wanting_paths",
]
