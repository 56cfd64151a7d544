"""When the queue of a link counts as congested (Shafique, Eq. 10, whose terms are missing from the text).

The text defines the inputs, and that a queue in which no message waits and as many leave as enter is never congested.
``PRODUCT`` is our reading of Eq. 10; the other rules are alternatives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

WINDOW_MS = 50.0
THRESHOLD = 10.0
RELEASE_SHARE = 0.5  # Share of the threshold to which the measure of a congested queue must fall.


@dataclass(frozen=True, slots=True)
class QueueWindow:
    """The messages that entered a queue and left it in a window, and those waiting at its end."""

    entered: int = 0
    left: int = 0
    queued: int = 0

    @property
    def congestion_element(self) -> float:
        """``entered`` / ``left``; 1 if both are 0, and as if one message had left if none did."""
        return self.entered / max(self.left, 1) if self.entered or self.left else 1.0


@dataclass(frozen=True, slots=True)
class CongestionRule:
    """A named measure of a window; a queue becomes congested above ``threshold``.

    A congested queue stays so until the measure is at most ``release_share`` of the threshold; at 1 there is no
    hysteresis.
    """

    name: str
    measure: Callable[[QueueWindow], float]
    threshold: float = THRESHOLD
    release_share: float = RELEASE_SHARE

    def congested(self, window: QueueWindow, *, was: bool = False) -> bool:
        """Return True if the queue is congested; ``was`` is the result for the previous window."""
        return self.is_above(self.measure(window), was=was)

    def is_above(self, measured: float, *, was: bool = False) -> bool:
        """Return the same as :meth:`congested` for a known measure."""
        return measured > self.threshold * (self.release_share if was else 1)


PRODUCT = CongestionRule("product", lambda window: window.congestion_element * window.queued)
SUM = CongestionRule("sum", lambda window: window.congestion_element + window.queued)
ONSET = CongestionRule("onset", lambda window: (1 + window.queued) * window.congestion_element)
LENGTH = CongestionRule("length", lambda window: float(window.queued))
RULES = {rule.name: rule for rule in (PRODUCT, SUM, ONSET, LENGTH)}
