"""The planners by name: which paper each comes from and what it changes.

| name | paper | acts on |
|---|---|---|
| swap_links_cost | ours, on the cost of 000, Eq. 1-2 | links of a tree, by true cost |
| swap_links_ci | 000, section 4 | links of a tree, by cost and common interest |
| swap_links_lmst | 000, sections 3.1.2 and 5 | links of a tree, by link cost alone |
| swap_links_lmit | 000, sections 3.1.2 and 5 | links of a tree, by common interest alone |
"""

from controller.planner_interface import Planner
from controller.planners import swap_links_ci, swap_links_cost, swap_links_lmit, swap_links_lmst

PLANNERS: dict[str, Planner] = {
    swap_links_cost.PLANNER: swap_links_cost.swap_links_cost,
    swap_links_ci.PLANNER: swap_links_ci.swap_links_ci,
    swap_links_lmst.PLANNER: swap_links_lmst.swap_links_lmst,
    swap_links_lmit.PLANNER: swap_links_lmit.swap_links_lmit,
}
