"""Which incarnation of a neighbour a link's report of its end concerns, if the controller has reported that end.

A link reports the end of an incarnation behind everything sent in it, but before everything sent in the next one. If
the controller has reported the end, too, the neighbour may be back by then: that report does not concern its next
incarnation.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from regraft.overlay.overlay_configuration import OverlayConfiguration


class NeighbourIncarnations:
    """The neighbours whose end the controller has reported and their link has not, each with its next incarnation."""

    def __init__(self) -> None:
        self._next_from: dict[
            str, float
        ] = {}  # By neighbour, the epoch in which its next incarnation begins: inf for none.

    def note_reported(self, peers: Collection[str]) -> None:
        """Note that the controller reports these neighbours dead; each has yet to be reported by its link."""
        for peer in peers:
            self._next_from.setdefault(peer, math.inf)

    def begin_plan(self, before: OverlayConfiguration, target: OverlayConfiguration, lost: Collection[str]) -> None:
        """Note which brokers join in a plan, those it names as lost, too; plans begun before may have been aborted."""
        for peer, epoch in self._next_from.items():
            joins = peer in target.brokers and (peer in lost or peer not in before.brokers)
            if joins or epoch > before.epoch:
                self._next_from[peer] = target.epoch if joins else math.inf

    def note_sent(self, peer: str, epoch: int) -> None:
        """Note a neighbour's message of an epoch: if its next incarnation sent it, no report of that end follows."""
        if self._next_from and epoch >= self._next_from.get(peer, math.inf):
            del self._next_from[peer]

    def end(self, peer: str) -> float:
        """Note a link's report; return the first epoch that it does not concern, inf if it concerns all."""
        return self._next_from.pop(peer, math.inf)
