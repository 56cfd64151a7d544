"""The built-in planners' algorithms and the steps that they share, for comparisons with others.

Their results are what the papers cited at each function describe; the steps may change with the planners.
"""

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
from regraft.controller.planners.tree.relocate_publisher_grape import PrioritySettings, relocate_publisher_grape
from regraft.controller.planners.tree.relocate_publisher_pop import (
    NEWEST_SHARE,
    TIE_SHARE,
    TraceSettings,
    probe_walk,
    relocate_publisher_pop,
    trace_probability,
)
from regraft.controller.planners.tree.relocate_publishers_joint import JointSettings, relocate_publishers_joint
from regraft.controller.planners.tree.steps.escape_links import escape
from regraft.controller.planners.tree.steps.price_frailty import FrailtyPrice
from regraft.controller.planners.tree.steps.search_swaps import Search, descend
from regraft.controller.planners.tree.steps.select_home_grape import Priority, select
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

__all__ = [
    "NEWEST_SHARE",
    "TIE_SHARE",
    "AskingUsers",
    "BrokerStates",
    "FrailtyPrice",
    "ImprovementPath",
    "JointSettings",
    "LocalKnowledge",
    "OwnPart",
    "PlacementRules",
    "PlacementSettings",
    "Priority",
    "PrioritySettings",
    "Reassignment",
    "Search",
    "TraceSettings",
    "agreed_swaps",
    "assign_ids",
    "best_on_path",
    "choose_homes",
    "cycle_costs",
    "descend",
    "escape",
    "improve_greedily",
    "indirect_costs",
    "local_knowledge",
    "mean_common_interest",
    "place_in_turn",
    "place_users_dynatops",
    "probe_walk",
    "rank_swaps",
    "relocate_publisher_grape",
    "relocate_publisher_pop",
    "relocate_publishers_joint",
    "select",
    "swaps_of",
    "trace_probability",
    "wanted_links",
    "wanting_paths",
]
