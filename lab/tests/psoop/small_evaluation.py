"""A task of the evaluation at a size that takes a fraction of a second: 12 brokers, 8 types, 2,000 ticks."""

from typing import Any

import msgspec

from regraft_lab.psoop.evaluation_tasks import Size, Task

SMALL = Task(
    "fig4",
    "uniform",
    topology=0,
    seed=3,
    variants=(
        "random_tree",
        "minimum_spanning_tree",
        "maximum_interest_tree",
        "swap_links_lmst",
        "swap_links_lmit",
        "swap_links_ci",
        "swap_links_cost",
    ),
    regime_ticks=2_000,
    broker_count=12,
    type_count=8,
)
SMALL_SIZE = Size(
    name="small",
    regime_ticks=2_000,
    topologies={"fig4": 2, "fig5": 1, "fig6": 1, "figh": 1},
    other_topologies=1,
    etas=(1, 4),
    alphas=(0.0, 1.0),
    lifetimes=(1, 4),
    memory_ticks=1_000,
    optimum_brokers=(5,),
    optimum_instances=1,
    decision_brokers=(10,),
    decisions=2,
    broker_count=12,
    type_count=8,
)


def changed(**fields: Any) -> Task:
    """Return the small task with some fields changed."""
    return msgspec.structs.replace(SMALL, **fields)
