"""Planners: pure functions (state, settings, context, rng) -> proposals, one file for each algorithm. No clock, no I/O.

Each file ends with its ``SPEC``. ``BUILT_IN`` lists the built-in ones; :mod:`controller.decide.find_planners` loads
them.
"""

BUILT_IN = (
    "regraft.controller.planners.search_overlay_cost",
    "regraft.controller.planners.pack_users_drop",
    "regraft.controller.planners.swap_links_cost",
    "regraft.controller.planners.swap_links_ci",
    "regraft.controller.planners.relocate_publisher_pop",
    "regraft.controller.planners.relocate_publisher_grape",
    "regraft.controller.planners.relocate_publishers_joint",
    "regraft.controller.planners.reassign_ids_ssbr",
    "regraft.controller.planners.reassign_ids_assignment",
    "regraft.controller.planners.place_users_dynatops",
    "regraft.controller.planners.move_publishers_scot",
    "regraft.controller.planners.relieve_links_scot",
    "regraft.controller.planners.exchange_places_scot",
    "regraft.controller.planners.link_regions_scot",
)
