"""Choose which peers a node measures though they are not neighbours: half near ones, half others in turn.

In: what links cost by the inventory, and round trips. Out: names. The near ones are what a plan would make neighbours
of; the others let the controller estimate what nobody measures, as near ones alone say nothing of far ones
(Dabek et al., SIGCOMM 2004, section 4.3). Where there are no more peers than that, all are chosen.
"""

from __future__ import annotations

import random
from collections.abc import Collection

from regraft.overlay.inventory import Inventory

CANDIDATES_MAX = 40  # Connections that a node keeps besides those to its neighbours, each probed once a second.
NEAR_MAX = CANDIDATES_MAX // 2
RENEWED_S = 60.0  # Until others have their turn: the controller takes a link as measured with its second window.


class CandidateChoice:
    """The choice of one node. A peer is as near as it was when it was measured last, else as the inventory says."""

    def __init__(self, broker: str, inventory: Inventory) -> None:
        self._broker = broker
        row = inventory.link_cost[inventory.index[broker]].tolist() if broker in inventory.index else []
        self._cost = dict(zip(inventory.brokers, row, strict=False))
        self._delay_ms: dict[str, float] = {}
        self._rng = random.Random(broker)  # Repeatable, and not the same for all.

    def note(self, round_trips_ms: Collection[tuple[str, float]]) -> None:
        """Note what was measured."""
        self._delay_ms |= {peer: rtt_ms / 2 for peer, rtt_ms in round_trips_ms}

    def next(self, peers: Collection[str]) -> list[str]:
        """Return whom to measure now, of these peers."""
        others = sorted(set(peers) - {self._broker})
        if len(others) <= CANDIDATES_MAX:
            return others
        by_nearness = sorted(others, key=lambda peer: (self._delay_ms.get(peer, self._cost.get(peer, 0.0)), peer))
        near, far = by_nearness[:NEAR_MAX], by_nearness[NEAR_MAX:]
        return [*near, *self._rng.sample(far, CANDIDATES_MAX - NEAR_MAX)]
