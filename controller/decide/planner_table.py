"""The planners by name: which paper each comes from and what it changes.

| name | paper | acts on |
|---|---|---|
| swap_links_cost | ours, on the cost of 000, Eq. 1-2 | links of a tree, by true cost |
| swap_links_ci | 000, section 4 | links of a tree, by cost and common interest |
| swap_links_lmst | 000, sections 3.1.2 and 5 | links of a tree, by link cost alone |
| swap_links_lmit | 000, sections 3.1.2 and 5 | links of a tree, by common interest alone |
| relocate_publisher_pop | 001, section 3 | a publisher's home, by the number of its subscribers |
| relocate_publisher_grape | 001, section 4 | a publisher's home, by message rate and delivery delay |
| relocate_publishers_joint | ours, for the problem of 001 | all publishers' homes, by true cost under caps of load |
| reassign_ids_ssbr | 002, section 5 | ring IDs, by relayed messages and delay |
| reassign_ids_assignment | ours, for the problem of 002 | ring IDs, by the same and with the price of each move |
| place_users_dynatops | 002, section 4 | users' homes on a ring, by likeness of interests and load |
"""

from collections.abc import Mapping

from controller.controller_settings import ControllerSettings
from controller.kinds.ring.ring_state import RingState
from controller.kinds.tree.tree_state import TreeState
from controller.planners import (
    place_users_dynatops,
    reassign_ids_assignment,
    reassign_ids_ssbr,
    relocate_publisher_grape,
    relocate_publisher_pop,
    relocate_publishers_joint,
    swap_links_ci,
    swap_links_cost,
    swap_links_lmit,
    swap_links_lmst,
)
from controller.state.planner_interface import Planner, PlannerOf
from overlay.chord_configuration import ChordConfiguration
from overlay.configuration import Configuration

CHAIN = "+"  # Joins the names of planners that decide one after the other on one plan.

LINK_PLANNERS: dict[str, PlannerOf[TreeState]] = {
    swap_links_cost.PLANNER: swap_links_cost.swap_links_cost,
    swap_links_ci.PLANNER: swap_links_ci.swap_links_ci,
    swap_links_lmst.PLANNER: swap_links_lmst.swap_links_lmst,
    swap_links_lmit.PLANNER: swap_links_lmit.swap_links_lmit,
}

HOME_PLANNERS: dict[str, PlannerOf[TreeState]] = {
    relocate_publisher_pop.PLANNER: relocate_publisher_pop.relocate_publisher_pop,
    relocate_publisher_grape.PLANNER: relocate_publisher_grape.relocate_publisher_grape,
    relocate_publishers_joint.PLANNER: relocate_publishers_joint.relocate_publishers_joint,
}

TREE_PLANNERS: dict[str, PlannerOf[TreeState]] = LINK_PLANNERS | HOME_PLANNERS

RING_PLANNERS: dict[str, PlannerOf[RingState]] = {
    reassign_ids_ssbr.PLANNER: reassign_ids_ssbr.reassign_ids_ssbr,
    reassign_ids_assignment.PLANNER: reassign_ids_assignment.reassign_ids_assignment,
    place_users_dynatops.PLANNER: place_users_dynatops.place_users_dynatops,
}

PLANNERS_OF_KIND: Mapping[str, Mapping[str, Planner]] = {
    Configuration.KIND: TREE_PLANNERS,
    ChordConfiguration.KIND: RING_PLANNERS,
}

PLANNERS: dict[str, Planner] = {name: one for planners in PLANNERS_OF_KIND.values() for name, one in planners.items()}


def planner_names(chain: str) -> tuple[str, ...]:
    """Return the names in a chain such as ``swap_links_cost+relocate_publishers_joint``, in their order."""
    return tuple(name.strip() for name in chain.split(CHAIN))


def planners_of(chain: str) -> tuple[Planner, ...]:
    """Return the planners of a chain. Raises KeyError for a name that is not known."""
    return tuple(PLANNERS[name] for name in planner_names(chain))


def planner_faults(settings: ControllerSettings) -> list[str]:
    """Return which planners that the settings name are not known, one sentence each."""
    known = ", ".join(sorted(PLANNERS))
    return [
        f"{what} {name!r} is unknown, known are {known}, or several joined by {CHAIN}"
        for what, chain in _named_in(settings)
        for name in planner_names(chain)
        if name not in PLANNERS
    ]


def kind_faults(settings: ControllerSettings, kind: str) -> list[str]:
    """Return which planners that the settings name do not plan for this kind of overlay, one sentence each."""
    planned = PLANNERS_OF_KIND[kind]
    return [
        f"{what} {name!r} cannot plan for a {kind}, which the overlay is: take one of {', '.join(sorted(planned))}, "
        f"or several of them joined by {CHAIN}"
        for what, chain in _named_in(settings)
        for name in planner_names(chain)
        if name not in planned
    ]


def _named_in(settings: ControllerSettings) -> list[tuple[str, str]]:
    shadows = dict.fromkeys(settings.shadow_planners)
    return [("planner", settings.planner), *(("shadow planner", chain) for chain in shadows)]
