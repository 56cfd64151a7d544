"""Cheung09's evaluation at a size that runs in seconds: tasks on trees of 7 and 63 brokers, and a hand-made window."""

from collections.abc import Mapping

import numpy as np

from regraft.api.overlays import DeliverySets, Inventory
from regraft.api.planning import ClosedWindow
from regraft.api.trees import TreeConfiguration
from regraft_lab.pop_grape.relocation_tasks import Size

SMALL_SIZE = Size(
    name="small",
    draws={"planetlab": {"shared": 1}},
    interested_brokers=(1, 2),
    publisher_count=2,
    counted_draws=2,
    counted_brokers=(1, 2),
    session_lengths=(10, 20),
    session_publications=60,
    session_draws=2,
    distributed_brokers=(),
    has_triggers=False,
    migrations=0,
    selection_brokers=(7,),
)


def line_inventory() -> Inventory:
    """Return three brokers in a row, a - b - c: links of 10 and 20 ms, 5 ms between the ends; service 1, 2 and 3 ms."""
    tree = TreeConfiguration.of(0, "abc", [("a", "b"), ("b", "c")])
    link_ms = np.array([[0.0, 10.0, 5.0], [10.0, 0.0, 20.0], [5.0, 20.0, 0.0]])
    return Inventory(tree.brokers, np.array([1.0, 2.0, 3.0]), link_ms, 3, tree)


def line_window(homes: Mapping[str, str]) -> ClosedWindow:
    """Return one second in which p publishes 4: one subscriber at b gets all, two at c get the first two."""
    delivered = {("b", "p", 0): 0b1111, ("c", "p", 0): 0b0011}
    return ClosedWindow(
        0,
        1_000,
        DeliverySets.of("abc", delivered, 1.0, {(homes["p"], "p", 0): 0b1111}),
        homes=dict(homes),
        local_deliveries={("p", "b"): 4, ("p", "c"): 4},
    )
