"""Choose which peers a node measures besides its neighbours: half of them near, half random others.

The near ones are likely new neighbours; the others let the controller estimate unmeasured links, because near ones
alone say nothing about far ones (Dabek et al., SIGCOMM 2004, section 4.3). If there are at most ``CANDIDATES_MAX``
peers, all are chosen.
"""

from __future__ import annotations

import random
from collections.abc import Collection

from regraft.overlay.inventory.inventory import Inventory

CANDIDATES_MAX = 40  # Connections besides those to neighbours, each probed once a second.
NEAR_MAX = CANDIDATES_MAX // 2
RENEWED_S = 60.0  # Until others are chosen; a link counts as measured from its second window on.


class CandidateChoice:
    """The choice of one node. Nearness is the last measured delay, else the cost in the inventory."""

    def __init__(self, broker: str, inventory: Inventory) -> None:
        self._broker = broker
        row = inventory.link_cost[inventory.index[broker]].tolist() if broker in inventory.index else []
        self._cost = dict(zip(inventory.brokers, row, strict=False))
        self._delay_ms: dict[str, float] = {}
        self._rng = random.Random(broker)  # Repeatable, but different for each broker.

    def note(self, round_trips_ms: Collection[tuple[str, float]]) -> None:
        """Note measured round trips, in ms by peer."""
        self._delay_ms |= {peer: rtt_ms / 2 for peer, rtt_ms in round_trips_ms}

    def next(self, peers: Collection[str]) -> list[str]:
        """Return which of these peers to measure now."""
        others = sorted(set(peers) - {self._broker})
        if len(others) <= CANDIDATES_MAX:
            return others
        by_nearness = sorted(others, key=lambda peer: (self._delay_ms.get(peer, self._cost.get(peer, 0.0)), peer))
        near, far = by_nearness[:NEAR_MAX], by_nearness[NEAR_MAX:]
        return [*near, *self._rng.sample(far, CANDIDATES_MAX - NEAR_MAX)]
