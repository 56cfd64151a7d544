"""Find new homes for publishers whose broker is no longer in the tree: the cheapest within the caps of load.

The subscribers of a leaving broker go to one other broker together: the controller does not know them individually.
Those of a lost broker wait for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from regraft.controller.kinds.repair import RepairTask
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.sets.weighted_sets import WeightedSets
from regraft.overlay.tree.publisher_costs import PublisherCosts
from regraft.overlay.tree.publisher_placement import ROUNDING_SHARE
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.overlay.tree.tree_costs import TreeCosts
from regraft.schemas.plan import ClientMove, HomeMove


def rehomed_publishers(
    tree: TreeConfiguration, homes: Mapping[str, str], emptied: Collection[str], task: RepairTask
) -> tuple[tuple[ClientMove, ...], float]:
    """Return moves of publishers whose home is one of ``emptied``, and what they add to the cost per second.

    Without a home, what they published costs only its transport from one interested broker to the others. At most as
    many move as the task allows, the busiest first, each to its cheapest home with room, or to the cheapest of all if
    none has: any home is better than none. One that the windows do not show goes to the broker nearest to its old one,
    as do those beyond ``priced_max``. Brokers in maintenance get none, unless there are no others, and if clients stay,
    none move. Cost O(brokers) for each publisher and home tried.
    """
    leaving = sorted(name for name, home in homes.items() if home in emptied)
    if not leaving or task.fleet.clients_stay:
        return (), 0.0
    inventory = task.fleet.restricted_to(tree.brokers)
    is_open = _open_brokers(tree, task)
    priced = _priced(tree, homes, leaving, task)
    rates = {} if priced is None else dict(zip(priced.publishers, priced.published_per_s.tolist(), strict=True))
    caps, loads = inventory.load_max_per_s, np.zeros(len(tree.brokers))
    if priced is not None and caps is not None:
        for publisher in priced.publishers:
            if homes.get(publisher) in tree.neighbours:
                loads += priced.loads_per_s(publisher, homes[publisher])
    moves = []
    busiest_first = sorted(leaving, key=lambda name: (-rates.get(name, 0.0), name))
    for place, publisher in enumerate(busiest_first[: task.moves_max]):
        if priced is None or publisher not in rates or place >= task.priced_max:
            home = _nearest(tree, homes[publisher], is_open, task)
        else:
            home, loads = _cheapest(priced, publisher, is_open, loads, caps)
        moves.append(ClientMove(publisher, homes[publisher], home))
    moved = {move.client: move.home_to for move in moves if move.client in rates}
    if priced is None or not moved:
        return tuple(sorted(moves)), 0.0
    at_homes = sum(priced.cost_per_s(publisher, home) for publisher, home in moved.items())
    return tuple(sorted(moves)), at_homes - _cost_unpublished_per_s(tree, homes, moved, task)


def rehomed_subscribers(tree: TreeConfiguration, task: RepairTask) -> tuple[HomeMove, ...]:
    """Return moves of all subscribers of each leaving broker to the one with the cheapest link to it.

    Empty if clients stay: those of a real broker receive nothing from the overlay once it leaves.
    """
    if task.fleet.clients_stay:
        return ()
    is_open = _open_brokers(tree, task)
    return tuple(HomeMove(broker, _nearest(tree, broker, is_open, task)) for broker in sorted(task.change.left))


def _open_brokers(tree: TreeConfiguration, task: RepairTask) -> NDArray[np.bool_]:
    """Return which brokers of the tree accept clients: those in maintenance do not, unless there are no others."""
    is_open = np.array([broker not in task.avoided for broker in tree.brokers])
    return is_open if is_open.any() else np.ones(len(tree.brokers), dtype=np.bool_)


def _cost_unpublished_per_s(
    tree: TreeConfiguration, homes: Mapping[str, str], publishers: Collection[str], task: RepairTask
) -> float:
    """Return the cost of delivering what these publishers published at gone brokers to all that want it."""
    spans = [window.sets.of_publishers(publishers) for window in task.windows]
    spans = [at_known_homes(span, homes, tree.brokers).over(tree.brokers) for span in spans]
    return TreeCosts(tree, task.fleet.restricted_to(tree.brokers), WeightedSets.over_all(spans)).cost_per_s


def _cheapest(
    priced: PublisherCosts,
    publisher: str,
    is_open: NDArray[np.bool_],
    loads: NDArray[np.float64],
    caps: NDArray[np.float64] | None,
) -> tuple[str, NDArray[np.float64]]:
    """Return the cheapest home within the caps, else the cheapest of all, and the loads with the publisher there."""
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


def _nearest(tree: TreeConfiguration, home: str, is_open: NDArray[np.bool_], task: RepairTask) -> str:
    """Return the open broker with the cheapest link to the old home, or the first one if link costs are unknown."""
    index = task.fleet.index
    open_homes = [broker for broker, takes in zip(tree.brokers, is_open.tolist(), strict=True) if takes]
    if home not in index:
        return open_homes[0]
    return min(open_homes, key=lambda broker: (task.fleet.cost_of_link(home, broker), broker))


def _priced(
    tree: TreeConfiguration, homes: Mapping[str, str], leaving: Sequence[str], task: RepairTask
) -> PublisherCosts | None:
    """Return what publishers cost at each home of the tree, or None without windows.

    Covers all publishers if there are caps of load, which they share; else only those that leave.
    """
    if not task.windows:
        return None
    provisional = {**homes, **dict.fromkeys(leaving, tree.brokers[0])}  # Any will do: homes are priced.
    spans = [window.sets for window in task.windows]
    if task.fleet.load_max_per_s is None:
        spans = [span.of_publishers(frozenset(leaving)) for span in spans]
    spans = [at_known_homes(span, provisional, tree.brokers).over(tree.brokers) for span in spans]
    return PublisherCosts(tree, task.fleet.restricted_to(tree.brokers), spans)


def at_known_homes(sets: DeliverySets, homes: Mapping[str, str], brokers: tuple[str, ...]) -> DeliverySets:
    """Return the sets over these brokers, too, with publishers at their homes.

    Publishers that ``homes`` does not name stay.
    """
    publishers = {name for name, _ in sets.columns}
    placed = {name: home for name, home in homes.items() if name in publishers}
    return sets.over(tuple(sorted({*sets.brokers, *brokers, *placed.values()}))).at_homes(placed)
