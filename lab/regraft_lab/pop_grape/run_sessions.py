"""GRAPE with other lengths of a trace session: it decides after each session, from that session alone.

Section 5.2 varies G_threshold like this ("Impact of POP and GRAPE's Sampling Trigger").
"""

from __future__ import annotations

import random

import numpy as np

from regraft.api.overlays import Inventory
from regraft.api.planning import ClosedWindow
from regraft.api.trees import PublisherCosts, bootstrap_tree
from regraft_lab.pop_grape.choose_homes import WAYS, decide_homes
from regraft_lab.pop_grape.count_window import WorkloadCounter
from regraft_lab.pop_grape.placement_measures import counted
from regraft_lab.pop_grape.quote_workload import QuoteWorkload
from regraft_lab.pop_grape.relocation_outcome import Outcome
from regraft_lab.pop_grape.relocation_tasks import Task
from regraft_lab.pop_grape.testbeds import hops_between

# Messages through brokers besides one in each direction along the path: the migration advertisement, "resume" and
# "disconnect" (section 3.3). Subscriptions that move along the path are left out: their number depends on covering.
MIGRATION_MESSAGES = 3


def session_outcome(
    way_name: str, length: int, task: Task, inventory: Inventory, workload: QuoteWorkload, rng: random.Random
) -> Outcome:
    """Return the outcome of a way that decides after every ``length`` publications, including its own messages.

    These are a TIR and a TIA over each link that carried the session, and for a move a MUM and an MCM over each link of
    the path (sections 3.3 and 4.1). The time until the end of the task's longest session is left out as warm-up.
    """
    way, counter = WAYS[way_name].with_sessions(length), WorkloadCounter(inventory, workload, task.publications)
    homes, windows = workload.homes, list[ClosedWindow]()
    overhead, moved, hops_moved = 0, 0, 0
    for first in range(0, task.publications - length + 1, length):
        window = counter.window(homes, first, length)
        wanted = decide_homes(way, inventory, [window], rng)
        if first >= max(task.steps):
            hops = [
                hops_between(bootstrap_tree(inventory), homes[publisher])[home]
                for publisher, home in wanted.items()
                if home != homes[publisher]
            ]
            windows.append(window)
            moved, hops_moved = moved + len(hops), hops_moved + sum(hops)
            overhead += 2 * sum(hops) + MIGRATION_MESSAGES * len(hops)
            overhead += 2 * _links_of_session(window, inventory) if way.planner else 0
        homes = wanted
    span_s = sum(window.sets.span_s for window in windows)
    return Outcome(
        way_name,
        counted(windows, bootstrap_tree(inventory), inventory, workload.homes),
        homes,
        rounds=len(windows),
        moved=moved,
        hops_moved=hops_moved,
        cost_decided_per_s=0.0,
        step=length,
        overhead_per_s=overhead / span_s / len(inventory.brokers),
    )


def _links_of_session(window: ClosedWindow, inventory: Inventory) -> int:
    """Return the number of links that carried notifications of the session, counted separately for each publisher."""
    costs = PublisherCosts(bootstrap_tree(inventory), inventory, [window.sets])
    passed = [costs.loads_per_s(publisher, window.homes[publisher]) > 0 for publisher in costs.publishers]
    return sum(int(np.count_nonzero(brokers)) - 1 for brokers in passed)
