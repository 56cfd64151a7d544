"""Planners: pure functions (state, settings, context, rng) -> proposals, one file for each algorithm. No clock, no I/O.

Each file ends with its ``SPEC``. ``BUILT_IN`` lists the built-in ones; :mod:`controller.planners.planner_registry`
loads them.
"""

BUILT_IN = (
    "regraft.controller.planners.tree.search_overlay_cost",
    "regraft.controller.planners.tree.escape_overlay_cost",
    "regraft.controller.planners.tree.pack_users_drop",
    "regraft.controller.planners.tree.swap_links_cost",
    "regraft.controller.planners.tree.swap_links_ci",
    "regraft.controller.planners.tree.relocate_publishers_joint",
    "regraft.controller.planners.tree.place_clients_cost",
    "regraft.controller.planners.ring.reassign_ids_ssbr",
    "regraft.controller.planners.ring.reassign_ids_assignment",
    "regraft.controller.planners.ring.place_users_dynatops",
    "regraft.controller.planners.scot.move_publishers_scot",
    "regraft.controller.planners.scot.relieve_links_scot",
    "regraft.controller.planners.scot.exchange_places_scot",
    "regraft.controller.planners.scot.link_regions_scot",
)
