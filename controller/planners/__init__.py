"""Planners: pure functions (state, settings, context, rng) -> proposals, one file for each algorithm. No clock, no I/O.

Each file ends with its ``SPEC``. Which of them are ours stands here; :mod:`controller.decide.find_planners` finds them.
"""

BUILT_IN = (
    "controller.planners.search_overlay_cost",
    "controller.planners.swap_links_cost",
    "controller.planners.swap_links_ci",
    "controller.planners.swap_links_lmst",
    "controller.planners.swap_links_lmit",
    "controller.planners.relocate_publisher_pop",
    "controller.planners.relocate_publisher_grape",
    "controller.planners.relocate_publishers_joint",
    "controller.planners.reassign_ids_ssbr",
    "controller.planners.reassign_ids_assignment",
    "controller.planners.place_users_dynatops",
)
