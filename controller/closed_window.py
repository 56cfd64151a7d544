"""ClosedWindow: everything known about one window whose rows have all arrived, or have been given up on."""

from __future__ import annotations

from dataclasses import dataclass

from overlay.delivery_sets import DeliverySets
from schemas.state import LinkRtt, QueueState


@dataclass(frozen=True, eq=False)
class ClosedWindow:
    """One window as the controller uses it.

    ``fault`` is empty when the window is complete, else it says what is missing; ``short_brokers`` names the brokers
    of which too few batches came. ``epoch_min`` and ``epoch_max`` are the epochs that brokers stamped in the window,
    -1 when no broker was heard. ``client_changes`` counts distinct changes of interest.
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

    @property
    def is_complete(self) -> bool:
        """Tell whether decisions may rest on the window."""
        return not self.fault

    @property
    def epoch(self) -> int | None:
        """The one epoch in which the whole window lay, None when a transition ran through it."""
        return self.epoch_min if self.epoch_min == self.epoch_max and self.epoch_min >= 0 else None
