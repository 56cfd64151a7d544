"""Find homes for publishers whose broker is gone from a structured cyclic overlay: as near as the caps of load allow.

In: the overlay without them, moves to the stand-ins, and the last windows. Out: the moves, some of them to others, and
the brokers that remain above their caps. :mod:`controller.kinds.scot.repair_scot` chooses the stand-ins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from regraft.controller.kinds.repair import RepairTask
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.scot.scot_costs import scot_breakdown
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.tree.publisher_placement import ROUNDING_SHARE
from regraft.schemas.plan import ClientMove
from regraft.schemas.texts import figure

HOMES_TRIED_MAX = 8  # For each publisher: a repair must be fast.


@dataclass(frozen=True, eq=False)
class ScotLoads:
    """The load of an overlay's brokers with static routing, by publisher and home, over the last windows."""

    overlay: ScotConfiguration
    task: RepairTask

    @property
    def are_known(self) -> bool:
        """Return True if there are caps to compare loads with, and windows."""
        return self.task.fleet.load_max_per_s is not None and bool(self.task.windows)

    @cached_property
    def caps(self) -> NDArray[np.float64]:
        """The cap of each broker of the overlay, with a margin for rounding."""
        fleet = self.task.fleet
        assert fleet.load_max_per_s is not None
        slots = [fleet.index[broker] for broker in self.overlay.brokers]
        return np.asarray(fleet.load_max_per_s[slots] * (1 + ROUNDING_SHARE))

    @cached_property
    def _counting(self) -> Inventory:
        """The overlay's brokers with a processing cost of 1 per notification, so that cost equals load."""
        inventory = self.task.fleet.restricted_to(self.overlay.brokers)
        return replace(inventory, processing_cost=np.ones(len(inventory.brokers)))

    @cached_property
    def _sets(self) -> DeliverySets:
        parts = [window.sets for window in self.task.windows]
        whole = tuple(sorted({*self.overlay.brokers, *(broker for one in parts for broker in one.brokers)}))
        return DeliverySets.joined([one.over(whole) for one in parts])

    def of(self, homes: Mapping[str, str]) -> NDArray[np.float64]:
        """Return the load per second of each broker due to publishers at these homes only."""
        sets = self._sets.of_publishers(homes.keys()).at_homes(homes).over(self.overlay.brokers)
        passed = scot_breakdown(self.overlay.with_homes(homes), self._counting, sets).brokers_per_s
        return np.array([passed.get(broker, 0.0) for broker in self.overlay.brokers])


def homes_within_caps(
    loads: ScotLoads, moves: Sequence[ClientMove], open_to: Sequence[str]
) -> tuple[tuple[ClientMove, ...], list[str]]:
    """Return the moves, each to the first home that keeps all caps, and a sentence for each broker above its cap.

    Homes are tried from the stand-in outwards by the cost of its links, a few for each publisher, for at most
    ``priced_max`` publishers. A publisher without a home within the caps goes to the stand-in; load that no choice of
    homes avoids remains. Without caps, or windows that report loads, the moves stay unchanged.
    """
    if not loads.are_known:
        return tuple(moves), []
    moved = {move.client for move in moves}
    now = loads.of({name: home for name, home in loads.overlay.homes if name not in moved})
    moves_made = []
    for slot, move in enumerate(moves):
        fleet, successor = loads.task.fleet, move.home_to
        tried = sorted(open_to, key=lambda broker: (broker != successor, fleet.cost_of_link(successor, broker), broker))
        tried = tried[: HOMES_TRIED_MAX if slot < loads.task.priced_max else 1]
        after = {home: now + loads.of({move.client: home}) for home in tried}
        limits = np.maximum(loads.caps, now)
        best = next((home for home in tried if (after[home] <= limits).all()), successor)
        now = after.get(best, now)
        moves_made.append(ClientMove(move.client, move.home_from, best))
    above = [
        f"{broker} passes {figure(load)} notifications/s, but its limit is {figure(cap)}"
        for broker, load, cap in zip(loads.overlay.brokers, now.tolist(), loads.caps.tolist(), strict=True)
        if load > cap
    ]
    return tuple(moves_made), above
