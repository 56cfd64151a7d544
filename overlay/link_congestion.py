"""When the queue of a link counts as congested (Shafique, Eq. 10, whose terms are lost in the text).

In: how many messages entered and left a queue in a window, and its length at the end. Out: a measure and whether it is
above the threshold. The text fixes what goes in and that a queue where as many leave as enter, and none wait, is never
congested; ``PRODUCT`` is the reading taken, the others are alternatives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

WINDOW_MS = 50.0
THRESHOLD = 10.0


@dataclass(frozen=True, slots=True)
class QueueWindow:
    """What happened at a queue in one window: messages that entered, left, and wait at its end."""

    entered: int = 0
    left: int = 0
    queued: int = 0

    @property
    def congestion_element(self) -> float:
        """Entered over left; 1 where neither happened, and as if one had left where none did."""
        return self.entered / max(self.left, 1) if self.entered or self.left else 1.0


@dataclass(frozen=True, slots=True)
class CongestionRule:
    """A named measure of a window; the link is congested above ``threshold``."""

    name: str
    measure: Callable[[QueueWindow], float]
    threshold: float = THRESHOLD

    def congested(self, window: QueueWindow) -> bool:
        """Return whether the queue is congested."""
        return self.measure(window) > self.threshold


PRODUCT = CongestionRule("product", lambda window: window.congestion_element * window.queued)
SUM = CongestionRule("sum", lambda window: window.congestion_element + window.queued)
ONSET = CongestionRule("onset", lambda window: (1 + window.queued) * window.congestion_element)
LENGTH = CongestionRule("length", lambda window: float(window.queued))
RULES = {rule.name: rule for rule in (PRODUCT, SUM, ONSET, LENGTH)}
