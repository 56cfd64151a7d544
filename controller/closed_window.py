"""ClosedWindow: everything known about one window whose rows have all arrived, or have been given up on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from overlay.delivery_sets import DeliverySets
from schemas.state import LinkRtt, QueueState


@dataclass(frozen=True, eq=False)
class ClosedWindow:
    """One window as the controller uses it.

    ``fault`` is empty when the window is complete, else it says what is missing; ``short_brokers`` names the brokers
    of which too few batches came. ``epoch_min`` and ``epoch_max`` are the epochs that brokers stamped in the window,
    -1 when no broker was heard. ``client_changes`` counts distinct changes of interest. ``homes`` names the broker at
    which each publisher published last in the window; ``local_deliveries`` counts the hand-overs to local subscribers
    by (publisher, broker).
    """

    start_ms: int
    end_ms: int
    sets: DeliverySets
    queues: tuple[QueueState, ...] = ()
    rtts: tuple[LinkRtt, ...] = ()
    client_changes: int = 0
    epoch_min: int = -1
    epoch_max: int = -1
    short_brokers: tuple[str, ...] = ()
    fault: str = ""
    late_rows: int = 0
    homes: Mapping[str, str] = field(default_factory=dict)
    local_deliveries: Mapping[tuple[str, str], int] = field(default_factory=dict)
    _placed: tuple[dict[str, str], DeliverySets] | None = field(default=None, init=False, repr=False)

    def sets_at(self, homes: Mapping[str, str]) -> DeliverySets:
        """Return the delivery sets as if the publishers had been at these homes; those not named stay.

        The last answer is kept: a horizon asks for the same homes at every decision until one moves.
        """
        moved = {publisher: home for publisher, home in self.homes.items() if homes.get(publisher, home) != home}
        if not moved:
            return self.sets
        wanted = {publisher: homes[publisher] for publisher in moved}
        if self._placed is None or self._placed[0] != wanted:
            object.__setattr__(self, "_placed", (wanted, self.sets.at_homes(wanted)))
        assert self._placed is not None
        return self._placed[1]

    @property
    def is_complete(self) -> bool:
        """Tell whether decisions may rest on the window."""
        return not self.fault

    @property
    def epoch(self) -> int | None:
        """The one epoch in which the whole window lay, None when a transition ran through it."""
        return self.epoch_min if self.epoch_min == self.epoch_max and self.epoch_min >= 0 else None
