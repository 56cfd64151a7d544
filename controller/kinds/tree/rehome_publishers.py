"""New homes for publishers whose broker is no longer in the tree: the cheapest that the caps of load leave.

In: the tree without them, where they were, and the last windows. Out: moves. Subscribers of a tree have no other home.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from controller.kinds.repair import RepairTask, inventory_over
from overlay.configuration import Configuration
from overlay.delivery_sets import DeliverySets
from overlay.publisher_costs import PublisherCosts
from overlay.publisher_placement import ROUNDING_SHARE
from schemas.plan import ClientMove


def rehomed_publishers(
    tree: Configuration, homes: Mapping[str, str], emptied: Collection[str], task: RepairTask
) -> tuple[ClientMove, ...]:
    """Return moves of publishers whose home is one of ``emptied``, at most as many as the task allows.

    The busiest comes first, each to its cheapest home that has room; to the cheapest of all where none has: any home is
    better than none. One that the windows do not know goes to the broker nearest to its old one. Brokers in maintenance
    take nobody, unless there is no other. Cost O(brokers) for each publisher and home tried.
    """
    leaving = sorted(name for name, home in homes.items() if home in emptied)
    if not leaving:
        return ()
    inventory = inventory_over(task.fleet, tree)
    is_open = np.array([broker not in task.avoided for broker in tree.brokers])
    if not is_open.any():
        is_open[:] = True
    priced = _priced(tree, homes, leaving, task)
    rates = {} if priced is None else dict(zip(priced.publishers, priced.published_per_s.tolist(), strict=True))
    caps, loads = inventory.load_max_per_s, np.zeros(len(tree.brokers))
    if priced is not None and caps is not None:
        for publisher in priced.publishers:
            if homes.get(publisher) in tree.neighbours:
                loads += priced.loads_per_s(publisher, homes[publisher])
    moves = []
    for publisher in sorted(leaving, key=lambda name: (-rates.get(name, 0.0), name))[: task.moves_max]:
        if priced is None or publisher not in rates:
            home = _nearest(tree, homes[publisher], is_open, task)
        else:
            home, loads = _cheapest(priced, publisher, is_open, loads, caps)
        moves.append(ClientMove(publisher, homes[publisher], home))
    return tuple(sorted(moves))


def _cheapest(
    priced: PublisherCosts,
    publisher: str,
    is_open: NDArray[np.bool_],
    loads: NDArray[np.float64],
    caps: NDArray[np.float64] | None,
) -> tuple[str, NDArray[np.float64]]:
    """Return the cheapest home that the caps leave, and the loads with the publisher there."""
    costs = np.where(is_open, priced.costs_per_s[priced.place_of(publisher)], np.inf)
    order = np.argsort(costs, kind="stable")[: int(is_open.sum())].tolist()
    if caps is None:
        return priced.brokers[order[0]], loads
    limits = np.maximum(caps, loads) * (1 + ROUNDING_SHARE)
    for place in order:
        after = loads + priced.loads_per_s(publisher, priced.brokers[place])
        if (after <= limits).all():
            return priced.brokers[place], after
    return priced.brokers[order[0]], loads + priced.loads_per_s(publisher, priced.brokers[order[0]])


def _nearest(tree: Configuration, home: str, is_open: NDArray[np.bool_], task: RepairTask) -> str:
    """Return the open broker with the cheapest link to the old home, the first one where that has no known cost."""
    index = task.fleet.index
    open_homes = [broker for broker, takes in zip(tree.brokers, is_open.tolist(), strict=True) if takes]
    if home not in index:
        return open_homes[0]
    return min(open_homes, key=lambda broker: (task.fleet.cost_of_link(home, broker), broker))


def _priced(
    tree: Configuration, homes: Mapping[str, str], leaving: Sequence[str], task: RepairTask
) -> PublisherCosts | None:
    """Return what publishers cost at each home of the tree, None where the windows do not tell."""
    if not task.windows or any(window.sets.delivered is None for window in task.windows):
        return None
    provisional = {**homes, **dict.fromkeys(leaving, tree.brokers[0])}  # Where they publish is what is to be priced.
    spans = [sets_over(window.sets, provisional, tree.brokers) for window in task.windows]
    return PublisherCosts(tree, inventory_over(task.fleet, tree), spans)


def sets_over(sets: DeliverySets, homes: Mapping[str, str], brokers: tuple[str, ...]) -> DeliverySets:
    """Return what these brokers want, and what publishers whose home is one of them publish.

    Publishers that ``homes`` does not name are where they were, all where it is not known what was only published.
    """
    known = {name for name, _ in sets.columns}
    placed = {name: home for name, home in homes.items() if name in known}
    if sets.delivered is not None:
        sets = sets.over(tuple(sorted({*sets.brokers, *brokers, *placed.values()}))).at_homes(placed)
    return sets.over(brokers)
