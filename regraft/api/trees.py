"""Trees as values: configurations, costs of swaps and homes, paths.

Costs are those of Jaeger07, Eq. 1-2, per second.
"""

from regraft.controller.planners.tree.swap_links_ci import Paths, paths_within
from regraft.overlay.cut_off import DeliveryPairs
from regraft.overlay.tree.build_tree import bootstrap_tree, cheap_tree, cycle_links, random_tree
from regraft.overlay.tree.link_sides import RootedTree
from regraft.overlay.tree.overlay_cost import overlay_cost
from regraft.overlay.tree.publisher_costs import PublisherCosts
from regraft.overlay.tree.trace_sessions import HopDelays, SessionMetrics, TraceSessions
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.overlay.tree.tree_costs import LinkSwap, TreeCosts
from regraft.overlay.tree.tree_cut_off import tree_cut_off
from regraft.schemas.arrays import Flags, Floats

__all__ = [
    "DeliveryPairs",
    "Flags",
    "Floats",
    "HopDelays",
    "LinkSwap",
    "Paths",
    "PublisherCosts",
    "RootedTree",
    "SessionMetrics",
    "TraceSessions",
    "TreeConfiguration",
    "TreeCosts",
    "bootstrap_tree",
    "cheap_tree",
    "cycle_links",
    "overlay_cost",
    "paths_within",
    "random_tree",
    "tree_cut_off",
]
