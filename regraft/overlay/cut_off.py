"""What the death of each broker would cut off: deliveries between other brokers that pass through it. Pure.

Losses of a dead broker's own clients are left out because they are the same in any overlay.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from regraft.schemas.arrays import Floats


@dataclass(frozen=True, eq=False)
class CutOff:
    """Deliveries per second that each broker's death cuts off, shape (brokers,), out of ``total_per_s``."""

    brokers: tuple[str, ...]
    per_s: Floats
    total_per_s: float

    @cached_property
    def worst_broker(self) -> str:
        """The broker whose death cuts off the most."""
        return self.brokers[int(self.per_s.argmax())]

    @property
    def worst_share(self) -> float:
        """The share of all deliveries that the worst broker's death cuts off; 0 if nothing is delivered."""
        return float(self.per_s.max()) / self.total_per_s if self.total_per_s else 0.0

    @property
    def mean_share(self) -> float:
        """The mean share of all deliveries that a broker's death cuts off; 0 if nothing is delivered.

        Multiplied by the number of brokers, the deaths per broker and year, and the time to repair in years, it gives
        the share of a year's deliveries that deaths cut off.
        """
        return float(self.per_s.mean()) / self.total_per_s if self.total_per_s else 0.0
