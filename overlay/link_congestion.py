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
RELEASE_SHARE = 0.5  # Of the threshold: what is congested stays so until its measure is down to this.


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
    """A named measure of a window; a queue becomes congested above ``threshold``.

    Once it is, it stays so until the measure is no longer above ``release_share`` of that; at 1 there is no hysteresis.
    """

    name: str
    measure: Callable[[QueueWindow], float]
    threshold: float = THRESHOLD
    release_share: float = RELEASE_SHARE

    def congested(self, window: QueueWindow, *, was: bool = False) -> bool:
        """Return True if the queue is congested; ``was``: in the window before."""
        return self.is_above(self.measure(window), was=was)

    def is_above(self, measured: float, *, was: bool = False) -> bool:
        """Return the same of a queue whose measure is known."""
        return measured > self.threshold * (self.release_share if was else 1)


PRODUCT = CongestionRule("product", lambda window: window.congestion_element * window.queued)
SUM = CongestionRule("sum", lambda window: window.congestion_element + window.queued)
ONSET = CongestionRule("onset", lambda window: (1 + window.queued) * window.congestion_element)
LENGTH = CongestionRule("length", lambda window: float(window.queued))
RULES = {rule.name: rule for rule in (PRODUCT, SUM, ONSET, LENGTH)}
